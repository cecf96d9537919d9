"""generate() in its less usual forms: the same answer each time, and what is known told right."""

import copy
import json

import numpy as np
import pytest
import torch
from instrument.toys import ask, generate, text_inputs
from transformers import (
    GenerationConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

import tracer


def _embeddings(model):
    inputs = text_inputs()
    embeddings = model.get_input_embeddings()(inputs.pop("input_ids"))
    return {"inputs_embeds": embeddings, **inputs}


def _answer(model, arguments, settings):
    torch.manual_seed(3)
    return model.generate(*arguments.pop("args", ()), **arguments, **settings)


WAYS = {
    "static cache": (lambda model: text_inputs(), {"cache_implementation": "static"}),
    "embeddings": (_embeddings, {}),
    "ids by position": (lambda model: {"args": [text_inputs()["input_ids"]]}, {}),
    "nothing given": (lambda model: {}, {}),
    "pads without mask": (lambda model: {"inputs": text_inputs(rows=2)["input_ids"]}, {}),
    "guidance": (lambda model: text_inputs(), {"guidance_scale": 1.5}),
    "max_length": (lambda model: text_inputs(), {"max_length": 9, "max_new_tokens": None}),
    "sampled rows": (lambda model: text_inputs(rows=2), {"do_sample": True}),
    "hidden states": (
        lambda model: text_inputs(),
        {"output_hidden_states": True, "return_dict_in_generate": True},
    ),
}


@pytest.mark.parametrize(("arguments", "settings"), WAYS.values(), ids=WAYS)
def test_each_way_gives_the_same_answer_and_a_sound_trace(llama, arguments, settings):
    settings = {"max_new_tokens": 3, "do_sample": False} | settings
    plain = _answer(llama, arguments(llama), settings)
    with tracer.record(strict=True) as recording:
        recorded = _answer(llama, arguments(llama), settings)
    assert type(recorded) is type(plain)
    mine, theirs = (getattr(one, "sequences", one) for one in (recorded, plain))
    assert torch.equal(mine, theirs)
    trace = recording.trace
    assert trace.rows("faults") == 0
    assert trace.rows("steps") == 3
    verdicts = trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    assert broken.to_dict("records") == []


def test_a_static_cache_has_capacity_beyond_what_it_has_seen(llama):
    with tracer.record(strict=True) as recording:
        llama.generate(**text_inputs(), max_new_tokens=3, do_sample=False,
                       cache_implementation="static")  # fmt: skip
    rows = recording.trace["cache_layers"]
    prompt = text_inputs()["input_ids"].shape[1]
    assert (rows["tokens_seen"] == prompt + rows["step"]).all()
    assert (rows["capacity_tokens"] >= prompt + 2).all()
    assert (rows["tensor_tokens"] == rows["capacity_tokens"]).all()
    (call,) = recording.trace["calls"].itertuples()
    assert (call.cache_class, call.cache_why) == ("StaticCache", "cache_implementation='static'")


def _origins(trace):
    settings = trace["settings"].query("scope == 'generate'").set_index("setting")
    return settings["origin"], settings["effective"].map(json.loads, na_action="ignore")


@pytest.mark.parametrize("is_positional", [False, True])
def test_a_setting_out_of_a_config_object_says_so(llama, is_positional):
    config = GenerationConfig(max_new_tokens=2, do_sample=False, pad_token_id=0, top_k=None)
    ids = text_inputs()["input_ids"]
    args, kwargs = ([ids, config], {}) if is_positional else ([ids], {"generation_config": config})
    with tracer.record(strict=True) as recording:
        llama.generate(*args, **kwargs)
    origin, effective = _origins(recording.trace)
    assert (origin["max_new_tokens"], effective["max_new_tokens"]) == ("config object", 2)
    assert origin["pad_token_id"] == "config object"


LISTS = {
    "tensor": torch.tensor, "list": list, "tuple": tuple, "array": np.array
}  # fmt: skip


@pytest.mark.parametrize("form", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("place", ["call", "config object", "model's generation_config"])
def test_a_setting_of_several_ids_is_told_alike_in_whatever_form_it_is_given(llama, form, place):
    ends, own = form([2, 5]), copy.deepcopy(llama.generation_config)
    settings = {"max_new_tokens": 2, "do_sample": False}
    if place == "config object":
        settings["generation_config"] = GenerationConfig(eos_token_id=ends, pad_token_id=0)
    elif place == "call":
        settings["eos_token_id"] = ends
    else:
        llama.generation_config.eos_token_id = ends
    try:
        plain = llama.generate(**text_inputs(), **settings)
        with tracer.record(strict=True) as recording:
            recorded = llama.generate(**text_inputs(), **settings)
    finally:
        llama.generation_config = own
    assert torch.equal(plain, recorded)
    origin, effective = _origins(recording.trace)
    assert (origin["eos_token_id"], effective["eos_token_id"]) == (place, [2, 5])
    (call,) = recording.trace["calls"].itertuples()
    assert json.loads(call.stop_ids) == [{"id": one, "origin": place} for one in (2, 5)]


def test_a_setting_changed_on_the_model_after_its_load_says_so(llama_folder):
    with tracer.record(strict=True) as recording:
        model = LlamaForCausalLM.from_pretrained(llama_folder)
        model.generation_config.repetition_penalty = 1.2
        model.generate(**text_inputs(), max_new_tokens=2, do_sample=False)
    origin, effective = _origins(recording.trace)
    assert (origin["repetition_penalty"], effective["repetition_penalty"]) == (
        "model after load",
        1.2,
    )
    assert origin["eos_token_id"] == "generation_config.json"


def test_an_encoder_decoder_has_a_cache_for_each_attention():
    config = T5Config(vocab_size=64, d_model=16, d_kv=4, d_ff=16, num_layers=2, num_heads=2,
                      decoder_start_token_id=0, eos_token_id=1, pad_token_id=0)  # fmt: skip
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(config).eval()
    inputs = {"input_ids": torch.tensor([[5, 6, 7, 1]]), "max_new_tokens": 3, "min_new_tokens": 3}
    plain = model.generate(**inputs, do_sample=False)
    with tracer.record(strict=True) as recording:
        recorded = model.generate(**inputs, do_sample=False)
    assert torch.equal(recorded, plain)
    rows = recording.trace["cache_layers"]
    assert rows.groupby("part").size().to_dict() == {"self": 6, "cross": 6}
    assert set(rows[rows["part"] == "cross"]["tensor_tokens"]) == {4}
    assert recording.trace.rows("faults") == 0


def test_candidate_tokens_of_an_assistant_are_no_steps_of_the_outer_call(llama, gpt2):
    settings = {"max_new_tokens": 4, "do_sample": False, "assistant_model": gpt2}
    plain = llama.generate(**text_inputs(), **settings)
    with tracer.record(strict=True) as recording:
        recorded = llama.generate(**text_inputs(), **settings)
    assert torch.equal(recorded, plain)
    trace = recording.trace
    outer = trace["calls"].query("parent == -1")["seq"].tolist()
    assert len(outer) == 1
    steps = trace["steps"].query("call == @outer[0]")
    assert set(steps["model"]) == set(trace["calls"].query("parent == -1")["model"])
    assert trace.rows("faults") == 0


def test_the_audit_holds_with_an_assistant(llama, gpt2):
    with tracer.record(strict=True) as recording:
        llama.generate(**text_inputs(), max_new_tokens=6, do_sample=False, assistant_model=gpt2)
    verdicts = recording.trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    assert broken.to_dict("records") == []


def test_a_chunked_prefill_is_told_as_chunks(llama):
    with tracer.record(strict=True) as recording:
        llama.generate(**text_inputs(), max_new_tokens=2, do_sample=False, prefill_chunk_size=2)
    trace = recording.trace
    assert trace["steps"].sort_values("step")["kind"].tolist()[-1] == "decode"
    assert "chunk" in set(trace["steps"]["kind"])
    assert trace["choices"]["accepted"].all()


def _forced(ids):
    """A processor that leaves one id at a time."""

    def force(input_ids, scores):
        only = torch.full_like(scores, -float("inf"))
        only[:, ids[input_ids.shape[1] - force.start]] = 0.0
        return only

    return force


def _answer_of(processor, seeing, answer_ids):
    _, inputs = ask(processor)
    force = _forced(answer_ids)
    force.start = inputs["input_ids"].shape[1]
    with tracer.record(strict=True) as recording:
        _, inputs = ask(processor)
        output = seeing.generate(
            **inputs, max_new_tokens=len(answer_ids), do_sample=False, logits_processor=[force],
            repetition_penalty=1.0, eos_token_id=[]
        )  # fmt: skip
    assert output[0, force.start :].tolist() == answer_ids
    return recording.trace


@pytest.mark.parametrize("text", ["你好", "\U0001f600 ok", "red circle", "é\n\tü"])
def test_a_character_of_several_tokens_stands_on_the_token_that_completes_it(
    processor, seeing, text
):
    ids = processor.tokenizer(text)["input_ids"]
    choices = _answer_of(processor, seeing, ids)["choices"].sort_values("step")
    assert choices["token_id"].tolist() == ids
    assert "".join(choices["text"]) == text == processor.tokenizer.decode(ids)
    assert not choices["text"].str.contains("\ufffd").any()


def test_a_character_cut_off_at_the_end_reads_as_the_tokenizer_reads_it(processor, seeing):
    ids = processor.tokenizer("ok \U0001f600")["input_ids"][:-1]
    choices = _answer_of(processor, seeing, ids)["choices"].sort_values("step")
    assert processor.tokenizer.decode(ids).endswith("\ufffd")
    assert "".join(choices["text"]) == processor.tokenizer.decode(ids)


def test_forced_tokens_leave_their_effect(processor, seeing):
    trace = _answer_of(processor, seeing, processor.tokenizer("red")["input_ids"])
    vocabulary = seeing.config.text_config.vocab_size
    effects = trace["effects"]
    forcing = effects[effects["class_name"] == "function"]
    assert set(forcing["removed_tokens"]) == {vocabulary - 1}
    assert forcing["entropy_after"].tolist() == pytest.approx([0.0] * len(forcing), abs=1e-6)
    assert trace["choices"]["probability"].tolist() == pytest.approx([1.0] * len(forcing))


def test_a_choice_without_an_alternative_has_no_entropy_at_all(llama):
    with tracer.record(strict=True) as recording:
        generate(llama, text_inputs(), do_sample=True, top_k=1)
    choices = recording.trace["choices"]
    assert choices["entropy"].tolist() == [0.0] * 5
    assert choices["probability"].tolist() == [1.0] * 5
    assert (choices["raw_entropy"] > 1).all()
