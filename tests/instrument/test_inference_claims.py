"""What is said of inference in two published walks, by number, and where the truth is shown.

Each claim that is wrong, outdated or true only in part has a test that shows what is so; the table
says which. Those that no test showed yet are at the end. So have the reports that users wrote of
generation, vision and hooks.
"""

import ast
from pathlib import Path

import pytest
import torch
from instrument.test_beams_and_drafts import ROWS, _model
from instrument.toys import ask
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = pytest.mark.generations
FOLDER = Path(__file__).parent
CACHE = "cache" if release() >= FIVE else "past_key_values"

CLAIMS = {
    33: "test_inference_claims: the_template_writes_the_markers_and_the_processor_expands_one",
    46: "test_common_beliefs: the_length_limit_feeds_a_stopping_criterion_and_no_mask",
    60: "test_common_beliefs: positions_turn_queries_and_keys_and_leave_embeddings_alone",
    61: "test_common_beliefs: positions_turn_queries_and_keys_and_leave_embeddings_alone",
    67: "test_inference_claims: no_cache_is_made_anew_at_the_end_of_a_forward",
    99: "test_inference_claims: the_first_parameters_device_is_not_the_models",
    100: "test_common_beliefs: generate_never_tracks_gradients_whatever_is_around_it",
    102: "test_common_beliefs: generate_never_tracks_gradients_whatever_is_around_it",
    111: "test_ways_in: clean_up_that_is_refused_says_so",
    114: "test_common_beliefs: a_cache_that_generate_made_is_gone_when_it_returns",
    115: "test_inference_claims: at_1800_tokens_most_work_still_grows_with_their_number_alone",
    117: "test_cache_reuse: a_conversation_that_drops_its_cache_computes_its_beginning_again",
    118: "test_inference_claims: a_history_that_is_joined_as_text_is_reused_if_its_cache_is_kept",
    120: "test_inference_claims: a_window_and_a_kept_cache_together_answer_wrongly",
    121: "test_cache_reuse: an_answer_that_is_encoded_otherwise_says_where_it_differs",
    126: "test_common_beliefs: beyond_its_positions_a_rotary_model_goes_on",
    127: "test_common_beliefs: the_users_words_are_the_smaller_part_of_a_prompt",
    131: "test_common_beliefs: it_is_the_tokenizer_that_needs_a_pad_token",
    134: "test_reports: two_threads_on_one_model_stay_apart",
}
NOT_OF_A_RUN = {
    101: "since which release of torch there is inference_mode: its own history",
    103: "how much faster that is: a ratio that no two machines share",
    104: "whether operators are fused without it: nothing that a trace could see",
    133: "how much faster another engine is: none is measured here",
}
REPORTS = {
    "G02": "test_reports: padding_on_the_wrong_side_is_seen_from_the_mask_row_by_row",
    "G03": "test_reports: where_the_mask_came_from_and_what_padding_it_shows",
    "G04": "test_reports: a_flag_of_sampling_in_a_greedy_call",
    "G05": "test_reports: the_hidden_limit_is_told_with_the_prompt_that_it_counts_from",
    "G06": "test_reports: a_stop_id_left_out_shows_where_the_model_wanted_to_stop",
    "G07": "test_reports: a_choice_that_is_not_the_best_of_the_raw_scores_names_the_processor",
    "G09": "test_cache_reuse: the_same_cache_passed_again_with_the_old_prompt_is_told",
    "G11": "test_families: the_three_lengths_of_a_sliding_window",
    "G13": "test_reports: only_the_last_position_of_a_prompt_reaches_the_head",
    "V01": "test_input_cases: an_id_taken_out_afterwards_is_missed_at_its_image",
    "V02": "test_input_cases: truncation_through_an_image_says_how_much_of_it_is_lost",
    "V04": "test_input_cases: the_limit_told_is_the_one_that_acted",
    "V05": "test_input_cases: a_rate_that_nobody_told_is_assumed",
    "H01": "test_hook_cases: what_is_given_by_keyword_is_seen",
    "H02": "test_hook_cases: a_model_that_was_compiled_before_says_that_its_modules_are_not_seen",
    "H03": "test_reports: what_the_hooks_told_does_not_change_with_the_tensor_afterwards",
    "H04": "test_hook_cases: fifty_recordings_keep_neither_model_nor_activations_nor_hooks",
    "H05": "test_hook_cases: an_offloaded_model_keeps_accelerates_forward_and_is_told_offloaded",
    "H10": "test_reports: values_of_half_precision_are_told_in_single",
}


def _tests_of(name):
    tree = ast.parse((FOLDER / f"{name}.py").read_text("utf-8"))
    return {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize("name", [*CLAIMS.values(), *REPORTS.values()], ids=[*CLAIMS, *REPORTS])
def test_each_is_shown_where_the_table_says(name):
    file, _, test = name.partition(": ")
    assert any(one.startswith(f"test_{test}") for one in _tests_of(file))


def _deciding(model, ids, **settings):
    ids = torch.tensor([ids])
    return model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False,
        eos_token_id=[], return_dict_in_generate=True, **settings
    )  # fmt: skip


def test_the_template_writes_the_markers_and_the_processor_expands_one(processor):
    """33. Said: the processor adds the markers of turns and pictures."""
    with tracer.record(strict=True) as recording:
        _, inputs = ask(processor)
    trace = recording.trace
    (text,) = trace["prompts"]["text"]
    tokens = trace["tokens"].sort_values("index")
    for marker in ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"):
        assert text.count(marker) == (tokens["vocab"] == marker).sum() > 0
    assert text.count("<|image_pad|>") == 1
    (image,) = trace["images"].itertuples()
    assert (tokens["kind"] == "image").sum() == image.expected_tokens > 1
    assert len(tokens) == inputs["input_ids"].shape[1]


def test_no_cache_is_made_anew_at_the_end_of_a_forward():
    """67. Said: the last thing in a forward is to make the next cache."""
    model, kept = _model(0), []
    with tracer.record(strict=True) as recording, torch.no_grad():
        first = model(ROWS[:1], use_cache=True)
        kept = [first[CACHE]]
        kept.append(model(ROWS[:1, :1], **{CACHE: kept[0]}, use_cache=True)[CACHE])
    assert kept[0] is kept[1]  # what was passed is what is returned, longer by what was fed
    steps = recording.trace["steps"].sort_values("seq")
    assert steps["cache"].nunique() == 1
    grown = steps["cache_tokens_after"] - steps["cache_tokens_before"]
    assert grown.tolist() == steps["input_tokens"].tolist() == [6, 1]


def test_the_first_parameters_device_is_not_the_models(llama_folder, tmp_path):
    """99. Said: `next(model.parameters()).device` is where inputs belong."""
    pytest.importorskip("accelerate")
    plan = {"model.embed_tokens": "disk", "model.layers": "cpu", "model.norm": "cpu"}
    plan |= {"model.rotary_emb": "cpu", "lm_head": "cpu"}
    with tracer.record(strict=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(
            llama_folder, device_map=plan, offload_folder=tmp_path
        )
        model.generate(ROWS[:1], max_new_tokens=1, do_sample=False)
    assert next(model.parameters()).device.type == "meta"
    trace = recording.trace
    placed = trace["placements"].set_index("param")["residence"]
    assert placed["model.embed_tokens.weight"] == "offloaded_disk"
    assert placed["model.norm.weight"] == "resident"
    assert set(trace["inputs"]["device"]) == {"cpu"}
    embedded = trace["modules"].query("path == 'model.embed_tokens'")
    assert set(embedded["device"]) == {"cpu"}


@pytest.mark.skipif(release() < FIVE, reason="a forward on meta fails there")
def test_at_1800_tokens_most_work_still_grows_with_their_number_alone():
    """115. Said: the work of a long prompt grows with the square of its length."""
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True,
    )  # fmt: skip
    config._attn_implementation = "eager"
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    work = {}
    for count in (900, 1800):
        ids = torch.ones(1, count, dtype=torch.long, device="meta")
        positions = torch.arange(count, device="meta")[None]
        mask = torch.ones(1, 1, count, count, dtype=torch.bool, device="meta")
        with FlopCounterMode(display=False) as counted, torch.no_grad():
            model.model(input_ids=ids, attention_mask=mask, position_ids=positions)
        parts = counted.get_flop_counts()["Global"]
        square = sum(flops for kind, flops in parts.items() if "bmm" in str(kind))
        work[count] = square, sum(parts.values()) - square
    assert work[1800][0] == pytest.approx(4 * work[900][0], rel=0.01)
    assert work[1800][1] == 2 * work[900][1]
    assert work[1800][0] < work[1800][1]


def test_a_history_that_is_joined_as_text_is_reused_if_its_cache_is_kept():
    """118. Said: that turns are joined to one text is why nothing can be reused."""
    model = _model(0)
    with tracer.record(strict=True) as recording:
        first = _deciding(model, ROWS[0].tolist())
        joined = [*first.sequences[0].tolist(), 20, 21]
        kept = _deciding(model, joined, **{CACHE: first[CACHE]})
        dropped = _deciding(model, joined)
    calls = recording.trace["calls"].sort_values("seq")
    assert calls["recomputed_tokens"].tolist() == [0, 0, len(joined)]
    assert calls["cache_prefix_tokens"].tolist()[1] == 6 + 5 - 1
    assert torch.equal(kept.sequences, dropped.sequences)


@pytest.mark.parametrize("length", ["longer", "shorter"])
def test_a_window_and_a_kept_cache_together_answer_wrongly(length):
    """120. Said: keep the last turns only, and pass the cache from call to call."""
    model = _model(0)
    with tracer.record(strict=True) as recording:
        first = _deciding(model, ROWS[0].tolist())
        window = first.sequences[0].tolist()[4:] + list(range(20, 30 if length == "longer" else 22))
        held = first[CACHE].get_seq_length()
        try:
            wrong = _deciding(model, window, **{CACHE: first[CACHE]}).sequences
        except IndexError:
            wrong = None
    right = _deciding(model, window).sequences
    assert (wrong is None) == (length == "shorter" and release() < FIVE)
    assert wrong is None or not torch.equal(wrong, right)
    call = recording.trace["calls"].sort_values("seq").iloc[1]
    assert (len(window) > held) == (length == "longer")
    assert call["cache_prefix_tokens"] < held
    assert call["cache_first_difference"] == call["cache_prefix_tokens"] == 0
    assert call["status"] == ("ok" if wrong is not None else "error")
