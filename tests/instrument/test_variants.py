"""Other ways to use the library: several models, plain forwards, beams, redaction, limits."""

import json
import threading
import warnings

import pytest
import torch
from instrument.toys import generate, text_inputs
from transformers import AutoModelForCausalLM
from transformers.utils import logging

import tracer


def _calls(trace, kind):
    calls = trace["calls"].sort_values("seq")
    return calls[calls["kind"] == kind]


def test_two_models_in_one_recording_stay_apart(llama_folder, gpt2_folder):
    with tracer.record(strict=True) as recording:
        llama = AutoModelForCausalLM.from_pretrained(llama_folder)
        gpt2 = AutoModelForCausalLM.from_pretrained(gpt2_folder)
        generate(gpt2, text_inputs())
        generate(llama, text_inputs())
    trace = recording.trace
    models = trace["models"].set_index("model")["class_name"].to_dict()
    assert models == {"model-1": "LlamaForCausalLM", "model-2": "GPT2LMHeadModel"}
    assert _calls(trace, "generate")["model"].tolist() == ["model-2", "model-1"]
    for name, model in (("model-1", llama), ("model-2", gpt2)):
        placed, modules = (
            frame[frame["model"] == name] for frame in (trace["placements"], trace["modules"])
        )
        parameters = dict(model.named_parameters(remove_duplicate=False))
        assert set(placed["param"]) == parameters.keys() | dict(model.named_buffers()).keys()
        paths = {path for path, _ in model.named_modules()}
        assert set(modules["path"]) <= paths
    assert trace.rows("faults") == 0


def test_two_generates_on_one_model_are_two_calls_with_their_own_rows(llama):
    with tracer.record(strict=True) as recording:
        generate(llama, text_inputs(), max_new_tokens=3)
        generate(llama, text_inputs(), max_new_tokens=2)
    trace, calls = recording.trace, _calls(recording.trace, "generate")
    assert calls["model"].tolist() == ["model-1", "model-1"]
    assert calls["cache"].nunique() == 2
    for table in ("steps", "choices"):
        counts = trace[table].groupby("call").size()
        assert counts.loc[calls["seq"]].tolist() == [3, 2]
    prompt = text_inputs()["input_ids"].shape[1]
    assert trace["tokens"].groupby("call").size().loc[calls["seq"]].tolist() == [
        prompt + 3,
        prompt + 2,
    ]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_model_made_before_the_recording_is_met(request, family):
    model = request.getfixturevalue(family)
    with tracer.record(strict=True) as recording:
        output = generate(model, text_inputs(), do_sample=False)
    trace = recording.trace
    assert trace.rows("tensor_loads") == 0
    assert trace.rows("steps") == len(output.logits) == trace.rows("choices")
    assert "" in set(trace["modules"]["path"])
    verdicts = trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    assert broken.to_dict("records") == []
    assert json.loads(_calls(trace, "generate")["finish"].iloc[0]) in (["length"], ["eos"])


def test_without_a_tokenizer_text_is_missing_and_never_guessed(llama):
    with tracer.record(strict=True) as recording:
        generate(llama, text_inputs())
    for table in ("tokens", "choices", "candidates"):
        assert recording.trace[table]["text"].isna().all()
    assert recording.trace["tokens"]["token_id"].notna().all()


def test_rows_of_a_padded_batch_are_told_apart(llama):
    inputs = text_inputs(rows=2)
    with tracer.record(strict=True) as recording:
        output = generate(llama, inputs, do_sample=False)
    trace = recording.trace
    for row in (0, 1):
        tokens = trace["tokens"].query("row == @row").sort_values("index")
        assert tokens["token_id"].tolist() == output.sequences[row].tolist()
        attended = inputs["attention_mask"][row].bool().tolist()
        assert tokens["attended"].tolist()[: len(attended)] == attended
        choices = trace["choices"].query("row == @row").sort_values("step")
        assert choices["token_id"].tolist() == output.sequences[row, len(attended) :].tolist()
    assert _calls(trace, "generate")["rows"].tolist() == [2]
    assert _calls(trace, "generate")["attended_pads"].tolist() == [0]


def test_a_row_that_ends_early_has_no_choice_after_its_end(llama):
    inputs = text_inputs(rows=2)
    plain = llama.generate(**inputs, max_new_tokens=6, do_sample=False)
    first_end = int(plain[0, inputs["input_ids"].shape[1] + 1])  # row 0 ends with its second token
    with tracer.record(strict=True) as recording:
        output = generate(llama, inputs, max_new_tokens=6, do_sample=False, eos_token_id=first_end)
    trace = recording.trace
    ends = {}
    for row in (0, 1):
        answer = output.sequences[row, inputs["input_ids"].shape[1] :].tolist()
        expected = answer[: answer.index(first_end) + 1] if first_end in answer else answer
        choices = trace["choices"].query("row == @row").sort_values("step")
        assert choices["token_id"].tolist() == expected
        assert choices["accepted"].all()
        ends[row] = choices["finish"].iloc[-1]
    assert ends[0] == "eos"
    verdicts = trace.audit()
    assert not verdicts[verdicts["check"].str.startswith("6")]["verdict"].eq("broken").any()


def test_a_forward_of_the_user_is_a_call_with_its_modules(llama):
    with tracer.record(strict=True, detail="modules") as recording, torch.no_grad():
        llama(**text_inputs())
    trace = recording.trace
    (call,) = trace["calls"].itertuples()
    assert (call.kind, call.stage, call.name) == ("forward", "forward", "LlamaForCausalLM.forward")
    assert call.grad_mode == "no_grad"
    modules = trace["modules"]
    assert set(modules["call"]) == {call.seq}
    # It fills a cache, so it is the first step of what may become a loop of the user's own.
    (step,) = trace["steps"].itertuples()
    assert (step.parent, step.kind, step.step) == (call.seq, "prefill", 0)
    assert set(modules["stage"]) == {"prefill"}
    assert modules[modules["path"] == ""]["parent"].tolist() == [step.seq]
    assert set(modules["step"]) == {0}


def test_a_forward_without_a_cache_is_no_step(llama):
    with tracer.record(strict=True) as recording, torch.no_grad():
        llama(**text_inputs(), use_cache=False)
    trace = recording.trace
    (call,) = trace["calls"].itertuples()
    assert trace.rows("steps") == 0
    modules = trace["modules"]
    assert set(modules["stage"]) == {"forward"}
    assert modules[modules["path"] == ""]["parent"].tolist() == [call.seq]
    assert modules["step"].isna().all()


def test_detail_modules_has_one_row_for_each_module_call(llama):
    seen = []
    handles = [
        module.register_forward_hook(lambda module, args, output, path=path: seen.append(path))
        for path, module in llama.named_modules()
    ]
    try:
        with tracer.record(strict=True, detail="modules") as recording:
            generate(llama, text_inputs(), max_new_tokens=3)
    finally:
        for handle in handles:
            handle.remove()
    assert sorted(recording.trace["modules"]["path"]) == sorted(seen)


def test_detail_stages_hooks_no_module_and_tells_no_effect(llama):
    with tracer.record(strict=True, detail="stages") as recording:
        generate(llama, text_inputs(), do_sample=True)
    trace = recording.trace
    assert trace.rows("modules") == trace.rows("effects") == 0
    assert trace.rows("choices") == trace.rows("steps") == 5
    assert trace["steps"]["rotary_calls"].isna().all()


def test_layers_and_steps_select(llama):
    with tracer.record(strict=True, layers=[1], steps=[0, 2]) as recording:
        generate(llama, text_inputs(), max_new_tokens=4)
    modules = recording.trace["modules"]
    assert set(modules["step"]) == {0, 2}
    paths = set(modules["path"])
    assert "model.layers.1" in paths
    assert not any(path.startswith("model.layers.0") for path in paths)
    assert {"", "model", "lm_head"} <= paths
    assert recording.trace.rows("steps") == 4


def test_several_sampled_sequences_of_one_prompt_are_rows(llama):
    with tracer.record(strict=True) as recording:
        output = generate(llama, text_inputs(), do_sample=True, num_return_sequences=3)
    choices = recording.trace["choices"]
    for row in range(3):
        mine = choices.query("row == @row").sort_values("step")["token_id"].tolist()
        answer = output.sequences[row, text_inputs()["input_ids"].shape[1] :].tolist()
        assert mine == answer[: len(mine)]
    assert _calls(recording.trace, "generate")["rows"].tolist() == [1]
    assert _calls(recording.trace, "generate")["return_sequences"].tolist() == [3]


def test_a_cache_passed_on_is_the_same_cache(llama):
    with tracer.record(strict=True) as recording:
        first = generate(llama, text_inputs(), do_sample=False, max_new_tokens=2)
        ids = first.sequences
        again = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        generate(llama, again, do_sample=False, max_new_tokens=2, cache=first.cache)
    calls = _calls(recording.trace, "generate")
    assert calls["cache"].nunique() == 1
    assert calls["cache_why"].tolist()[1] == "passed by the user"
    steps = recording.trace["steps"].query("call == @calls.seq.iloc[1]").sort_values("step")
    assert steps["cache_tokens_before"].iloc[0] == ids.shape[1] - 1
    assert steps["input_tokens"].iloc[0] == 1


def test_without_a_cache_there_are_no_cache_rows(gpt2):
    with tracer.record(strict=True) as recording:
        generate(gpt2, text_inputs(), do_sample=False, use_cache=False)
    assert recording.trace.rows("cache_layers") == 0
    assert _calls(recording.trace, "generate")["cache_why"].tolist() == ["use_cache=False"]
    assert recording.trace.rows("choices") == 5


def test_a_generate_in_a_thread_of_its_own_is_recorded(llama):
    with tracer.record(strict=True) as recording:
        thread = threading.Thread(target=generate, args=(llama, text_inputs()), name="asker")
        thread.start()
        thread.join()
    calls = _calls(recording.trace, "generate")
    assert calls["thread"].tolist() == ["asker"]
    assert recording.trace.rows("steps") == 5
    assert set(recording.trace["modules"]["thread"]) == {"asker"}


def test_a_forward_inside_a_processor_is_no_step_of_the_outer_call(llama, gpt2):
    def look(ids, scores):
        with torch.no_grad():
            gpt2(input_ids=ids)
        return scores

    with tracer.record(strict=True) as recording:
        generate(llama, text_inputs(), logits_processor=[look], max_new_tokens=3)
    steps = recording.trace["steps"]
    assert len(steps) == 3
    assert steps["model"].nunique() == 1


def _warn_and_log():
    warnings.warn("a word of warning", UserWarning, stacklevel=1)
    logging.get_logger("transformers.models.llama").warning("a line in the log")


def test_warnings_and_log_lines_are_messages():
    with pytest.warns(UserWarning, match="word"), tracer.record(strict=True) as recording:
        _warn_and_log()
    messages = recording.trace["messages"]
    assert messages["text"].tolist() == ["UserWarning: a word of warning", "a line in the log"]
    assert messages["level"].tolist() == ["warning", "warning"]
