"""Asking a model, on every release that the lab attaches to: nothing empty, nothing false.

Run on the pinned release by `make test`, on older ones by `make test-generations`.
"""

import json

import pytest
import torch
from instrument.toys import MESSAGES, ask, fingerprint, text_inputs
from transformers import (
    CompileConfig,
    GenerationConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE, LATE_FOUR

pytestmark = pytest.mark.generations

CACHE = "cache" if release() >= FIVE else "past_key_values"
ASKED = ("prompts", "segments", "images", "tokens", "inputs", "settings", "chain", "steps")
ANSWERED = ("choices", "candidates", "effects", "cache_layers", "modules", "calls")


def broken(trace):
    """Checks on the asking of a model that do not hold; time has tests of its own."""
    verdicts = trace.audit()
    mine = verdicts["check"].str[0].isin(["6", "7", "8"]) & (verdicts["verdict"] == "broken")
    return verdicts[mine].to_dict("records")


def steps_of(trace):
    return trace["steps"].sort_values("seq")


def record_twice(work, **options):
    """The work without and with a recording; the answers are the same."""
    plain = work()
    with tracer.record(strict=True, **options) as recording:
        recorded = work()
    assert torch.equal(plain, recorded)
    return recording.trace


@pytest.fixture(scope="session")
def asked(processor, seeing):
    with tracer.record(strict=True) as recording:
        text, inputs = ask(processor)
        seeing.generate(**inputs, max_new_tokens=3)
    assert recording.trace["prompts"]["text"].tolist() == [text]
    return recording.trace


@pytest.mark.parametrize("table", [*ASKED, *ANSWERED])
def test_a_question_about_a_picture_leaves_no_table_of_the_asking_empty(asked, table):
    assert asked.rows(table) > 0


def test_the_audit_of_the_asking_holds_and_nothing_is_left_out(asked):
    assert broken(asked) == []
    assert asked["faults"].to_dict("records") == []


def test_who_wrote_each_token_is_known(asked):
    tokens = asked["tokens"].sort_values("index")
    assert "unknown" not in set(tokens["origin"])
    assert "".join(tokens[tokens["origin"] == "user"]["text"]) == MESSAGES[1]["content"][1]["text"]
    assert tokens[["position_t", "position_h", "position_w"]].iloc[0].tolist() == [0, 0, 0]
    origin = asked["prompts"]["template_origin"].tolist()
    assert origin == ["chat_template.json"]


def test_the_picture_is_followed_and_its_limits_are_told(asked):
    (image,) = asked["images"].itertuples()
    assert image.expected_tokens == image.found_tokens == image.replaced_embeddings > 0
    assert "processor: min_pixels=" in image.limit


def test_positions_come_with_the_offset_of_the_picture(asked):
    steps = steps_of(asked)
    assert steps["position_offset"].nunique() == 1
    assert steps["position_offset"].iloc[0] < 0
    assert steps["rope_index_calls"].tolist()[1:] == [0] * (len(steps) - 1)


def test_a_setting_of_the_library_is_not_credited_to_the_file(llama_folder):
    with tracer.record(strict=True) as recording:
        model = LlamaForCausalLM.from_pretrained(llama_folder)
        model.generate(**text_inputs(), max_new_tokens=1)
    settings = recording.trace["settings"].query("scope == 'generate'").set_index("setting")
    assert settings.loc["eos_token_id", "origin"] == "generation_config.json"
    told = settings.loc[["min_length", "typical_p", "length_penalty"], "origin"]
    assert set(told) == {"library"}


def test_a_config_object_is_credited_with_what_it_was_given(llama):
    given = GenerationConfig(max_new_tokens=2, do_sample=True, pad_token_id=0, top_k=7)
    with tracer.record(strict=True) as recording:
        llama.generate(**text_inputs(), generation_config=given)
    origin = recording.trace["settings"].query("scope == 'generate'").set_index("setting")["origin"]
    assert origin["top_k"] == origin["max_new_tokens"] == "config object"
    assert origin["length_penalty"] == "library"


def test_a_processor_that_writes_into_the_users_list_is_still_given_the_prompt(processor):
    with tracer.record(strict=True) as recording:
        text = [processor.apply_chat_template(MESSAGES, tokenize=False)]
        processor(text=text, images=[MESSAGES[1]["content"][0]["image"]], return_tensors="pt")
    assert "unknown" not in set(recording.trace["tokens"]["origin"])


@pytest.mark.parametrize("rows", [1, 2])
def test_a_tokenizers_template_that_tokenizes_tells_prompt_and_authors(processor, rows):
    turn = [{"role": "user", "content": "hello"}]
    with tracer.record(strict=True) as recording:
        given = turn if rows == 1 else [turn] * rows
        processor.tokenizer.apply_chat_template(given, tokenize=True)
    trace = recording.trace
    assert trace.rows("prompts") == rows
    said = trace["tokens"].query("origin == 'user'").groupby("row")["text"].agg("".join)
    assert said.tolist() == ["hello"] * rows
    assert trace["prompts"]["text"].tolist() == [
        "".join(part["text"]) for _, part in trace["segments"].groupby("row")
    ]


def test_a_template_that_fails_fails_as_without_a_recording(processor):
    def fail():
        processor.tokenizer.apply_chat_template([{"role": "user"}], chat_template="{{ 1 / 0 }}")

    with pytest.raises(ZeroDivisionError), tracer.record(strict=True):
        fail()


def _mistral():
    config = MistralConfig(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=2, head_dim=8,
        num_attention_heads=2, num_key_value_heads=1, sliding_window=4, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    return MistralForCausalLM(config).eval()


CACHES = {
    "dynamic": {},
    "static": {"cache_implementation": "static"},
    "none": {"use_cache": False},
}


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("settings", CACHES.values(), ids=CACHES)
def test_a_padded_batch_is_told_whole_with_any_cache(request, family, settings):
    if family == "gpt2" and "cache_implementation" in settings and release() < LATE_FOUR:
        pytest.skip("its cache is a tuple there, which has no other form")
    model = request.getfixturevalue(family)
    inputs = {name: tensor.flip(0) for name, tensor in text_inputs(rows=2).items()}

    def answer():
        return model.generate(**inputs, max_new_tokens=4, do_sample=False, **settings)

    trace = record_twice(answer)
    assert broken(trace) == []
    assert trace["faults"].to_dict("records") == []
    steps, prompt = steps_of(trace), inputs["input_ids"].shape[1]
    assert steps["kind"].tolist() == ["prefill"] + ["decode"] * 3
    if "use_cache" in settings:
        assert trace.rows("cache_layers") == 0
        return
    assert steps["cache_tokens_before"].tolist() == [0, *range(prompt, prompt + 3)]
    assert steps["cache_tokens_after"].tolist() == list(range(prompt, prompt + 4))
    layers = trace["cache_layers"]
    assert (layers["tokens_seen"] == prompt + layers["step"]).all()
    assert layers.groupby("step")["size_bytes"].sum().tolist() == steps["cache_bytes"].tolist()
    has_capacity = "cache_implementation" in settings
    assert layers["capacity_tokens"].notna().all() == has_capacity
    assert steps["cache"].nunique() == 1


@pytest.mark.parametrize("settings", [{}, {"cache_implementation": "static"}], ids=str)
def test_a_sliding_window_keeps_what_was_seen_and_what_is_held_apart(settings):
    model = _mistral()
    ids = torch.arange(5, 11)[None]

    def answer():
        return model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=3, do_sample=False,
            eos_token_id=None, **settings,
        )  # fmt: skip

    trace = record_twice(answer)
    assert broken(trace) == []
    layers = trace["cache_layers"]
    assert (layers["tokens_seen"] == ids.shape[1] + layers["step"]).all()
    assert layers["size_bytes"].gt(0).all()


def test_an_encoder_decoder_tells_both_caches():
    config = T5Config(vocab_size=64, d_model=16, d_kv=4, d_ff=16, num_layers=2, num_heads=2,
                      decoder_start_token_id=0, eos_token_id=1, pad_token_id=0)  # fmt: skip
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(config).eval()
    ids = torch.tensor([[5, 6, 7, 1]])
    trace = record_twice(
        lambda: model.generate(input_ids=ids, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    )
    layers = trace["cache_layers"]
    assert layers.groupby("part")["tokens_seen"].max().to_dict() == {"cross": 4, "self": 3}
    assert broken(trace) == []


def test_rounds_of_assisted_decoding_are_counted_once(llama, gpt2):
    trace = record_twice(
        lambda: llama.generate(
            **text_inputs(), max_new_tokens=6, do_sample=False, assistant_model=gpt2
        )
    )
    calls, steps = trace["calls"], steps_of(trace)
    steps = steps[steps["call"].isin(calls.loc[calls["parent"] == -1, "seq"])]
    assert (steps["stop_ns"] <= steps["duration_ns"]).all()
    assert broken(trace) == []


@pytest.mark.skipif(release() >= LATE_FOUR, reason="later these are code of a hub repository")
@pytest.mark.parametrize(
    "settings",
    [
        {"penalty_alpha": 0.6, "top_k": 4},
        {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5},
        {"dola_layers": [0], "repetition_penalty": 1.2},
    ],
    ids=["contrastive", "group beams", "dola"],
)
def test_old_decoding_methods_end_their_set_up(llama, settings):
    trace = record_twice(
        lambda: llama.generate(**text_inputs(), max_new_tokens=3, do_sample=False, **settings)
    )
    (setup,) = trace["spans"].query("name == 'set-up of generate'").itertuples()
    assert setup.start_ns + setup.duration_ns <= steps_of(trace)["start_ns"].min()
    assert trace["calls"]["mode"].notna().all()
    assert broken(trace) == []


def test_a_prompt_fed_in_chunks_is_told_as_chunks(llama_folder):
    llama = LlamaForCausalLM.from_pretrained(llama_folder).eval()
    settings = {"prefill_chunk_size": 2, "compile_config": _compile_config(fullgraph=False)}

    def answer():
        torch._dynamo.reset()
        return llama.generate(**text_inputs(), max_new_tokens=3, do_sample=False, **settings)

    trace = record_twice(answer)
    steps = steps_of(trace)
    assert steps["kind"].iloc[0] == "chunk"
    assert steps["kind"].iloc[-1] == "decode"
    assert broken(trace) == []
    # In generation 4 a chunk runs compiled, or past the model's own call: that is said.
    assert (trace.rows("faults") > 0) == (release() < FIVE)


def _compile_config(on_every_device=False, **options):
    config = CompileConfig(mode=None, backend="eager", **options)
    config._compile_all_devices = on_every_device  # else accelerators only
    return config


@pytest.mark.slow
def test_decoding_that_is_compiled_is_answered_the_same_and_says_what_is_not_seen(llama_folder):
    model = LlamaForCausalLM.from_pretrained(llama_folder).eval()
    settings = {"cache_implementation": "static", "max_new_tokens": 3, "do_sample": False}

    def answer():
        torch._dynamo.reset()
        return model.generate(
            **text_inputs(), **settings, compile_config=_compile_config(True, fullgraph=True)
        )

    trace = record_twice(answer)
    steps, faults = steps_of(trace), trace["faults"]
    assert steps["forward_ns"].notna().all()
    assert trace.rows("choices") == 3
    assert set(trace["modules"]["step"]) == {0}
    assert faults["reason"].str.contains("compiled").all()
    assert len(faults) == 1
    assert trace["calls"]["compiled"].tolist() == [True]
    assert broken(trace) == []


WAYS_TO_COMPILE = {
    "module": lambda model: torch.compile(model, backend="eager", fullgraph=True),
    "function": lambda model: torch.compile(
        lambda **given: model(**given), backend="eager", fullgraph=True
    ),
    "in place": lambda model: model.compile(backend="eager", fullgraph=True) or model,
}


@pytest.mark.parametrize("compiled", WAYS_TO_COMPILE.values(), ids=WAYS_TO_COMPILE)
def test_a_users_compiled_forward_compiles_whole_and_gives_the_same(llama_folder, compiled):
    model = LlamaForCausalLM.from_pretrained(llama_folder).eval()
    expected = model(**text_inputs(), use_cache=False).logits
    torch._dynamo.reset()
    with tracer.record(strict=True) as recording, torch.no_grad():
        model(**text_inputs(), use_cache=False)  # hooked before it is compiled
        logits = compiled(model)(**text_inputs(), use_cache=False).logits
    assert torch.allclose(logits, expected, atol=1e-6)
    assert recording.trace["modules"]["call"].nunique() == 1
    (fault,) = recording.trace["faults"].itertuples()
    # Of a function of the user's nothing is seen but that it was compiled.
    assert (recording.trace.rows("calls") == 1) == (fault.target == "torch.compile")


def _loop(model, ids, count=4, cache=None):
    """A user's own greedy loop."""
    chosen = []
    with torch.no_grad():
        for _ in range(count):
            out = model(input_ids=ids, use_cache=True, **{CACHE: cache})
            cache = out[CACHE]
            ids = out.logits[:, -1:].argmax(-1)
            chosen.append(ids)
    return torch.cat(chosen, 1)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_loop_of_the_users_own_is_told_as_steps(request, family):
    model = request.getfixturevalue(family)
    ids = text_inputs()["input_ids"]
    before = fingerprint(model)
    trace = record_twice(lambda: _loop(model, ids))
    assert fingerprint(model) == before
    steps, prompt = steps_of(trace), ids.shape[1]
    assert steps["kind"].tolist() == ["prefill"] + ["decode"] * 3
    assert steps["step"].tolist() == [0, 1, 2, 3]
    assert steps["input_tokens"].tolist() == [prompt, 1, 1, 1]
    assert steps["cache_tokens_before"].tolist() == [0, *range(prompt, prompt + 3)]
    assert steps["cache_tokens_after"].tolist() == list(range(prompt, prompt + 4))
    assert steps["cache"].nunique() == 1
    assert set(steps["call"]) == set(trace["calls"]["seq"])
    assert steps["cache_bytes"].tolist() == (
        trace["cache_layers"].groupby("step")["size_bytes"].sum().tolist()
    )
    assert (trace.rows("choices"), trace.rows("faults")) == (3, 0)  # the last is never fed
    modules = trace["modules"]
    assert modules[modules["path"] == ""]["parent"].tolist() == steps["seq"].tolist()
    assert modules["step"].notna().all()
    verdicts = trace.audit().set_index("check")["verdict"]
    assert verdicts["6 cache growth"] == "holds"
    assert broken(trace) == []
    if family == "llama":  # whose rotary modules are handed the positions
        assert steps["last_position"].tolist() == list(range(prompt - 1, prompt + 3))
        assert set(steps["position_offset"]) == {0}
        assert verdicts["6 positions"] == "holds"


def test_two_loops_count_apart_and_a_cache_of_generate_goes_on(llama):
    ids = text_inputs()["input_ids"]
    with tracer.record(strict=True) as recording:
        made = llama.generate(
            **text_inputs(), max_new_tokens=2, do_sample=False, return_dict_in_generate=True
        )
        _loop(llama, made.sequences[:, -1:], 2, made[CACHE])
        _loop(llama, ids, 2)
    trace = recording.trace
    loops = steps_of(trace)
    loops = loops[loops["call"].isin(trace["calls"].query("kind == 'forward'")["seq"])]
    assert loops["kind"].tolist() == ["decode", "decode", "prefill", "decode"]
    assert loops["step"].tolist() == [0, 1, 0, 1]
    assert loops["cache_tokens_before"].iloc[0] == ids.shape[1] + 1
    assert loops["cache"].tolist()[:2] == [steps_of(trace)["cache"].iloc[0]] * 2
    assert loops["cache"].nunique() == 2
    assert broken(trace) == []


def test_a_forward_without_a_cache_is_no_step(llama):
    with tracer.record(strict=True) as recording:
        llama(**text_inputs(), use_cache=False)
    assert recording.trace.rows("steps") == 0
    assert recording.trace["calls"]["kind"].tolist() == ["forward"]


def test_a_forward_of_a_loop_that_fails_leaves_its_step(llama):
    with tracer.record(strict=True) as recording, pytest.raises(IndexError):
        llama(input_ids=torch.tensor([[10_000]]), use_cache=True)
    (step,) = recording.trace["steps"].itertuples()
    assert (step.status, step.kind) == ("error", "prefill")


def test_only_the_steps_that_were_asked_for_have_modules_in_a_loop_too(llama):
    with tracer.record(strict=True, steps=(1,)) as recording:
        _loop(llama, text_inputs()["input_ids"], 3)
    assert set(recording.trace["modules"]["step"]) == {1}
    assert recording.trace.rows("steps") == 3


def test_stop_ids_and_masks_are_plain_facts_on_every_release(llama):
    with tracer.record(strict=True) as recording:
        llama.generate(**text_inputs(rows=2), max_new_tokens=2, do_sample=False)
    (call,) = recording.trace["calls"].itertuples()
    assert [one["id"] for one in json.loads(call.stop_ids)] == [2]
    assert (call.mask_origin, call.attended_pads, call.rows) == ("given", 0, 2)
