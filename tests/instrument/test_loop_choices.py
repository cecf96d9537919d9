"""Choices of a user's own loop over `model(...)`: the ids fed next, and the model's opinion."""

import pandas as pd
import pytest
import torch
from instrument.families import FAMILIES
from instrument.test_cache_reuse import CACHE
from torch._subclasses.fake_tensor import FakeTensorMode

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import LATE_FOUR

pytestmark = pytest.mark.generations

ROWS = [[11, 12, 13, 14], [21, 22, 23, 24]]
NEW = 5
PICKS = {
    "the likeliest": lambda logits: logits.argmax(-1),
    "the second": lambda logits: logits.topk(2).indices[:, 1],
    "drawn": lambda logits: torch.multinomial(logits.softmax(-1), 1)[:, 0],
}


def _built(family):
    torch.manual_seed(0)
    auto, config = FAMILIES[family]()
    return auto.from_config(config).eval()


def _answered(model, pick, rows=ROWS, arrange=None, **given):
    """The ids that a loop fed behind its prompt, and the logits that they were picked from."""
    ids, cache, fed, made = torch.tensor(rows), None, [], []
    with torch.no_grad():
        for turn in range(NEW):
            passed = {} if cache is None else {CACHE: cache}
            output = model(input_ids=ids, use_cache=True, **passed, **given)
            cache, logits = output[CACHE], output.logits[:, -1]
            made.append(logits.clone())
            ids = pick(logits)[:, None]
            if arrange is not None and turn == 1:
                cache.batch_select_indices(torch.tensor(arrange))
                ids = ids[arrange]
            fed.append(ids[:, 0].tolist())
    return fed[:-1], made


def _expected(logits, token_id):
    spread = logits.double().log_softmax(-1)
    entropy = -(spread.exp() * spread).sum().item()
    return spread[token_id].item(), int((logits > logits[token_id]).sum()), entropy


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "mixtral"])
@pytest.mark.parametrize("pick", PICKS)
def test_what_is_fed_next_was_chosen_and_has_the_models_opinion(family, pick):
    model = _built(family)
    torch.manual_seed(3)
    plain, _ = _answered(model, PICKS[pick])
    torch.manual_seed(3)
    with tracer.record(strict=True) as recording:
        fed, made = _answered(model, PICKS[pick])
    assert fed == plain
    trace = recording.trace
    steps = trace["steps"].set_index("step")
    choices = trace["choices"].set_index(["step", "row"])
    assert len(choices) == len(ROWS) * (NEW - 1)  # of the last nobody knows: it was never fed
    for (step, row), choice in choices.iterrows():
        assert choice["call"] == steps.loc[step, "call"]
        assert (choice["token_id"], choice["parent_row"]) == (fed[step][row], row)
        told = choice["raw_logprob"], choice["raw_rank"], choice["raw_entropy"]
        assert told == pytest.approx(_expected(made[step][row], fed[step][row]), abs=1e-4)
        best = trace["candidates"].query("step == @step and row == @row").sort_values("token_rank")
        assert best["token_id"].tolist() == made[step][row].topk(10).indices.tolist()
        shares = made[step][row].double().softmax(-1)[best["token_id"].tolist()]
        assert best["raw_probability"].tolist() == pytest.approx(shares.tolist(), abs=1e-5)
    # There is no distribution that was chosen from.
    unknown = ["probability", "logprob", "entropy", "margin", "score", "accepted", "finish"]
    assert choices[unknown].isna().all(axis=None)
    assert trace["candidates"][["score", "probability"]].isna().all(axis=None)
    assert trace.rows("faults") == 0
    verdicts = trace.audit()
    assert "broken" not in set(verdicts.query("check != '5 explained time'")["verdict"])


@pytest.mark.skipif(release() < LATE_FOUR, reason="earlier, this model's cache is a tuple")
@pytest.mark.parametrize("arrange", [[1, 0], [1], [0, 0, 1]], ids=str)
def test_rows_that_were_arranged_anew_name_the_row_that_they_come_from(arrange):
    model = _built("gpt2")
    with tracer.record(strict=True) as recording:
        fed, made = _answered(model, PICKS["the likeliest"], arrange=arrange)
    choices = recording.trace["choices"].set_index(["step", "row"])
    for row, parent in enumerate(arrange):
        choice = choices.loc[(1, row)]
        assert (choice["parent_row"], choice["token_id"]) == (parent, fed[1][row])
        assert choice["raw_logprob"] == pytest.approx(
            _expected(made[1][parent], fed[1][row])[0], abs=1e-4
        )
    assert (choices.loc[2, "parent_row"] == list(range(len(arrange)))).all()


def test_text_is_told_where_the_tokenizer_was_seen(processor, llama):
    with tracer.record(strict=True) as recording:
        prompt = processor.tokenizer("the red star")["input_ids"]
        fed, _ = _answered(llama, PICKS["the likeliest"], [prompt])
    trace = recording.trace
    said = processor.tokenizer.decode([one for (one,) in fed])
    assert said.startswith("".join(trace["choices"].sort_values("step")["text"]))
    known = trace["candidates"].query("token_id < 615")  # ids beyond the vocabulary have no text
    assert known["text"].notna().all()


def _several(model, cache):
    model(input_ids=torch.tensor([[5, 6]]), **{CACHE: cache})


def _embeddings(model, cache):
    model(inputs_embeds=model.get_input_embeddings()(torch.tensor([[5]])), **{CACHE: cache})


def _cut(model, cache):
    cache.crop(-2)
    model(input_ids=torch.tensor([[5]]), **{CACHE: cache})


UNKNOWN = {"several ids": _several, "no ids": _embeddings, "its cache was changed": _cut}


@pytest.mark.parametrize("why", UNKNOWN)
def test_what_nobody_can_know_to_be_chosen_is_no_choice_and_says_why(why):
    model = _built("llama")
    with torch.no_grad(), tracer.record(strict=True) as recording:
        for _ in range(2):
            UNKNOWN[why](model, model(input_ids=torch.tensor(ROWS[:1]))[CACHE])
    trace = recording.trace
    assert trace.rows("choices") == trace.rows("candidates") == 0
    (fault,) = trace["faults"].itertuples()  # once, however often
    assert fault.target == "choices"
    assert why in fault.reason


@pytest.mark.parametrize(
    "given",
    [
        {"attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])},
        {"labels": torch.tensor(ROWS)},
    ],
    ids=["padded on the right", "scored"],
)
def test_a_forward_whose_last_place_ends_no_row_has_no_opinion_of_a_choice(given):
    model = _built("llama")
    with torch.no_grad(), tracer.record(strict=True) as recording:
        cache = model(input_ids=torch.tensor(ROWS), **given)[CACHE]
        mask = torch.ones(2, 5, dtype=torch.long)
        model(input_ids=torch.tensor([[5], [6]]), attention_mask=mask, **{CACHE: cache})
    assert recording.trace.rows("choices") == 0


def test_a_loop_over_shapes_alone_has_steps_and_no_choices():
    model = _built("llama")
    shapes = FakeTensorMode(allow_non_fake_inputs=True)
    with torch.no_grad(), tracer.record(strict=True) as recording, shapes:
        cache = model(input_ids=torch.ones(1, 4, dtype=torch.long))[CACHE]
        model(input_ids=torch.ones(1, 1, dtype=torch.long), **{CACHE: cache})
    trace = recording.trace
    assert trace["steps"]["cache_tokens_after"].tolist() == [4, 5]
    assert trace.rows("choices") == trace.rows("faults") == 0


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch has no rule for sdpa there
def test_a_forward_under_vmap_that_makes_a_cache_keeps_nothing_to_read():
    model = _built("llama")

    def made(ids):
        return model(input_ids=ids, use_cache=True).logits

    with torch.no_grad():
        plain = torch.func.vmap(made)(torch.tensor(ROWS)[:, None])
        with tracer.record(strict=True) as recording:
            logits = torch.func.vmap(made)(torch.tensor(ROWS)[:, None])
    assert torch.equal(plain, logits)
    assert recording.trace.rows("steps") == 1


def test_logits_wait_for_the_newest_loops_alone():
    model = _built("gpt2")
    ends, loops = [], 20
    with torch.no_grad(), tracer.record(strict=True) as recording:
        for turn in range(loops):
            ends.append(model(input_ids=torch.tensor([[turn, 11]]))[CACHE])
        for cache in reversed(ends):
            model(input_ids=torch.tensor([[7]]), **{CACHE: cache})
    choices = recording.trace["choices"]
    assert 0 < len(choices) < loops
    (fault,) = recording.trace["faults"].itertuples()
    assert "many other loops" in fault.reason
    assert choices["raw_logprob"].notna().all()
    assert pd.unique(choices["token_id"]).tolist() == [7]
