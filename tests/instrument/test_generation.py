"""generate() told completely: steps, choices, candidates, effects, stops, caches, settings."""

import json

import numpy as np
import pytest
import torch
from instrument.toys import GENERATE_ALL, text_inputs
from transformers.generation.logits_process import LogitsProcessor
from transformers.generation.stopping_criteria import StoppingCriteria

import tracer

TOLERANCE = {"rel": 1e-4, "abs": 1e-5}


def _spread(scores):
    """Log-probabilities and entropy in nats, recomputed from one row of scores."""
    logprob = torch.log_softmax(scores.float(), -1)
    finite = torch.where(torch.isfinite(logprob), logprob, 0.0)
    return logprob, float(-(logprob.exp() * finite).sum())


def _by_step(frame):
    return frame.sort_values(["step", "row"]).reset_index(drop=True)


def test_steps_choices_and_generated_tokens_are_equally_many(demo):
    choices = demo.trace["choices"]
    assert choices["accepted"].all()
    assert _by_step(choices)["token_id"].tolist() == demo.answer_ids
    assert demo.trace.rows("steps") == len(demo.answer_ids) == len(demo.output.scores)


def test_choices_agree_with_the_librarys_own_logits_and_scores(demo):
    for choice in _by_step(demo.trace["choices"]).itertuples():
        raw, final = demo.output.logits[choice.step][0], demo.output.scores[choice.step][0]
        (raw_logprob, raw_entropy), (logprob, entropy) = _spread(raw), _spread(final)
        token = choice.token_id
        assert choice.raw_logprob == pytest.approx(float(raw_logprob[token]), **TOLERANCE)
        assert choice.raw_entropy == pytest.approx(raw_entropy, **TOLERANCE)
        assert choice.raw_rank == int((raw.float() > raw.float()[token]).sum())
        assert choice.logprob == pytest.approx(float(logprob[token]), **TOLERANCE)
        assert choice.probability == pytest.approx(float(logprob[token].exp()), **TOLERANCE)
        assert choice.entropy == pytest.approx(entropy, **TOLERANCE)
        assert choice.score == pytest.approx(float(final[token]), **TOLERANCE)
        best = logprob.exp().topk(2).values
        assert choice.margin == pytest.approx(float(best[0] - best[1]), **TOLERANCE)


def test_candidates_are_the_best_of_each_step_in_order(demo):
    candidates = demo.trace["candidates"]
    assert set(candidates["step"]) == set(range(len(demo.answer_ids)))
    for step, rows in candidates.groupby("step"):
        rows = rows.sort_values("token_rank")
        raw, final = demo.output.logits[step][0].float(), demo.output.scores[step][0].float()
        # What the processors left, ten at most: removed ids have no order among themselves.
        count = min(10, int(torch.isfinite(final).sum()))
        assert rows["token_rank"].tolist() == list(range(count))
        best = final.topk(count).values.tolist()
        assert rows["score"].tolist() == pytest.approx(best, **TOLERANCE)
        ids = torch.tensor(rows["token_id"].tolist())
        assert rows["score"].tolist() == pytest.approx(final[ids].tolist(), **TOLERANCE)
        assert rows["raw_logit"].tolist() == pytest.approx(raw[ids].tolist(), **TOLERANCE)
        for name, scores in (("probability", final), ("raw_probability", raw)):
            expected = torch.softmax(scores, -1)[ids].tolist()
            assert rows[name].tolist() == pytest.approx(expected, **TOLERANCE)


def test_effects_are_processors_times_steps_and_chain_from_raw_to_final(demo):
    chain = demo.trace["chain"]
    processors = chain[chain["kind"] == "processor"].sort_values("index")["class_name"].tolist()
    effects, choices = demo.trace["effects"], _by_step(demo.trace["choices"])
    assert len(effects) == len(processors) * len(demo.answer_ids)
    for step, rows in effects.groupby("step"):
        rows = rows.sort_values("index")
        assert rows["class_name"].tolist() == processors
        choice = choices.iloc[step]
        before = [choice["raw_entropy"], *rows["entropy_after"].tolist()]
        assert rows["entropy_before"].tolist() == pytest.approx(before[:-1], **TOLERANCE)
        assert before[-1] == pytest.approx(choice["entropy"], **TOLERANCE)
        removed = int(torch.isneginf(demo.output.scores[step]).sum())
        assert rows["removed_tokens"].sum() == removed
        moved = demo.output.scores[step][0, choice["token_id"]].float()
        moved -= demo.output.logits[step][0, choice["token_id"]].float()
        assert rows["chosen_delta"].sum() == pytest.approx(float(moved), **TOLERANCE)


def test_the_chain_is_the_librarys_in_its_order(sampled, greedy):
    def names(demo, kind):
        chain = demo.trace["chain"]
        return chain[chain["kind"] == kind].sort_values("index")["class_name"].tolist()

    assert names(sampled, "processor") == [
        "RepetitionPenaltyLogitsProcessor",
        "TemperatureLogitsWarper",
        "TopKLogitsWarper",
        "TopPLogitsWarper",
    ]
    assert names(greedy, "processor") == []
    assert names(sampled, "criterion") == ["MaxLengthCriteria", "EosTokenCriteria"]
    for kind, base in (("processor", LogitsProcessor), ("criterion", StoppingCriteria)):
        known = {heir.__name__ for heir in base.__subclasses__()}
        assert set(names(sampled, kind)) <= known
    chain = sampled.trace["chain"].set_index("class_name")["parameters"]
    assert json.loads(chain["TemperatureLogitsWarper"])["temperature"] == 0.7
    assert json.loads(chain["TopKLogitsWarper"])["top_k"] == 20


def test_stops_tell_every_stop_id_at_every_step(demo):
    stops = demo.trace["stops"]
    ids = demo.model.generation_config.eos_token_id
    assert len(stops) == len(ids) * len(demo.answer_ids)
    for row in stops.itertuples():
        scores = demo.output.scores[row.step][0].float()
        expected = float(torch.softmax(scores, -1)[row.token_id])
        assert row.probability == pytest.approx(expected, **TOLERANCE)
        assert row.token_rank == int((scores > scores[row.token_id]).sum())


def test_logits_are_the_models_own_bytes(demo):
    rows = _by_step(demo.trace["logits"])
    assert len(rows) == len(demo.answer_ids)
    for row in rows.itertuples():
        kept = torch.frombuffer(bytearray(row.values), dtype=getattr(torch, row.dtype))
        assert torch.equal(kept.float(), demo.output.logits[row.step][0].float())


def test_cache_rows_are_layers_times_steps_with_the_real_bytes(demo):
    rows, cache = demo.trace["cache_layers"], demo.output.cache
    assert len(rows) == len(cache.layers) * len(demo.answer_ids)
    prompt = demo.inputs["input_ids"].shape[1]
    for row in rows.itertuples():
        layer = cache.layers[row.layer]
        a_token = layer.keys[:, :, :1].nbytes + layer.values[:, :, :1].nbytes
        assert row.tensor_tokens == row.tokens_seen == prompt + row.step
        assert row.size_bytes == row.tensor_tokens * a_token
        assert row.class_name == type(layer).__name__
    last = rows[rows["step"] == rows["step"].max()]
    real = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert last["size_bytes"].sum() == real
    by_step = rows.groupby("step")["size_bytes"].sum().tolist()
    assert _by_step_bytes(demo.trace["steps"]) == by_step


def _by_step_bytes(steps):
    return steps.sort_values("step")["cache_bytes"].tolist()


def test_steps_tell_what_was_fed_where(demo):
    steps = demo.trace["steps"].sort_values("step")
    prompt, count = demo.inputs["input_ids"].shape[1], len(demo.answer_ids)
    assert steps["kind"].tolist() == ["prefill"] + ["decode"] * (count - 1)
    assert steps["input_tokens"].tolist() == [prompt] + [1] * (count - 1)
    assert steps["cache_tokens_before"].tolist() == [0, *range(prompt, prompt + count - 1)]
    assert steps["cache_tokens_after"].tolist() == list(range(prompt, prompt + count))
    offset = int(demo.model.model.rope_deltas[0])
    assert set(steps["position_offset"]) == {offset}
    assert steps["last_position"].tolist() == [
        n + offset for n in range(prompt - 1, prompt + count - 1)
    ]
    assert not steps["undone"].any()


def test_rotary_work_is_counted(demo):
    steps = demo.trace["steps"].sort_values("step")
    layers = len(demo.output.cache.layers)
    assert set(steps["rotary_calls"]) == {1}
    assert set(steps["rotary_applications"]) == {layers}
    assert steps["rope_index_calls"].tolist()[1:] == [0] * (len(steps) - 1)


def test_a_steps_parts_are_in_it_and_not_more_than_it(demo):
    steps = demo.trace["steps"]
    parts = ["prepare_ns", "forward_ns", "processors_ns", "select_ns", "stop_ns"]
    assert (steps[parts] >= 0).all(axis=None)
    assert (steps[parts].sum(axis=1) <= steps["duration_ns"]).all()


def test_settings_in_force_are_the_librarys(sampled):
    settings = sampled.trace["settings"].query("scope == 'generate'").set_index("setting")
    prompt = sampled.inputs["input_ids"].shape[1]
    config = sampled.model.generation_config.to_dict()
    expected = {name: config[name] for name in ("temperature", "top_k", "top_p", "do_sample")}
    expected |= {"max_new_tokens": 6, "max_length": prompt + 6, "repetition_penalty": 1.05}
    for name, value in expected.items():
        assert json.loads(settings.loc[name, "effective"]) == value
    assert settings.loc["temperature", "origin"] == "generation_config.json"
    assert (settings.loc["max_new_tokens", "origin"], settings.loc["max_new_tokens", "asked"]) == (
        "call", "6",
    )  # fmt: skip
    assert settings.loc["max_length", "origin"] == "derived"


def test_every_setting_is_the_one_that_the_library_prepares(sampled):
    given = GENERATE_ALL | {"max_new_tokens": 6}
    prepared, _ = sampled.model._prepare_generation_config(None, **given)
    expected = prepared.to_dict()
    settings = sampled.trace["settings"].query("scope == 'generate'").set_index("setting")
    told = settings["effective"].map(json.loads).to_dict()
    derived = {"max_length", "min_length", "transformers_version"}
    for name, value in expected.items():
        if name not in derived and value is not None:
            assert told.pop(name) == value, name
    assert set(told) <= derived
    assert set(settings.index[settings["asked"].notna()]) == set(given)


def test_settings_without_effect_say_why(greedy):
    settings = greedy.trace["settings"].query("scope == 'generate'").set_index("setting")
    for name in ("temperature", "top_k", "top_p"):
        assert not settings.loc[name, "used"]
        assert "do_sample" in settings.loc[name, "why"]
    assert json.loads(settings.loc["do_sample", "effective"]) is False
    assert settings.loc["do_sample", "origin"] == "call"


def test_the_call_tells_mode_cache_mask_stops_and_ends(demo):
    calls = demo.trace["calls"]
    (call,) = calls[calls["kind"] == "generate"].itertuples()
    is_sampled = demo.trace.rows("effects") > 0
    assert call.mode == ("sampling (_sample)" if is_sampled else "greedy (_sample)")
    assert (call.rows, call.beams, call.return_sequences) == (1, 1, 1)
    assert (call.cache_class, call.mask_origin) == ("DynamicCache", "given")
    assert call.grad_mode == "no_grad"
    stop_ids = demo.model.generation_config.eos_token_id
    assert [one["id"] for one in json.loads(call.stop_ids)] == stop_ids
    ended = demo.answer_ids[-1] in stop_ids
    assert json.loads(call.finish) == ["eos" if ended else "length"]
    assert isinstance(call.rng_state, str) == is_sampled


def test_the_finish_stands_at_the_last_choice_alone(demo):
    finish = _by_step(demo.trace["choices"])["finish"]
    assert finish.isna().tolist() == [True] * (len(finish) - 1) + [False]


def test_a_recorded_random_state_draws_the_same_answer_again(sampled):
    calls = sampled.trace["calls"]
    state = json.loads(calls[calls["kind"] == "generate"]["rng_state"].iloc[0])["cpu"]
    torch.set_rng_state(torch.from_numpy(np.frombuffer(bytes.fromhex(state), np.uint8).copy()))
    again = sampled.model.generate(**sampled.inputs, max_new_tokens=6)
    assert torch.equal(again, sampled.output.sequences)


def test_values_are_statistics_of_the_real_outputs(llama):
    kept = {}
    handle = llama.model.norm.register_forward_hook(
        lambda module, args, output: kept.update(norm=output.detach())
    )
    with tracer.record(strict=True, values=True) as recording:
        llama(**text_inputs())
    handle.remove()
    (row,) = recording.trace["modules"].query("path == 'model.norm'").itertuples()
    assert row.mean == pytest.approx(float(kept["norm"].mean()), **TOLERANCE)
    assert row.std == pytest.approx(float(kept["norm"].std(correction=0)), **TOLERANCE)
    assert row.abs_max == pytest.approx(float(kept["norm"].abs().max()), **TOLERANCE)
    assert row.nonfinite == 0
