"""A cache across calls: whose it is, what it was built from, what was computed again."""

import copy

import pandas as pd
import pytest
import torch
from instrument.test_beams_and_drafts import _model

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = pytest.mark.generations

CACHE = "cache" if release() >= FIVE else "past_key_values"
PROMPT = [11, 12, 13, 14, 15, 16]


@pytest.fixture(scope="module")
def model():
    return _model(0)


def _ask(model, ids, new=3, cache=None, **settings):
    ids = torch.tensor([ids] if isinstance(ids[0], int) else ids)
    given = {} if cache is None else {CACHE: cache}
    settings = {"attention_mask": torch.ones_like(ids)} | settings
    return model.generate(
        input_ids=ids, max_new_tokens=new, do_sample=False, eos_token_id=[],
        return_dict_in_generate=True, **settings, **given,
    )  # fmt: skip


def _calls(recording):
    assert recording.trace.rows("faults") == 0
    calls = recording.trace["calls"]
    return calls[calls["kind"] == "generate"].sort_values("seq").reset_index(drop=True)


REUSE = ["cache_prefix_tokens", "cache_first_difference", "recomputed_tokens"]


def _reuse(call):
    return [None if value != value or value is None else int(value) for value in call[REUSE]]


def test_a_conversation_that_keeps_its_cache_computes_nothing_again(model):
    with tracer.record(strict=True) as recording:
        first = _ask(model, PROMPT)
        turn = [*first.sequences[0].tolist(), 20, 21]
        second = _ask(model, turn, cache=first[CACHE])
    calls = _calls(recording)
    assert _reuse(calls.loc[0].fillna(-1).replace(-1, float("nan"))) == [None, None, 0]
    assert calls["cache"].nunique() == 1
    assert calls.loc[1, "cache_why"] == "passed by the user"
    held = len(PROMPT) + 3 - 1
    assert calls.loc[1, "cache_prefix_tokens"] == held
    assert calls.loc[1, ["cache_first_difference", "recomputed_ns"]].isna().all()
    assert calls.loc[1, "recomputed_tokens"] == 0
    fresh = _ask(model, turn)
    assert torch.equal(second.sequences, fresh.sequences)
    steps = recording.trace["steps"].query(f"call == {calls.loc[1, 'seq']}").sort_values("step")
    assert steps["input_tokens"].iloc[0] == len(turn) - held


def test_a_conversation_that_drops_its_cache_computes_its_beginning_again(model):
    with tracer.record(strict=True) as recording:
        first = _ask(model, PROMPT).sequences[0].tolist()
        _ask(model, [*first, 20, 21])
    call = _calls(recording).loc[1]
    assert call["recomputed_tokens"] == len(first) - 1
    assert call[["cache_prefix_tokens", "cache_first_difference"]].isna().all()
    (prefill,) = recording.trace["steps"].query(f"call == {call['seq']} and step == 0").itertuples()
    share = (len(first) - 1) / (len(first) + 2)
    assert call["recomputed_ns"] == pytest.approx(prefill.forward_ns * share, rel=0.01)


def test_an_answer_that_is_encoded_otherwise_says_where_it_differs(model):
    with tracer.record(strict=True) as recording:
        first = _ask(model, PROMPT)
        turn = first.sequences[0].tolist()
        turn[7] = 39 if turn[7] != 39 else 38
        _ask(model, [*turn, 20], cache=first[CACHE])
    call = _calls(recording).loc[1]
    assert (call["cache_prefix_tokens"], call["cache_first_difference"]) == (7, 7)


def test_the_same_cache_passed_again_with_the_old_prompt_is_told(model):
    """Prefilled by hand, used once as it should be, and then again: it has grown meanwhile."""
    with tracer.record(strict=True) as recording, torch.no_grad():
        cache = model(input_ids=torch.tensor([PROMPT[:5]]), use_cache=True)[CACHE]
        prompt = [*PROMPT, 20]
        right = _ask(model, prompt, new=6, cache=cache)
        grown = cache.get_seq_length()
        if release() >= FIVE:
            wrong = _ask(model, prompt, new=6, cache=cache)
        else:
            with pytest.raises(IndexError):
                _ask(model, prompt, new=6, cache=cache)
    assert torch.equal(right.sequences, _ask(model, prompt, new=6).sequences)
    calls = _calls(recording)
    assert calls["cache"].nunique() == 1
    assert [calls.loc[0, name] for name in REUSE[:1]] == [5]
    assert calls.loc[0, ["cache_first_difference"]].isna().all()
    assert grown == len(prompt) + 6 - 1
    assert calls.loc[1, "cache_prefix_tokens"] == len(prompt) < grown
    assert calls.loc[1, "cache_first_difference"] == len(prompt)
    if release() >= FIVE:
        assert not torch.equal(wrong.sequences, right.sequences)


@pytest.mark.skipif(release() < FIVE, reason="generation 4 cuts by other rules")
def test_a_cache_that_the_user_cut_is_known_by_what_is_left(model):
    with tracer.record(strict=True) as recording:
        first = _ask(model, PROMPT)
        first[CACHE].crop(-4)
        turn = [*PROMPT[:4], 30, 31, 32]
        second = _ask(model, turn, cache=first[CACHE])
    call = _calls(recording).loc[1]
    assert call["cache_prefix_tokens"] == 4
    assert torch.equal(second.sequences, _ask(model, turn).sequences)


@pytest.mark.skipif(release() < FIVE, reason="generation 4 has no such way in")
def test_new_tokens_alone_go_on_from_the_whole_cache(model):
    with tracer.record(strict=True) as recording:
        first = _ask(model, PROMPT)
        held = first[CACHE].get_seq_length()
        rest = [int(first.sequences[0, -1]), 20]
        mask = torch.ones(1, held + 2, dtype=torch.long)
        _ask(model, rest, cache=first[CACHE], attention_mask=mask)
    call = _calls(recording).loc[1]
    assert (call["cache_prefix_tokens"], call["recomputed_tokens"]) == (held, 0)


def test_a_copy_for_a_branch_is_a_cache_of_its_own(model):
    with tracer.record(strict=True) as recording:
        first = _ask(model, PROMPT)
        turn = [*first.sequences[0].tolist(), 20]
        branch = copy.deepcopy(first[CACHE])
        _ask(model, turn, cache=branch)
        _ask(model, turn, cache=first[CACHE])
    calls = _calls(recording)
    assert calls["cache"].tolist()[0] == calls["cache"].tolist()[2] != calls["cache"].tolist()[1]


def test_rows_of_a_batch_are_compared_row_by_row(model):
    rows = [PROMPT, [21, 22, 23, 24, 25, 26]]
    with tracer.record(strict=True) as recording:
        first = _ask(model, rows)
        turn = [[*row, 20] for row in first.sequences.tolist()]
        _ask(model, turn, cache=first[CACHE])
        _ask(model, turn)
    calls = _calls(recording)
    assert calls.loc[1, "cache_prefix_tokens"] == 8
    assert calls["recomputed_tokens"].tolist() == [0, 0, 2 * 10]


def test_a_cache_that_was_passed_grows_even_where_caching_is_off(model):
    with tracer.record(strict=True) as recording, torch.no_grad():
        cache = model(input_ids=torch.tensor([PROMPT[:5]]), use_cache=True)[CACHE]
        before = cache.get_seq_length()
        _ask(model, PROMPT, new=1, cache=cache, use_cache=False)
    (call,) = _calls(recording).itertuples()
    steps = recording.trace["steps"].query("call == @call.seq")
    assert call.cache_why == "passed by the user"
    assert (before, cache.get_seq_length()) == (5, 6)
    assert steps[["cache_tokens_before", "cache_tokens_after"]].values.tolist() == [[5, 6]]


def _cut(cache, count):
    cache.crop(-count if release() >= FIVE else cache.get_seq_length() - count)


def _exchanged(cache):
    """Rows put in the other order by hand, past the cache's own methods."""
    places = torch.tensor([1, 0])
    if hasattr(cache, "layers"):
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[places], layer.values[places]
    else:
        cache.key_cache = [keys[places] for keys in cache.key_cache]
        cache.value_cache = [values[places] for values in cache.value_cache]


TWO = [PROMPT, [21, 22, 23, 24, 25, 26]]
MOVES = {
    "in another order": (lambda cache: cache.reorder_cache(torch.tensor([1, 0])), TWO[::-1], 7),
    "taken out": (lambda cache: cache.batch_select_indices(torch.tensor([1])), TWO[1:], 7),
    "by a mask": (
        lambda cache: cache.batch_select_indices(torch.tensor([False, True])),
        TWO[1:],
        7,
    ),
    "repeated": (
        lambda cache: cache.batch_repeat_interleave(2),
        [TWO[0], TWO[0], TWO[1], TWO[1]],
        7,
    ),
    "cut": (lambda cache: _cut(cache, 3), TWO, 4),
    "cut and in another order": (
        lambda cache: (_cut(cache, 3), cache.reorder_cache(torch.tensor([1, 0]))),
        TWO[::-1],
        4,
    ),
    "by hand": (_exchanged, TWO[::-1], None),
}


@pytest.mark.parametrize("way", MOVES)
def test_a_cache_whose_rows_the_user_arranged_is_known_by_what_it_holds(model, way):
    move, rows, known = MOVES[way]
    rows = [list(row) for row in rows]
    with tracer.record(strict=True) as recording, torch.no_grad():
        cache = model(input_ids=torch.tensor(TWO), use_cache=True)[CACHE]
        model(input_ids=torch.tensor([[30], [30]]), **{CACHE: cache}, use_cache=True)
        move(cache)
        turn = [[*row, 30, 20] if known in (7, None) else [*row[:4], 20] for row in rows]
        answer = _ask(model, turn, cache=cache)
    assert torch.equal(answer.sequences, _ask(model, turn).sequences)
    (call,) = _calls(recording).itertuples()
    if known is None:  # nobody saw what was done with it, so nothing is claimed
        assert call.cache_prefix_tokens is pd.NA
    else:
        assert call.cache_prefix_tokens == known
    assert call.cache_first_difference is pd.NA


def test_a_loop_that_takes_rows_out_and_cuts_its_cache_is_told_as_it_was(model):
    with tracer.record(strict=True) as recording, torch.no_grad():
        ids = torch.tensor([*TWO, [31, 32, 33, 34, 35, 36]])
        cache, held = model(input_ids=ids, use_cache=True)[CACHE], []
        for stay in ([0, 2], [1], [0]):
            fed = torch.tensor([[7, 8, 9]] * len(ids))
            held.append(cache.get_seq_length())
            model(input_ids=fed, **{CACHE: cache}, use_cache=True)
            _cut(cache, 2)
            cache.batch_select_indices(torch.tensor(stay))
            ids = ids[stay]
    trace = recording.trace
    assert trace["faults"]["target"].tolist() == ["choices"]  # which of three ids was chosen
    steps = trace["steps"].sort_values("step")
    assert held == [6, 7, 8]
    assert steps["cache_tokens_before"].tolist() == [0, *held]
    assert steps["cache_tokens_after"].tolist() == [6, *(count + 3 for count in held)]
    assert steps["first_position"].tolist() == [0, *held]
    assert steps["cache"].nunique() == 1
    sizes = trace["cache_layers"].groupby("step")["size_bytes"].sum()
    one_row = sizes[0] / 3 / 6
    assert sizes.tolist() == [one_row * 3 * 6, one_row * 3 * 9, one_row * 2 * 10, one_row * 11]
    verdicts = trace.audit()
    assert verdicts[verdicts["verdict"] == "broken"]["check"].isin(["5 explained time"]).all()
