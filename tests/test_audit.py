"""The audit: a coherent trace holds, each seeded fault breaks its own check and names itself."""

import json
import re

import pytest
from synthetic import PROMPT, coherent_rows, make_trace

from tracer.audit import COLUMNS, audit
from tracer.explain import language

TARGETS = [
    {"target": "generate", "expected": True, "seen": 3},
    {"target": "old loader", "expected": False, "seen": 0},
]
MANIFEST = {"options": {"verify_weights": True}, "targets": TARGETS, "index_only": {"m1": []}}
MILLISECOND = 1_000_000
LOST = {"table": "choices", "written": 4, "found": 1}
CHECKS = [
    "1 one fate a tensor",
    "1 reads = fates",
    "2 one placement a parameter",
    "2 none left on meta",
    "2 none unwritten",
    "3 bytes of a file",
    "3 index = headers",
    "4 values = sources",
    "5 explained time",
    "6 tokens = choices",
    "6 ids = choices",
    "6 cache growth",
    "6 positions",
    "6 last token not cached",
    "7 placeholders = features",
    "7 images behind placeholders",
    "8 targets seen",
]


@pytest.fixture
def rows():
    """The coherent trace, with an index beside its file."""
    rows = coherent_rows()
    for tensor in rows["checkpoint_tensors"]:
        tensor["in_index"] = True
    return rows


def judge(rows, **manifest):
    trace = make_trace(rows, manifest={**MANIFEST, **manifest})
    return audit(trace.__getitem__, trace.manifest).set_index("check")


def broken(answer):
    return {
        check: json.loads(row["evidence"])
        for check, row in answer.iterrows()
        if row["verdict"] == "broken"
    }


def seq_of(rows, kind):
    (call,) = (call["seq"] for call in rows["calls"] if call["kind"] == kind)
    return call


def step(rows, number):
    return rows["steps"][number]


def test_a_coherent_trace_holds_in_every_check(rows):
    answer = judge(rows)
    assert answer.index.tolist() == CHECKS
    assert answer["verdict"].tolist() == ["holds"] * len(CHECKS)
    assert set(answer["evidence"]) == {"[]"}


def test_the_trace_offers_the_same_audit(rows):
    trace = make_trace(rows, manifest=MANIFEST)
    answer = trace.audit()
    assert list(answer.columns) == COLUMNS
    assert answer.equals(audit(trace.__getitem__, trace.manifest))


def test_in_an_empty_trace_nothing_holds_and_nothing_is_broken():
    answer = audit(make_trace({}).__getitem__, {})
    assert answer["check"].tolist() == CHECKS
    assert set(answer["verdict"]) == {"not applicable"}


# Each fault: the check that it breaks, what is done to the rows, and what the evidence names.
FAULTS = {}


def fault(check, *evidence):
    def register(change):
        FAULTS[change.__name__] = (check, change, list(evidence))
        return change

    return register


@fault("1 one fate a tensor", "model.safetensors: head.weight")
def a_tensor_without_fate(rows):
    rows["checkpoint_tensors"][-1] |= {"fate": None}


@fault("1 one fate a tensor", "model.safetensors: head.weight")
def a_tensor_with_a_fate_of_no_meaning(rows):
    rows["checkpoint_tensors"][-1]["fate"] = "lost"


@fault("1 one fate a tensor", "model.safetensors: head.weight")
def a_tensor_with_two_fates(rows):
    rows["checkpoint_tensors"].append(rows["checkpoint_tensors"][-1] | {"fate": "skipped"})
    rows["files"][0]["size_bytes"] += rows["checkpoint_tensors"][-1]["size_bytes"]
    rows["files"][0]["tensors"] += 1


@fault("1 reads = fates", "model.safetensors: head.weight")
def a_loaded_tensor_that_nobody_read(rows):
    del rows["tensor_loads"][-1]


@fault("1 reads = fates", "model.safetensors: head.weight")
def a_skipped_tensor_that_was_read(rows):
    rows["checkpoint_tensors"][-1]["fate"] = "skipped"


@fault("1 reads = fates", "model.safetensors: head.weight")
def a_read_that_failed(rows):
    rows["tensor_loads"][-1]["status"] = "error"


@fault("1 reads = fates", "model.safetensors: ghost")
def a_read_of_a_tensor_in_no_header(rows):
    rows["tensor_loads"].append({**rows["tensor_loads"][-1], "seq": 900, "key": "ghost"})


@fault("2 one placement a parameter", "m1: rotary.inv_freq")
def a_buffer_without_placement(rows):
    del rows["placements"][-1]


@fault("2 one placement a parameter", "m1: extra")
def a_placement_that_was_never_built(rows):
    rows["placements"].append({**rows["placements"][-1], "param": "extra"})


@fault("2 one placement a parameter", "m1: rotary.inv_freq")
def a_parameter_placed_twice(rows):
    rows["placements"].append(dict(rows["placements"][-1]))


@fault("2 none left on meta", "m1: rotary.inv_freq")
def a_buffer_left_on_meta(rows):
    rows["placements"][-1]["residence"] = "meta"


@fault("2 none unwritten", "m1: rotary.inv_freq")
def a_buffer_never_written(rows):
    rows["placements"][-1]["origin"] = "unwritten"


@fault("3 bytes of a file", "model.safetensors")
def a_file_cut_short(rows):
    rows["files"][0]["size_bytes"] -= 1


@fault("3 bytes of a file", "model.safetensors")
def bytes_behind_the_last_tensor(rows):
    rows["files"][0]["size_bytes"] += 1


@fault("3 bytes of a file", "model.safetensors")
def a_tensor_of_the_header_that_no_row_tells_of(rows):
    key = rows["checkpoint_tensors"].pop()["key"]
    rows["tensor_loads"] = [read for read in rows["tensor_loads"] if read["key"] != key]


@fault("3 bytes of a file", "model.safetensors")
def a_header_with_one_tensor_more(rows):
    rows["files"][0]["tensors"] += 1


@fault("3 index = headers", "model.safetensors: head.weight")
def a_tensor_that_the_index_lacks(rows):
    rows["checkpoint_tensors"][-1]["in_index"] = False


@fault("4 values = sources", "m1: embed.weight")
def a_value_that_differs(rows):
    rows["placements"][0]["verified"] = "different"


@fault("4 values = sources", "m1: embed.weight: holds head.weight instead")
def a_value_of_another_parameter(rows):
    said = {"verified": "different", "verified_because": "holds head.weight instead"}
    rows["placements"][0] |= said


@fault("4 values = sources", "m1: embed.weight")
def a_comparison_that_got_lost(rows):
    rows["placements"][0]["verified"] = None


@fault("5 explained time", "load")
def a_stage_of_loading_not_seen(rows):
    rows["spans"] = [span for span in rows["spans"] if span["name"] != "config"]


@fault("5 explained time", "load")
def a_stage_that_ran_in_another_thread(rows):
    (span,) = (span for span in rows["spans"] if span["name"] == "meta_init")
    span["thread"] = "elsewhere"


@fault("5 explained time", "load")
def time_of_the_recorder_named_as_the_librarys(rows):
    (span,) = (span for span in rows["spans"] if span["name"] == "config")
    span["stage"] = "recorder"


@fault("5 explained time", "load")
def children_that_run_beyond_their_call(rows):
    (span,) = (span for span in rows["spans"] if span["name"] == "dispatch")
    span["start_ns"] += 100 * MILLISECOND


@fault("5 explained time", "answer")
def a_call_without_anything_below(rows):
    kept = [span for span in rows["spans"] if span["stage"] != "setup"]
    rows["spans"] = kept
    for each in rows["steps"]:
        each["parent"] = -1


@fault("6 tokens = choices", "answer")
def a_token_that_nobody_chose(rows):
    rows["tokens"].append({**rows["tokens"][-1], "index": 12, "position": 12})


@fault("6 tokens = choices", "answer")
def generated_tokens_not_recorded(rows):
    rows["tokens"] = [token for token in rows["tokens"] if token["origin"] != "generated"]


@fault("6 ids = choices", "answer")
def another_id_than_the_chosen(rows):
    rows["tokens"][-1]["token_id"] = 1


@fault("6 cache growth", "step 2")
def a_step_that_cached_less_than_it_was_fed(rows):
    step(rows, 2)["input_tokens"] = 2


@fault("6 cache growth", "step 2")
def a_step_not_seen(rows):
    # Only the steps know of it: what was chosen in it stands.
    seqs = step(rows, 2)["seq"]
    del rows["steps"][1]
    rows["modules"] = [module for module in rows["modules"] if module["parent"] != seqs]
    rows["steps"][0]["duration_ns"] += 10 * MILLISECOND


@fault("6 positions", "step 3")
def a_position_that_slipped(rows):
    step(rows, 3)["last_position"] += 1


@fault("6 last token not cached", "answer")
def a_last_token_that_was_cached(rows):
    last = step(rows, 3)
    more = {"seq": 901, "step": 4, "last_position": last["last_position"] + 1}
    more |= {name: last[name] + 1 for name in ("cache_tokens_before", "cache_tokens_after")}
    rows["steps"].append({**last, **more})


@fault("7 placeholders = features", "image")
def a_placeholder_too_few(rows):
    rows["images"][0]["found_tokens"] = 3
    rows["images"][0]["replaced_embeddings"] = 3


@fault("7 placeholders = features", "image")
def an_embedding_not_replaced(rows):
    rows["images"][0]["replaced_embeddings"] = 3


@fault("7 images behind placeholders", "answer")
def placeholders_without_any_image(rows):
    del rows["images"]
    rows["inputs"] = rows["inputs"][:1]
    for token in rows["tokens"]:
        token["image"] = None


@fault("7 images behind placeholders", "answer")
def an_image_that_lost_its_row(rows):
    rows["images"].clear()


@fault("7 images behind placeholders", "answer")
def one_of_two_images_that_lost_its_row(rows):
    for token in [token for token in rows["tokens"] if token["kind"] == "image"][2:]:
        token["image"] = 1


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_breaks_its_check_alone_and_is_named(rows, name):
    check, change, evidence = FAULTS[name]
    answer, load = seq_of(rows, "generate"), seq_of(rows, "from_pretrained")
    meanings = {"answer": answer, "load": load, "image": f"{answer}: image 0"}
    meanings |= {f"step {number}": step(rows, number)["seq"] for number in (2, 3)}
    change(rows)
    assert broken(judge(rows)) == {check: [meanings.get(each, each) for each in evidence]}


def test_a_name_that_only_the_index_holds_is_broken(rows):
    answer = judge(rows, index_only={"m1": ["lost.weight"]})
    assert broken(answer) == {"3 index = headers": ["index only: lost.weight"]}


def test_an_index_without_any_header_beside_it_proves_nothing(rows):
    del rows["checkpoint_tensors"]
    answer = judge(rows, index_only={"m1": ["a.weight"]})
    assert answer.loc["3 index = headers", "verdict"] == "not applicable"


def test_a_target_that_should_have_been_seen_is_broken(rows):
    targets = [*TARGETS, {"target": "new loader", "expected": True, "seen": 0}]
    assert broken(judge(rows, targets=targets)) == {"8 targets seen": ["new loader"]}


def not_applicable(answer):
    return set(answer.index[answer["verdict"] == "not applicable"])


@pytest.mark.parametrize("status", ["error", "interrupted"])
def test_what_a_failed_load_left_undone_is_no_evidence(rows, status):
    rows["calls"][0]["status"] = status
    rows["checkpoint_tensors"][0]["fate"] = None
    del rows["placements"][0], rows["tensor_loads"][0]
    answer = judge(rows)
    assert not broken(answer)
    assert not_applicable(answer) == {check for check in CHECKS if check[0] in "1234"}


@pytest.mark.parametrize("verified", [None, "not compared"])
def test_values_that_were_not_compared_do_not_hold(rows, verified):
    for placement in rows["placements"]:
        placement["verified"] = verified
    answer = judge(rows)
    assert not broken(answer)
    assert not_applicable(answer) == {"4 values = sources"}


def test_without_an_index_there_is_nothing_to_compare(rows):
    for tensor in rows["checkpoint_tensors"]:
        tensor["in_index"] = None
    assert not_applicable(judge(rows)) == {"3 index = headers"}


def test_a_pickled_checkpoint_has_no_headers_to_hold_against(rows):
    del rows["checkpoint_tensors"]
    rows["files"][0] |= {"format": "pickle", "header_bytes": None}
    answer = judge(rows)
    assert not broken(answer)
    assert not_applicable(answer) == {check for check in CHECKS if check[0] in "13"}


@pytest.mark.parametrize(
    "manifest", [{"options": {"redact_text": True}}, {"scrubbed": ["paths", "text"]}]
)
def test_redacted_ids_are_not_judged_and_counts_are(rows, manifest):
    for table in ("tokens", "choices"):
        for row in rows[table]:
            row["token_id"] = None
    answer = judge(rows, **manifest)
    assert not broken(answer)
    assert not_applicable(answer) == {"6 ids = choices"}
    rows["tokens"].pop()
    assert set(broken(judge(rows, **manifest))) == {"6 tokens = choices"}


def test_a_table_given_up_for_space_makes_its_checks_not_applicable(rows):
    del rows["choices"]
    answer = judge(rows, dropped=["choices"])
    assert not broken(answer)
    assert {"6 tokens = choices", "6 last token not cached"} <= not_applicable(answer)
    assert "choices" in answer.loc["6 tokens = choices", "found"]


def test_dropped_modules_leave_generate_judged(rows):
    del rows["modules"]
    answer = judge(rows, dropped=["modules"])
    assert answer.loc["5 explained time", "verdict"] == "holds"


def own_forward(rows, *, length_ms, modules_ms=None):
    """A user's own forward after all else; seq 500, its module 501."""
    common = {**rows["calls"][1], "parent": -1, "stage": "forward", "name": "forward"}
    times = {"start_ns": 400 * MILLISECOND, "duration_ns": length_ms * MILLISECOND}
    own = {"seq": 500, "call": 500, "kind": "forward", "mode": None, "recorder_ns": 0}
    rows["calls"].append({**common, **times, **own})
    if modules_ms is not None:
        below = {"seq": 501, "parent": 500, "call": 500, "duration_ns": modules_ms * MILLISECOND}
        rows["modules"].append({**rows["modules"][0], **times, **below})


def test_a_forward_without_named_children_is_said_not_to_be_judged(rows):
    own_forward(rows, length_ms=50)
    answer = judge(rows)
    assert not broken(answer)
    assert "not judged, without named children: [500]" in answer.loc["5 explained time", "found"]


@pytest.mark.parametrize(("modules_ms", "verdict"), [(48.8, "holds"), (48.2, "broken")])
def test_modules_explain_a_forward_up_to_three_percent(rows, modules_ms, verdict):
    own_forward(rows, length_ms=50, modules_ms=modules_ms)
    assert judge(rows).loc["5 explained time", "verdict"] == verdict


@pytest.mark.parametrize(
    ("waited_ms", "between_ms", "verdict"),
    [
        (0, None, "broken"),
        (5, None, "broken"),
        (20, None, "holds"),  # it may have waited anywhere
        (20, 20, "holds"),
        (20, 12, "holds"),
        (20, 5, "broken"),  # it waited, but mostly inside the parts that have a name
        (20, 0, "broken"),
    ],
)
def test_what_a_busy_machine_took_between_the_parts_is_put_up_with_and_said(
    rows, waited_ms, between_ms, verdict
):
    own_forward(rows, length_ms=50, modules_ms=38)
    rows["calls"][-1]["waited_ns"] = waited_ms * MILLISECOND
    if between_ms is not None:
        rows["calls"][-1]["gap_waited_ns"] = between_ms * MILLISECOND
    row = judge(rows).loc["5 explained time"]
    assert row["verdict"] == verdict
    words = "in 1 of them up to 12.000 ms are put down to waiting for a processor"
    assert (words in row["found"]) == (verdict == "holds")


@pytest.mark.parametrize(("steps", "verdict"), [(0, "broken"), (1, "holds")])
def test_each_step_allows_three_tenths_of_a_millisecond(rows, steps, verdict):
    own_forward(rows, length_ms=10, modules_ms=8.75)
    for number in range(steps):
        own = {"seq": 600 + number, "call": 500, "parent": 501, "step": number, "duration_ns": 0}
        rows["steps"].append({**rows["steps"][0], **own, "start_ns": 400 * MILLISECOND})
    assert judge(rows).loc["5 explained time", "verdict"] == verdict


def test_what_the_recorder_did_inside_a_child_explains_nothing(rows):
    call = rows["calls"][1]
    call["duration_ns"] += 5 * MILLISECOND  # a hole at the end
    call["recorder_ns"] = 5 * MILLISECOND
    assert not broken(judge(rows))  # the hole was the recorder
    rows["steps"][0]["recorder_ns"] = 5 * MILLISECOND
    assert set(broken(judge(rows))) == {"5 explained time"}  # it was not: that time lay elsewhere


def test_the_recorders_work_inside_its_own_work_is_counted_once(rows):
    call = rows["calls"][1]
    end = call["start_ns"] + call["duration_ns"]
    own = {"call": call["seq"], "stage": "recorder", "start_ns": end}
    spans = [
        {"seq": 700, "parent": call["seq"], "name": "facts", "duration_ns": 6 * MILLISECOND},
        {"seq": 701, "parent": 700, "name": "memory sample", "duration_ns": 5 * MILLISECOND},
    ]
    rows["spans"] += [{**rows["spans"][0], **own, **span} for span in spans]
    call["duration_ns"] += 6 * MILLISECOND
    call["recorder_ns"] = 6 * MILLISECOND
    assert not broken(judge(rows))


def test_derived_gaps_are_reported_apart(rows):
    found = judge(rows).loc["5 explained time", "found"]
    assert "derived, not measured: 4.000 ms" in found


@pytest.mark.parametrize(
    "change", [{"beams": 3}, {"mode": "beam_search (_beam_search)"}, {"mode": "beam_sample"}]
)
def test_beams_are_not_judged_by_rows(rows, change):
    rows["calls"][1] |= change
    rows["tokens"].pop()
    rows["choices"].pop()
    answer = judge(rows)
    assert not broken(answer)
    checks = {"6 tokens = choices", "6 ids = choices", "6 last token not cached"}
    assert not_applicable(answer) == checks


def test_an_undone_step_is_not_held_against_the_cache(rows):
    last = step(rows, 3)
    undone = {**last, "seq": 901, "step": 4, "undone": True}
    undone |= {"cache_tokens_before": last["cache_tokens_after"], "cache_tokens_after": 99}
    rows["steps"].append(undone)
    assert not broken(judge(rows))


def assist(rows):
    """One forward judges two drafts: one stands, and a token of the model's own takes the other's
    place; what had been cached of that one is cut off again."""
    rows["calls"][1]["mode"] = "assisted, greedy (_assisted_decoding)"
    rows["choices"][2] |= {"step": 1, "offset": 1}
    verify = step(rows, 1)
    verify |= {"kind": "verify", "input_tokens": 3, "drafted_tokens": 2}
    verify |= {"cache_tokens_after": PROMPT + 2}
    verify["last_position"] += 2
    del rows["steps"][2]
    verify["duration_ns"] *= 2


def test_assisted_decoding_counts_every_accepted_token(rows):
    assist(rows)
    answer = judge(rows)
    assert not broken(answer)
    assert answer.loc["6 tokens = choices", "verdict"] == "holds"
    assert not_applicable(answer) == set()
    generated = [row for row in rows["tokens"] if row["origin"] == "generated"]
    rows["tokens"].remove(generated[-1])
    assert set(broken(judge(rows))) == {"6 tokens = choices"}


def test_a_draft_that_did_not_stand_and_stayed_in_the_cache_is_found(rows):
    assist(rows)
    step(rows, 1)["cache_tokens_after"] += 1
    assert set(broken(judge(rows))) == {"6 cache growth", "6 positions"}


def search(rows):
    """Two beams: the sequence returned changes beams once and ends in the last round."""
    rows["calls"][1] |= {"mode": "beam search, greedy (_beam_search)", "beams": 2}
    first, second = rows["choices"][:2]
    first |= {"row": 1, "parent_row": 0}
    second |= {"row": 0, "parent_row": 1}
    rows["choices"][-1] |= {"offset": 1}
    other = {**first, "row": 0, "accepted": False, "sequence": None, "token_id": 3}
    rows["choices"].append(other)
    return first, second, other


def test_a_sequence_of_beam_search_is_followed_back_from_its_end(rows):
    search(rows)
    answer = judge(rows)
    assert not broken(answer)
    held = answer.loc[["6 tokens = choices", "6 ids = choices"], "verdict"]
    assert set(held) == {"holds"}


@pytest.mark.parametrize(
    ("place", "change", "check"),
    [
        (1, {"parent_row": 0}, "6 tokens = choices"),
        (2, {"accepted": True}, "6 tokens = choices"),
        (0, {"token_id": 3}, "6 ids = choices"),
    ],
)
def test_a_way_through_the_beams_that_leads_elsewhere_is_found(rows, place, change, check):
    search(rows)[place].update(change)
    assert set(broken(judge(rows))) == {check}


def test_a_passed_cache_shortens_prefill_and_changes_no_count(rows):
    first = step(rows, 0)
    first |= {"cache_tokens_before": 5, "input_tokens": PROMPT - 5}
    rows["calls"][1]["cache_prefix_tokens"] = 5
    assert not broken(judge(rows))


def test_rows_that_end_early_are_padded_with_the_others(rows):
    shorter = [{**row, "row": 1} for row in rows["choices"][:2]]
    rows["choices"] += shorter
    generated = [row for row in rows["tokens"] if row["origin"] == "generated"]
    rows["tokens"] += [{**row, "row": 1} for row in generated[:2]]
    rows["tokens"] += [{**row, "row": 1, "origin": "pad"} for row in generated[2:]]
    assert not broken(judge(rows))


def test_an_image_that_reached_no_model_is_counted_only(rows):
    rows["images"][0]["replaced_embeddings"] = None
    answer = judge(rows)
    assert not broken(answer)
    assert "1 never reached a model" in answer.loc["7 placeholders = features", "found"]


@pytest.mark.parametrize(("replaced", "is_broken"), [(4, False), (3, True)])
def test_an_image_of_which_no_number_is_expected_is_judged_by_its_embeddings(
    rows, replaced, is_broken
):
    rows["images"][0] |= {"expected_tokens": None, "replaced_embeddings": replaced}
    assert bool(broken(judge(rows))) == is_broken


def test_placeholders_of_a_passed_cache_need_no_image(rows):
    placeholders_without_any_image(rows)
    rows["calls"][1]["cache_prefix_tokens"] = 6
    assert not broken(judge(rows))


def test_long_evidence_is_cut_after_a_hundred(rows):
    rows["placements"] += [{**rows["placements"][-1], "param": f"p{n}"} for n in range(300)]
    evidence = broken(judge(rows))["2 one placement a parameter"]
    assert len(evidence) == 100
    assert "300 without exactly one placement" in str(judge(rows)["found"].tolist())


def test_missing_cells_anywhere_are_no_crash(rows):
    keys = {"seq", "event", "call", "parent", "rank", "start_ns", "thread", "stage", "name"}
    for table in rows.values():
        for row in table:
            for column in set(row) - keys - {"stack", "source"}:
                row[column] = None
    assert judge(rows).index.tolist() == CHECKS


@pytest.fixture
def chinese():
    language("zh")
    yield
    language("en")


@pytest.mark.parametrize("name", FAULTS)
def test_what_was_expected_and_found_is_told_in_the_chosen_language(name, rows, chinese):
    FAULTS[name][1](rows)
    answer = judge(rows)
    for told in (*answer["expected"], *answer["found"]):
        # Names, units and what was recorded stay; of words none is English.
        words = re.sub(r"（[^）]*）|[a-z]+_[a-z]+(=True)?", "", told)
        assert re.search("[\u4e00-\u9fff]", words), told
        assert not re.search(
            r"\b(?!ms|rank|meta|residence|origin|unwritten|max|n|token)[a-z]+\b", words
        )
    assert set(answer["verdict"]) <= {"holds", "broken", "not applicable"}
    assert answer.index.tolist() == CHECKS


@pytest.mark.parametrize(
    "manifest", [{"dropped": ["choices"]}, {"scrubbed": ["text"]}, {"lost": [LOST]}]
)
def test_what_could_not_be_judged_is_told_in_the_chosen_language(manifest, rows, chinese):
    del rows["choices"][1:]
    for told in judge(rows, **manifest)["found"]:
        assert re.search("[\u4e00-\u9fff]", told), told
