"""What users reported of generation, each as a run whose right value the trace must tell."""

import json
import threading

import pytest
import torch
from instrument.test_beams_and_drafts import ROWS, _model
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

import tracer
from tracer.analysis.candidates import overruled

LEFT = ROWS
RIGHT = torch.tensor([[11, 12, 13, 14, 15, 16], [21, 22, 23, 24, 0, 0]])


@pytest.fixture(scope="module")
def model():
    return _model(0)


def _run(model, ids=ROWS[:1], **settings):
    given = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": 2} | settings
    with tracer.record(strict=True) as recording:
        output = model.generate(ids, **given)
    return output, recording.trace


def _call(trace):
    (call,) = trace["calls"].query("kind == 'generate'").itertuples()
    return call


def _settings(trace):
    return trace["settings"].query("scope == 'generate'").set_index("setting")


@pytest.mark.parametrize(
    ("ids", "mask", "pad", "told"),
    [
        (LEFT, True, 0, ("given", 0)),
        (LEFT, False, 0, ("inferred from pad ids", 0)),
        (LEFT, False, 2, ("all ones", 0)),
        (torch.where(LEFT == 0, 2, LEFT), False, 2, ("all ones", 2)),
        (torch.where(LEFT == 0, 2, LEFT), True, 2, ("given", 2)),
        (torch.tensor([[11, 12, 2], [21, 22, 2]]), False, 2, ("all ones", 0)),
    ],
)
def test_where_the_mask_came_from_and_what_padding_it_shows(model, ids, mask, pad, told):
    given = {"attention_mask": (ids != 0).long()} if mask else {}
    _, trace = _run(model, ids, pad_token_id=pad, **given)
    call = _call(trace)
    assert (call.mask_origin, call.attended_pads) == told


@pytest.mark.parametrize(("ids", "wrong"), [(LEFT, []), (RIGHT, [1])])
def test_padding_on_the_wrong_side_is_seen_from_the_mask_row_by_row(model, ids, wrong):
    output, trace = _run(model, ids, attention_mask=(ids != 0).long(), pad_token_id=0)
    prompt = trace["tokens"].query("origin != 'generated'").sort_values("index")
    ends = prompt.groupby("row")["attended"].last()
    assert [row for row, is_seen in ends.items() if not is_seen] == wrong
    alone = model.generate(ROWS[1:, 2:], max_new_tokens=6, do_sample=False, eos_token_id=2)
    is_same = output[1, 6:].tolist() == alone[0, 4:].tolist()
    assert is_same == (not wrong)


@pytest.mark.parametrize("given", ["by the model", "in the call", "in an object"])
def test_a_flag_of_sampling_in_a_greedy_call_is_told_with_origin_and_without_use(given):
    model = _model(0)
    own = GenerationConfig(temperature=0.7, max_new_tokens=3, do_sample=False, pad_token_id=0)
    settings = {
        "by the model": {},
        "in the call": {"temperature": 0.7},
        "in an object": {"generation_config": own, "max_new_tokens": 3},
    }[given]
    if given == "by the model":
        model.generation_config.temperature = 0.7
    _, trace = _run(model, **settings)
    row = _settings(trace).loc["temperature"]
    assert (row["effective"], row["used"]) == ("0.7", False)
    origins = {"by the model": "model's generation_config", "in the call": "call"}
    assert row["origin"] == origins.get(given, "config object")
    assert "do_sample" in row["why"]


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
@pytest.mark.parametrize("count", [5, 25])
def test_the_hidden_limit_is_told_with_the_prompt_that_it_counts_from(model, count):
    ids = torch.arange(3, 3 + count)[None]
    _, trace = _run(model, ids, max_new_tokens=None, eos_token_id=None)
    assert json.loads(_settings(trace).loc["max_length", "effective"]) == count + 20
    assert trace.rows("choices") == 20
    assert json.loads(_call(trace).finish) == ["length"]


def test_of_two_limits_the_new_tokens_win_and_both_are_told(model):
    _, trace = _run(model, max_length=50, max_new_tokens=4)
    settings = _settings(trace)
    assert json.loads(settings.loc["max_length", "effective"]) == 6 + 4
    assert settings.loc["max_length", "asked"] == "50"
    assert (settings.loc["max_length", "origin"], trace.rows("choices")) == ("derived", 4)


def test_a_stop_id_left_out_shows_where_the_model_wanted_to_stop(model):
    free, _ = _run(model, eos_token_id=[])
    wanted = int(free[0, 8])  # what it emits third
    _, stops = _run(model, eos_token_id=[2, wanted])
    assert json.loads(_call(stops).finish) == ["eos"]
    assert [one["id"] for one in json.loads(_call(stops).stop_ids)] == [2, wanted]
    best = stops["stops"].query("token_id == @wanted and token_rank == 0")["step"].tolist()
    assert best[-1] == stops["choices"]["step"].max()
    _, goes_on = _run(model, eos_token_id=2)
    stop = json.loads(_call(goes_on).stop_ids)
    assert stop == [{"id": 2, "origin": "call"}]
    assert goes_on["choices"].query("token_id == @wanted")["raw_rank"].iloc[0] == 0


def test_a_choice_that_is_not_the_best_of_the_raw_scores_names_the_processor(model):
    free, _ = _run(model, max_new_tokens=1, eos_token_id=[])
    banned = int(free[0, 6])  # what it would begin with
    settings = {"repetition_penalty": 3.0, "suppress_tokens": [banned]}
    output, trace = _run(model, **settings, max_new_tokens=10, eos_token_id=[])
    choices = trace["choices"].set_index("step")
    moved = choices[choices["raw_rank"] > 0]
    assert banned not in set(choices["token_id"])
    chosen = trace["candidates"].query("token_rank == 0").set_index("step")["token_id"]
    assert (choices["token_id"] == chosen).all()
    told = overruled(trace)
    assert told["step"].tolist() == moved.index.tolist()
    responsible = []
    for step in told["step"]:
        before = output[:, : 6 + step]
        with torch.no_grad():
            raw = model(before).logits[0, -1].float()
        seen = before[0].unique()
        after = raw.clone()
        after[seen] = torch.where(raw[seen] < 0, raw[seen] * 3.0, raw[seen] / 3.0)
        is_penalty = int(after.argmax()) == choices.loc[step, "token_id"]
        responsible.append("RepetitionPenalty" if is_penalty else "SuppressTokens")
    assert told["class_name"].str.removesuffix("LogitsProcessor").tolist() == responsible
    assert len(set(responsible)) == 2


def test_only_the_last_position_of_a_prompt_reaches_the_head(model):
    with tracer.record(strict=True) as recording:
        model.generate(ROWS[:1], max_new_tokens=1, do_sample=False)
        model(ROWS[:1])
    head = recording.trace["modules"].query("path == 'lm_head'").sort_values("seq")
    assert head["input_shape"].tolist() == ["[1, 1, 32]", "[1, 6, 32]"]
    steps = recording.trace["steps"].sort_values("seq")
    assert steps[["input_tokens", "logits_tokens"]].values.tolist() == [[6, 1], [6, 6]]


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_what_was_asked_for_and_is_not_computed_says_why(kernel, is_whole):
    model = _model(0)
    model.set_attn_implementation(kernel)
    wanted = {"output_attentions": True, "output_hidden_states": True}
    output, trace = _run(model, return_dict_in_generate=is_whole, max_new_tokens=2, **wanted)
    rows = _settings(trace).loc[list(wanted)]
    weights = is_whole and bool(output.attentions) and bool(output.attentions[0])
    assert rows["used"].tolist() == [weights, is_whole]
    assert rows["why"].isna().tolist() == [weights, is_whole]
    assert weights == (is_whole and kernel == "eager")
    words = kernel if kernel == "sdpa" else "return_dict_in_generate"
    assert weights or words in rows.loc["output_attentions", "why"]


def test_what_the_hooks_told_does_not_change_with_the_tensor_afterwards(model):
    def spoil(module, args, output):
        output.mul_(0)

    kept = {}
    norm = model.model.norm
    first = norm.register_forward_hook(lambda m, a, out: kept.update(norm=out.detach().clone()))
    try:
        with tracer.record(strict=True, values=True) as recording:
            late = norm.register_forward_hook(spoil)
            model(ROWS[:1], use_cache=False)
            late.remove()
            model(ROWS[:1], use_cache=False)
    finally:
        first.remove()
    rows = recording.trace["modules"].query("path == 'model.norm'").sort_values("seq")
    assert rows["std"].iloc[-1] == pytest.approx(float(kept["norm"].std(correction=0)), rel=1e-4)


def test_values_of_half_precision_are_told_in_single(model):
    half = _model(0).to(torch.bfloat16)
    with tracer.record(strict=True, values=True) as recording:
        half.generate(ROWS[:1], max_new_tokens=2, do_sample=False)
    modules = recording.trace["modules"].query("path == 'lm_head'")
    assert set(modules["dtype"]) == {"bfloat16"}
    assert modules[["mean", "std", "abs_max"]].notna().all(axis=None)


def test_without_a_mode_of_its_own_generate_sees_no_grad(model):
    with tracer.record(strict=True) as recording:
        model.generate(ROWS[:1], max_new_tokens=1)
        with torch.no_grad():
            model.generate(ROWS[:1], max_new_tokens=1)
        with torch.inference_mode():
            model.generate(ROWS[:1], max_new_tokens=1)
        model(ROWS[:1])
    calls = recording.trace["calls"].sort_values("seq")
    assert calls["grad_mode"].tolist() == ["no_grad", "no_grad", "inference_mode", "grad"]


def test_a_prompt_beyond_the_models_positions_runs_with_angles_and_fails_without(model):
    ids = torch.arange(3, 23)[None].repeat(1, 3)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    gpt2 = GPT2LMHeadModel(config).eval()
    with tracer.record(strict=True) as recording, pytest.raises(IndexError):
        gpt2.generate(ids, max_new_tokens=2, pad_token_id=0)
    assert recording.trace["calls"]["status"].tolist() == ["error"]
    rotated = _model(0)
    rotated.config.max_position_embeddings = 32
    _, trace = _run(rotated, ids, max_new_tokens=2, eos_token_id=[])
    assert trace["steps"].sort_values("step")["last_position"].tolist() == [59, 60]


def test_two_threads_on_one_model_stay_apart(model):
    prompts = [ROWS[:1], ROWS[1:, 2:]]
    settings = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": []}
    plain = [model.generate(ids, **settings) for ids in prompts]
    start = threading.Barrier(2)

    def ask(ids):
        start.wait()
        model.generate(ids, **settings)

    with tracer.record(strict=True) as recording:
        threads = [
            threading.Thread(target=ask, args=(ids,), name=str(len(ids[0]))) for ids in prompts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = recording.trace
    calls = trace["calls"].set_index("thread")["seq"]
    for ids, output in zip(prompts, plain, strict=True):
        mine = trace["choices"][trace["choices"]["call"] == calls[str(len(ids[0]))]]
        told = mine.sort_values("step")["token_id"].tolist()
        assert told == output[0, ids.shape[1] :].tolist()
    verdicts = trace.audit()
    assert not verdicts[verdicts["check"].str.startswith(("6", "8"))]["verdict"].eq("broken").any()
