"""Toy models of each family, healthy: same answer, no fault, the audit holds, the counts right."""

import pandas as pd
import pytest
import torch
import transformers as library
from instrument.test_beams_and_drafts import ROWS, _model

import tracer
from tracer.analysis.generation import generate_calls
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = pytest.mark.generations

SMALL = {
    "vocab_size": 48, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
DECODERS = {
    "GPT2LMHeadModel": ("GPT2Config", {
        "vocab_size": 48, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }),
    "LlamaForCausalLM": ("LlamaConfig", SMALL),
    "Qwen2ForCausalLM": ("Qwen2Config", SMALL),
    "MistralForCausalLM": ("MistralConfig", SMALL | {"sliding_window": 6, "head_dim": 8}),
    "MixtralForCausalLM": ("MixtralConfig", SMALL | {
        "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None, "head_dim": 8,
    }),
}  # fmt: skip
NEW = 8


def _built(class_name, config_name, settings):
    torch.manual_seed(0)
    config = getattr(library, config_name)(**settings)
    return getattr(library, class_name)(config).eval()


def _healthy(work, **options):
    plain = work()
    with tracer.record(strict=True, **options) as recording:
        recorded = work()
    assert torch.equal(plain, recorded)
    trace = recording.trace
    assert trace["faults"].to_dict("records") == []
    verdicts = trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    assert broken.to_dict("records") == []
    _assert_explained(work, trace, **options)
    return recorded, trace


def _assert_explained(work, trace, **options):
    """Named children explain the time of every call.

    On a busy machine another process may run in the middle of a gap, so that of several runs one
    is proof: time that is not seen would be missing in each of them.
    """
    found = []
    for _ in range(5):
        row = trace.audit().set_index("check").loc["5 explained time"]
        if row["verdict"] != "broken":
            return
        found.append(row["found"])
        with tracer.record(strict=True, **options) as recording:
            work()
        trace = recording.trace
    pytest.fail("\n".join(found))


def _asked(model, ids, **settings):
    given = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    fixed = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    return model.generate(**(given | fixed | settings))


@pytest.mark.parametrize("family", DECODERS)
def test_a_decoder_is_told_right(family):
    model = _built(family, *DECODERS[family])
    output, trace = _healthy(lambda: _asked(model, ROWS))
    prompt, steps = ROWS.shape[1], trace["steps"].sort_values("step")
    assert steps["input_tokens"].tolist() == [prompt] + [1] * (NEW - 1)
    assert steps["cache_tokens_after"].tolist() == list(range(prompt, prompt + NEW))
    has_angles = family != "GPT2LMHeadModel"
    assert set(steps["rotary_applications"]) == {2 if has_angles else 0}
    assert set(steps["rotary_calls"]) == {1 if has_angles else 0}
    for row, mine in trace["choices"].groupby("row"):
        assert mine.sort_values("step")["token_id"].tolist() == output[row, prompt:].tolist()
    modules = trace["modules"]
    head = modules[modules["path"] == "lm_head"].sort_values("step")["input_shape"].tolist()
    # The last position of the prompt only, of 6, where the family knows how to leave the rest out.
    assert head[0] == f"[2, {1 if model._supports_logits_to_keep() else prompt}, 16]"
    assert len(head) == NEW


@pytest.mark.parametrize("settings", [{}, {"cache_implementation": "static"}], ids=str)
def test_the_three_lengths_of_a_sliding_window(settings):
    model = _built("MistralForCausalLM", *DECODERS["MistralForCausalLM"])
    ids = ROWS[:1, :5]
    _, trace = _healthy(lambda: _asked(model, ids, **settings))
    layers, window = trace["cache_layers"], 6
    assert (layers["tokens_seen"] == 5 + layers["step"]).all()
    a_token = 2 * 1 * 8 * 4  # keys and values, one head of 8, single precision
    assert (layers["size_bytes"] == layers["tensor_tokens"] * a_token).all()
    if release() >= FIVE:
        assert set(layers["capacity_tokens"]) == {window}
        assert set(layers["tensor_tokens"]) == {window if settings else window - 1}
    steps = trace["steps"].sort_values("step")
    assert steps["last_position"].tolist() == list(range(4, 4 + NEW))


@pytest.mark.skipif(release() < FIVE, reason="generation 4 quantises by libraries of others only")
def test_a_quantised_cache_is_told_by_what_it_holds():
    model, kept = _model(0), {}

    def work():
        settings = {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}}
        answer = _asked(model, ROWS[:1], return_dict_in_generate=True, **settings)
        kept["cache"] = answer.cache
        return answer.sequences

    _, trace = _healthy(work)
    layers = trace["cache_layers"].sort_values(["step", "layer"])
    assert (layers["tensor_tokens"] == layers["tokens_seen"]).all()
    assert set(layers["dtype"]) == {"float8_e4m3fn"}
    last = layers[layers["step"] == NEW - 1]
    for row, layer in zip(last.itertuples(), kept["cache"].layers, strict=True):
        parts = [one for pair in (layer._quantized_keys, layer._quantized_values) for one in pair]
        held = sum(one.nbytes for one in parts) + layer.keys.nbytes + layer.values.nbytes
        assert row.size_bytes == held > 0


LINEAR = {
    "MambaForCausalLM": ("MambaConfig", {
        "vocab_size": 48, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }),
    "JambaForCausalLM": ("JambaConfig", SMALL | {
        "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2, "num_experts_per_tok": 1,
        "mamba_d_state": 4, "mamba_dt_rank": 2, "use_mamba_kernels": False,
    }),
}  # fmt: skip


@pytest.mark.skipif(release() >= FIVE, reason="since then such states are layers of any cache")
@pytest.mark.parametrize("way", ["generate", "loop"])
def test_states_in_a_cache_of_the_models_own_take_their_bytes(way):
    model, kept = _built("MambaForCausalLM", *LINEAR["MambaForCausalLM"]), {}

    model.register_forward_hook(lambda module, args, output: kept.update(cache=output.cache_params))

    def work():
        if way == "generate":
            return _asked(model, ROWS)
        with torch.no_grad():
            given = {"cache_params": model(ROWS, use_cache=True).cache_params, "use_cache": True}
            given["cache_position"] = torch.arange(4, 5)  # as many as its convolution looks back
            return model(ROWS[:, :1], **given).logits

    _, trace = _healthy(work)
    steps = trace["steps"].sort_values("seq")
    assert steps["kind"].tolist() == ["prefill"] + ["decode"] * (len(steps) - 1)
    assert steps["cache"].nunique() == 1
    last = trace["cache_layers"].query("step == step.max()").sort_values("layer")
    cache = kept["cache"]
    held = [a.nbytes + b.nbytes for a, b in zip(cache.conv_states, cache.ssm_states, strict=True)]
    assert last["size_bytes"].tolist() == held
    assert set(last["class_name"]) == {"MambaCache"}
    assert last[["tokens_seen", "tensor_tokens", "capacity_tokens"]].isna().all(axis=None)
    assert steps["cache_bytes"].iloc[-1] == sum(held)


@pytest.mark.skipif(release() < FIVE, reason="there such states are in caches of each model's own")
@pytest.mark.parametrize("family", LINEAR)
def test_states_of_linear_attention_take_their_bytes_and_hold_no_tokens(family):
    model, kept = _built(family, *LINEAR[family]), {}

    def work():
        answer = _asked(model, ROWS, return_dict_in_generate=True)
        kept["cache"] = answer.cache
        return answer.sequences

    _, trace = _healthy(work)
    last = trace["cache_layers"].query("step == @NEW - 1").sort_values("layer")
    for row, layer in zip(last.itertuples(), kept["cache"].layers, strict=True):
        assert row.class_name == type(layer).__name__
        states = [getattr(layer, name, {}) for name in ("conv_states", "recurrent_states")]
        held = sum(one.nbytes for every in states for one in every.values() if one is not None)
        keys = getattr(layer, "keys", None)
        held += 0 if keys is None else keys.nbytes + layer.values.nbytes
        assert row.size_bytes == held > 0
        tokens = None if keys is None else keys.shape[-2]
        assert (None if pd.isna(row.tensor_tokens) else row.tensor_tokens) == tokens
        assert (None if pd.isna(row.tokens_seen) else row.tokens_seen) == tokens
    steps = trace["steps"].sort_values("step")
    assert steps["cache_bytes"].iloc[-1] == last["size_bytes"].sum()
    assert steps["cache_tokens_after"].isna().all() == (family == "MambaForCausalLM")


def test_a_cache_that_a_model_never_looks_at_is_told_as_such():
    model = _built("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", DECODERS["GPT2LMHeadModel"][1])
    _, trace = _healthy(lambda: _asked(model, ROWS))
    (call,) = trace["calls"].itertuples()
    is_made = isinstance(call.cache_class, str)  # of the releases that make one for any model
    assert call.cache_why.endswith("never filled by the model") == is_made
    steps = trace["steps"].sort_values("step")
    assert steps["input_tokens"].tolist() == list(range(6, 6 + NEW))
    assert steps[["cache", "cache_tokens_before", "cache_tokens_after"]].isna().all(axis=None)
    assert trace.rows("cache_layers") == 0


class OwnCache(library.DynamicCache):
    """A cache of the user's own."""


def test_a_cache_of_the_users_own_is_told_as_theirs():
    model = _model(0)
    name = "cache" if release() >= FIVE else "past_key_values"
    _, trace = _healthy(lambda: _asked(model, ROWS, **{name: OwnCache()}))
    (call,) = trace["calls"].itertuples()
    assert (call.cache_class, call.cache_why) == ("OwnCache", "passed by the user")
    assert set(trace["steps"]["cache"]) == {call.cache}
    assert trace.rows("cache_layers") == 2 * NEW


ENCODER_DECODERS = {
    "T5ForConditionalGeneration": ("T5Config", {
        "vocab_size": 48, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2,
        "decoder_start_token_id": 0, "eos_token_id": 2, "pad_token_id": 0,
    }),
    "WhisperForConditionalGeneration": ("WhisperConfig", {
        "vocab_size": 64, "d_model": 16, "encoder_layers": 1, "decoder_layers": 2,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16, "num_mel_bins": 8, "max_source_positions": 20,
        "max_target_positions": 32, "decoder_start_token_id": 1, "bos_token_id": 1,
        "eos_token_id": 2, "pad_token_id": 0, "begin_suppress_tokens": None,
        "suppress_tokens": None,
    }),
}  # fmt: skip


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_an_encoder_decoder_is_told_right(family):
    model = _built(family, *ENCODER_DECODERS[family])
    if family.startswith("T5"):
        given, seen = {"input_ids": ROWS[:1]}, 6
    else:
        model.generation_config.no_timestamps_token_id = 60
        given, seen = {"input_features": torch.randn(1, 8, 40)}, 20
    _, trace = _healthy(lambda: model.generate(**given, max_new_tokens=4, do_sample=False))
    layers = trace["cache_layers"]
    own, cross = (layers[layers["part"] == part] for part in ("self", "cross"))
    assert set(cross["tensor_tokens"]) == set(cross["tokens_seen"]) == {seen}
    steps = trace["steps"].set_index("step")
    assert (own["tensor_tokens"].values == steps.loc[own["step"], "cache_tokens_after"]).all()
    assert own["layer"].nunique() == cross["layer"].nunique() == 2
    sizes = layers.groupby("step")["size_bytes"].sum()
    assert sizes.tolist() == steps["cache_bytes"].tolist()
    calls = trace["calls"].query("kind == 'generate'")
    assert calls["cache_class"].tolist() == ["EncoderDecoderCache"]


def test_a_model_that_answers_piece_by_piece_has_one_call_around_the_pieces():
    model = _built("WhisperForConditionalGeneration", *ENCODER_DECODERS[
        "WhisperForConditionalGeneration"
    ])  # fmt: skip
    model.generation_config.no_timestamps_token_id = 60
    torch.manual_seed(1)
    given = {"input_features": torch.randn(1, 8, 90), "attention_mask": torch.ones(1, 90)}
    settings = {"return_timestamps": True, "max_new_tokens": 4, "do_sample": False}

    def work():
        return model.generate(**given, **settings)

    _, trace = _healthy(work)
    calls = trace["calls"].sort_values("seq")
    around, pieces = calls.iloc[0], calls.iloc[1:]
    assert (around["kind"], around["parent"]) == ("own_generate", -1)
    assert set(pieces["kind"]) == {"generate"}
    assert len(pieces) > 1
    assert (pieces["parent"] == around["seq"]).all()
    assert trace["choices"].groupby("call").size().loc[pieces["seq"]].gt(0).all()
    assert generate_calls(trace) == pieces["seq"].tolist()


def test_an_encoder_alone_is_a_forward_without_steps():
    config = SMALL | {"num_attention_heads": 2}
    config.pop("num_key_value_heads")
    model = _built("BertModel", "BertConfig", config)
    with torch.no_grad():
        _, trace = _healthy(lambda: model(ROWS, attention_mask=(ROWS != 0).long())[0])
    assert trace["calls"]["kind"].tolist() == ["forward"]
    assert trace.rows("steps") == trace.rows("choices") == trace.rows("cache_layers") == 0
    assert set(trace["modules"]["stage"]) == {"forward"}
    assert {"", "embeddings", "encoder"} <= set(trace["modules"]["path"])


def _own_loop(model, input_ids, logits_processor, stopping_criteria, generation_config, **kwargs):
    """Greedy decoding without a cache, as a user may write it."""
    done = torch.zeros(len(input_ids), dtype=torch.bool)
    kwargs.pop("cache", None)
    kwargs.pop("past_key_values", None)
    while not done.all():
        inputs = model.prepare_inputs_for_generation(input_ids, use_cache=False)
        logits = model(input_ids=inputs["input_ids"], use_cache=False).logits[:, -1].float()
        chosen = logits_processor(input_ids, logits).argmax(-1, keepdim=True)
        input_ids = torch.cat([input_ids, chosen], 1)
        done |= stopping_criteria(input_ids, None)
    return input_ids


@pytest.mark.skipif(release() < (4, 57), reason="earlier releases take no such function")
def test_a_decoding_loop_of_the_users_own_is_followed():
    model, ids = _model(0), ROWS[:1]
    settings = {"custom_generate": _own_loop, "repetition_penalty": 1.2, "max_new_tokens": 5}

    def work():
        return model.generate(ids, do_sample=False, attention_mask=torch.ones_like(ids), **settings)

    output, trace = _healthy(work)
    (call,) = trace["calls"].itertuples()
    assert call.mode == "custom (custom_generate: _own_loop)"
    choices = trace["choices"].sort_values("step")
    assert choices["token_id"].tolist() == output[0, ids.shape[1] :].tolist()
    assert trace.rows("effects") == len(choices)
    assert "repetition_penalty" in set(trace["settings"]["setting"])


def test_a_pipeline_is_a_call_around_the_generate(processor):
    model = _built("LlamaForCausalLM", "LlamaConfig", SMALL | {"vocab_size": 640})
    pipe = library.pipeline("text-generation", model=model, tokenizer=processor.tokenizer)
    with tracer.record(strict=True) as recording:
        pipe("red circle", max_new_tokens=3)
    trace = recording.trace
    calls = trace["calls"].sort_values("seq").set_index("kind")
    assert calls.loc["pipeline", "parent"] == -1
    inside = trace["spans"].set_index("seq")["parent"].to_dict()
    inside |= dict(zip(calls["seq"], calls["parent"], strict=True))
    above = calls.loc["generate", "parent"]
    while inside.get(above, -1) >= 0:
        above = inside[above]
    assert above == calls.loc["pipeline", "seq"]
    assert trace.rows("faults") == 0
    origin = trace["settings"].query("scope == 'generate'").set_index("setting")["origin"]
    assert origin["max_new_tokens"] == "call"
    if release() >= FIVE:
        assert origin["do_sample"] == origin["temperature"] == "pipeline"
