"""Questions about a generate, asked of a trace whose every number is known."""

import pandas as pd
import pytest
from synthetic import GENERATED, PROMPT, coherent_rows, make_trace

from tracer.analysis import answer, generation, inputs

EVERY_QUESTION = [
    generation.settings_in_force,
    generation.time_split,
    generation.cache_account,
    generation.processor_effects,
    inputs.token_runs,
    inputs.sequence_tokens,
    inputs.call_images,
    answer.answer_tokens,
]


@pytest.fixture
def rows():
    return coherent_rows()


def test_the_last_generate_is_meant_where_no_call_is_named(rows):
    known = {call["seq"]: call["kind"] for call in rows["calls"]}
    trace = make_trace(rows)
    assert known[generation.call_or_last(trace)] == "generate"
    assert generation.call_or_last(trace, 7) == 7
    assert generation.call_or_last(make_trace({})) == -1


def test_of_two_generates_the_later_one_is_meant(rows):
    second = rows["calls"][-1] | {"seq": 900, "call": 900, "start_ns": 300_000_000}
    rows["calls"].insert(0, second)
    assert generation.call_or_last(make_trace(rows)) == 900


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"start_ns": 210_000_000}, [False]),  # an assistant that drafts
        ({"start_ns": 260_000_000}, [False, True]),
        ({"start_ns": 210_000_000, "thread": "other"}, [False, True]),
    ],
)
def test_a_generate_inside_another_is_not_one_of_its_own(rows, change, expected):
    outer = rows["calls"][-1]
    inner = outer | {"seq": 900, "call": 900, "duration_ns": 1_000_000} | change
    rows["calls"].append(inner)
    found = generation.generate_calls(make_trace(rows))
    assert [seq == 900 for seq in found] == expected


def test_a_generate_that_never_ended_encloses_what_came_after_it(rows):
    rows["calls"][-1]["duration_ns"] = None
    rows["calls"].append(rows["calls"][-1] | {"seq": 900, "call": 900, "start_ns": 10**12})
    assert generation.call_or_last(make_trace(rows)) != 900


@pytest.mark.parametrize("question", EVERY_QUESTION)
def test_a_call_that_is_no_generate_gives_an_empty_frame(rows, question):
    trace = make_trace(rows)
    assert not question(trace).empty or question is generation.processor_effects
    assert question(trace, 0).empty
    assert list(question(make_trace({})).columns) == list(question(trace).columns)


def test_defaults_of_the_library_are_left_out_of_the_settings(rows):
    rows["settings"].append(rows["settings"][0] | {"setting": "num_beams", "origin": "library"})
    settings = generation.settings_in_force(make_trace(rows))
    assert settings["setting"].tolist() == ["max_new_tokens", "max_length"]
    assert settings["effective"].tolist() == ["4", str(PROMPT + len(GENERATED))]


def test_time_is_split_by_kind_of_step(rows):
    split = generation.time_split(make_trace(rows)).set_index("kind")
    assert split.loc["decode", "steps"] == 3
    assert split.loc["decode", "duration_ns"] == 30_000_000
    assert split.loc["decode", "step_ns"] == 10_000_000
    assert split.loc["prefill", "input_tokens"] == PROMPT
    assert split.loc["prefill", generation.TIME_PARTS].sum() == 20_000_000


def test_the_last_token_is_not_cached(rows):
    (account,) = generation.cache_account(make_trace(rows)).to_dict("records")
    assert account["prompt_tokens"] == PROMPT
    assert account["generated_tokens"] == account["forwards"] == len(GENERATED)
    assert account["cached_tokens"] == PROMPT + len(GENERATED) - 1
    assert account["uncached_tokens"] == 1


def test_a_cache_of_other_ids_leaves_unknown_how_much_of_the_sequence_it_holds(rows):
    rows["calls"][-1] |= {"cache_prefix_tokens": 2, "cache_first_difference": 2}
    (account,) = generation.cache_account(make_trace(rows)).to_dict("records")
    assert account["sequence_tokens"] == PROMPT + len(GENERATED)
    assert pd.isna(account["uncached_tokens"])


def test_cut_tokens_are_no_part_of_the_sequence(rows):
    rows["tokens"].append(rows["tokens"][0] | {"index": 99, "position": None, "kind": "cut"})
    assert generation.cache_account(make_trace(rows))["prompt_tokens"].tolist() == [PROMPT]


def test_effects_are_means_in_the_order_of_the_chain(rows):
    place = {"event": 0, "call": rows["calls"][-1]["seq"], "rank": 0, "row": 0, "offset": 0}
    rows["effects"] = [
        place
        | {"step": step, "index": index, "class_name": name, "removed_tokens": removed}
        | {"chosen_delta": 0.5, "entropy_before": 2.0, "entropy_after": 2.0 - index}
        for step, removed in enumerate([10, 20])
        for index, name in [(1, "TopK"), (0, "Temperature")]
    ]
    effects = generation.processor_effects(make_trace(rows))
    assert effects["class_name"].tolist() == ["Temperature", "TopK"]
    assert effects["steps"].tolist() == [2, 2]
    assert effects["removed_tokens"].tolist() == [15, 15]
    assert effects["entropy_after"].tolist() == [2, 1]


def test_neighbours_of_one_kind_are_folded(rows):
    runs = inputs.token_runs(make_trace(rows))
    assert runs[["first", "tokens", "kind", "origin"]].to_numpy().tolist() == [
        [0, 2, "text", "user"],
        [2, 4, "image", "user"],
        [6, 2, "text", "user"],
        [8, 4, "text", "generated"],
    ]
    assert runs["text"].tolist()[:2] == [" word1 word2", " word9"]


def test_an_images_tokens_share_a_time_and_lie_on_a_grid(rows):
    image = inputs.token_runs(make_trace(rows)).iloc[1]
    assert image[["position_t", "position_h", "position_w"]].tolist() == ["2", "2-3", "2-3"]


def test_two_images_side_by_side_are_two_runs(rows):
    for token in rows["tokens"][4:6]:
        token["image"] = 1
    runs = inputs.token_runs(make_trace(rows))
    assert runs["image"].dropna().tolist() == [0, 1]
    assert runs["tokens"].tolist() == [2, 2, 2, 2, 4]


def test_rows_of_a_batch_are_never_folded_together(rows):
    rows["tokens"] = [token for token in rows["tokens"] if token["index"] < 2]
    rows["tokens"] += [token | {"row": 1} for token in rows["tokens"]]
    assert inputs.token_runs(make_trace(rows))["row"].tolist() == [0, 1]


def test_tokens_without_text_and_positions_stay_without(rows):
    for token in rows["tokens"]:
        token |= {"text": None, "position_t": None}
    runs = inputs.token_runs(make_trace(rows))
    assert runs["text"].isna().all()
    assert runs["position_t"].isna().all()


def test_the_processors_work_counts_modules_where_they_were_counted(rows):
    span = rows["spans"][-1]
    rows["spans"] += [
        span | {"seq": 901, "stage": "encode", "name": "images", "summary": {"modules": 0}},
        span | {"seq": 900, "stage": "vision", "name": "fetch", "summary": None},
    ]
    work = inputs.processor_work(make_trace(rows))
    assert work["name"].tolist() == ["fetch", "images"]
    assert work["modules"].isna().tolist() == [True, False]
    assert work["modules"].iloc[1] == 0


def test_each_token_of_the_answer_has_the_times_of_its_step(rows):
    tokens = answer.answer_tokens(make_trace(rows))
    assert tokens["token_id"].tolist() == GENERATED
    assert tokens["step_ns"].tolist() == [20_000_000] + [10_000_000] * 3
    assert tokens["cache_tokens"].tolist() == [8, 9, 10, 11]


def test_tokens_of_the_answer_say_how_close_the_second_best_was(rows):
    assert answer.answer_tokens(make_trace(rows))["margin"].tolist() == [0.4] * 4


def test_the_sequence_is_prompt_and_answer_in_order(rows):
    rows["tokens"].reverse()
    tokens = inputs.sequence_tokens(make_trace(rows))
    assert tokens["index"].tolist() == list(range(PROMPT + len(GENERATED)))


def test_a_calls_images_are_in_order_and_its_own(rows):
    image = rows["images"][0]
    rows["images"] = [image | {"index": 1}, image, image | {"index": 7, "call": 0, "event": 0}]
    assert inputs.call_images(make_trace(rows))["index"].tolist() == [0, 1]


def test_the_answers_text_is_what_was_accepted(rows):
    assert answer.answer_text(make_trace(rows)) == {0: " word5 word6 word7 word8"}
    rows["choices"][-1]["accepted"] = False
    assert answer.answer_text(make_trace(rows)) == {0: " word5 word6 word7"}


def test_no_text_is_guessed_without_a_tokenizer(rows):
    for choice in rows["choices"]:
        choice["text"] = None
    assert answer.answer_text(make_trace(rows)) == {}
