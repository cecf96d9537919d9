"""Loops whose rows change places, are taken out, come in or are taken back: what each became."""

import json

import pytest
import torch
from instrument.test_beams_and_drafts import _model
from instrument.toys import recorded_alike

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE, LATE_FOUR

pytestmark = [
    pytest.mark.generations,
    pytest.mark.skipif(release() < LATE_FOUR, reason="earlier releases take no such function"),
]
PROMPTS = torch.tensor(
    [[31, 32, 33, 34, 35, 36], [11, 12, 13, 14, 15, 16], [21, 22, 23, 24, 25, 26]]
)
STOPS = [2, 5, 7, 30]
CACHE = "cache" if release() >= FIVE else "past_key_values"


def _scores(model, ids, processors, **given):
    return processors(ids, model(input_ids=ids, use_cache=False, **given).logits[:, -1].float())


def _padded(rows):
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])


def _taking_out(model, input_ids, logits_processor, stopping_criteria, generation_config, **rest):
    """A row that has ended leaves ids and cache."""
    rows, whole, ids, fed, cache = (
        list(range(len(input_ids))),
        input_ids.tolist(),
        *[input_ids] * 2,
        None,
    )
    while rows:
        output = model(input_ids=fed, **{CACHE: cache}, use_cache=True)
        cache = output[CACHE]
        chosen = logits_processor(ids, output.logits[:, -1].float()).argmax(-1)
        for row, token in zip(rows, chosen.tolist(), strict=True):
            whole[row].append(token)
        ids = torch.cat([ids, chosen[:, None]], 1)
        stay = (~stopping_criteria(ids, None)).nonzero().flatten()
        rows, ids = [rows[place] for place in stay], ids[stay]
        fed = ids[:, -1:]
        cache.batch_select_indices(stay)
    return _padded(whole)


def _swapping(model, input_ids, logits_processor, stopping_criteria, generation_config, **rest):
    """All rows move up by one in each round; one that has ended is filled."""
    order, ids, done = torch.arange(len(input_ids)), input_ids, torch.zeros(len(input_ids)).bool()
    while not done.all():
        order, ids, done = order.roll(-1), ids.roll(-1, 0), done.roll(-1)
        chosen = _scores(model, ids, logits_processor).argmax(-1)
        ids = torch.cat([ids, torch.where(done, 0, chosen)[:, None]], 1)
        done = done | stopping_criteria(ids, None)
    return ids[order.argsort()]


def _forking(model, input_ids, logits_processor, stopping_criteria, generation_config, **rest):
    """After two tokens each row goes on twice."""
    ids, done = input_ids, torch.zeros(len(input_ids)).bool()
    while not done.all():
        count = 2 if ids.shape[1] == input_ids.shape[1] + 2 else 1
        chosen = _scores(model, ids, logits_processor).topk(count).indices.flatten()
        ids, done = (one.repeat_interleave(count, 0) for one in (ids, done))
        ids = torch.cat([ids, torch.where(done, 0, chosen)[:, None]], 1)
        done = done | stopping_criteria(ids, None)
    return ids


def _taking_back(model, input_ids, logits_processor, stopping_criteria, generation_config, **rest):
    """Two ids are shown to the test, the second a guess that is taken back where it is wrong."""
    ids, done = input_ids, False
    while not done:
        chosen = _scores(model, ids, logits_processor).argmax(-1, keepdim=True)
        trial = torch.cat([ids, chosen, (chosen + 1) % 40], 1)
        stopping_criteria(trial, None)
        right = _scores(model, trial[:, :-1], logits_processor).argmax(-1, keepdim=True)
        ids = torch.cat([ids, chosen, right], 1)
        done = bool(stopping_criteria(ids, None).any())
    return ids


def _by_slots(model, input_ids, logits_processor, stopping_criteria, generation_config, **rest):
    """Two rows at a time; where one has ended the next prompt comes in, all padded anew."""
    waiting, running, whole = list(enumerate(input_ids.tolist())), [], {}

    def padded():
        width = max(len(row) for _, row in running)
        return torch.tensor([[0] * (width - len(row)) + row for _, row in running])

    while waiting or running:
        while waiting and len(running) < 2:
            running.append(waiting.pop(0))
        ids = padded()
        scores = _scores(model, ids, logits_processor, attention_mask=(ids != 0).long())
        for (_, row), token in zip(running, scores.argmax(-1).tolist(), strict=True):
            row.append(token)
        over = stopping_criteria(padded(), None).tolist()
        whole |= {one[0]: one[1] for one, ends in zip(running, over, strict=True) if ends}
        running = [one for one, ends in zip(running, over, strict=True) if not ends]
    return _padded([whole[row] for row in range(len(whole))])


def _setting_aside(
    model, input_ids, logits_processor, stopping_criteria, generation_config, **rest
):
    """Three beams; a sequence that chooses an end id is set aside before the test is asked."""
    ids, totals, aside = input_ids[:1].repeat(3, 1), torch.tensor([0.0, -1e9, -1e9]), []
    done = False
    while not done and len(aside) < 2:
        logs = _scores(model, ids, logits_processor).log_softmax(-1)
        totals, best = (logs + totals[:, None]).flatten().topk(6)
        pairs = [divmod(place, logs.shape[1]) for place in best.tolist()]
        aside += [[*ids[row].tolist(), token] for row, token in pairs if token in STOPS]
        on = [place for place, pair in enumerate(pairs) if pair[1] not in STOPS][:3]
        totals = totals[on]
        ids = torch.tensor([[*ids[pairs[place][0]].tolist(), pairs[place][1]] for place in on])
        done = bool(stopping_criteria(ids, None).all())
    return _padded([*aside, ids[0].tolist()])


LOOPS = {
    "taking out": _taking_out, "swapping": _swapping, "forking": _forking,
    "taking back": _taking_back, "by slots": _by_slots, "setting aside": _setting_aside,
}  # fmt: skip


def _recorded(loop, ids=PROMPTS):
    model = _model(0)
    given = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": 6}
    given |= {"custom_generate": loop, "eos_token_id": STOPS}
    return model, *recorded_alike(model, ids, given)


def _answers(output):
    """Each row's own ids behind the prompt, and what the library's criteria say of their end."""
    answers = []
    for row in output[:, 6:].tolist():
        end = next((place for place, one in enumerate(row) if one in STOPS), None)
        own = row if end is None else row[: end + 1]
        answers.append(([one for one in own if one], "length" if end is None else "eos"))
    return answers


@pytest.mark.parametrize("name", LOOPS)
def test_every_returned_sequence_is_told_with_its_choices_and_its_end(name):
    ids = PROMPTS[1:2] if name in ("taking back", "setting aside") else PROMPTS
    model, output, trace = _recorded(LOOPS[name], ids)
    (call,) = trace["calls"].itertuples()
    answers = _answers(output)
    ends = [finish for _, finish in answers]
    if name == "setting aside":
        ends[-1] = "unfinished" if len(answers[-1][0]) < 6 else "length"
    assert json.loads(call.finish) == ends
    tokens = trace["tokens"].query("origin == 'generated'").sort_values("index")
    for row, (own, _) in enumerate(answers):
        assert tokens[tokens["row"] == row]["token_id"].tolist() == own
    choices = trace["choices"].sort_values(["step", "offset"])
    stands = choices[choices["accepted"]]
    for sequence, mine in stands.groupby("sequence"):
        own = answers[int(sequence)][0]
        told = mine["token_id"].tolist()
        is_aside = name == "setting aside" and own[-1] in STOPS
        assert own[: len(own) - is_aside][-len(told) :] == told
        place = 6 + len(own) - is_aside - 1
        before = output[int(sequence) : int(sequence) + 1, :place]
        with torch.no_grad():
            raw = model(before, use_cache=False).logits[0, -1].float().log_softmax(-1)
        (last,) = mine.tail(1).itertuples()
        assert last.raw_logprob == pytest.approx(float(raw[last.token_id]), abs=1e-3)
        assert is_aside or last.finish == ends[int(sequence)]
    assert trace.rows("faults") == (name in ("taking back", "setting aside"))


def test_a_choice_goes_on_from_the_row_where_its_sequence_stood():
    _, output, trace = _recorded(_swapping)
    stands = trace["choices"].query("accepted").sort_values("step")
    for sequence in range(len(output)):
        mine = stands[stands["sequence"] == sequence]
        assert mine["row"].tolist() == [(sequence - 1 - turn) % 3 for turn in range(len(mine))]
        assert mine["parent_row"].tolist() == [sequence, *mine["row"].tolist()[:-1]]


def test_a_guess_that_was_taken_back_is_no_part_of_the_answer():
    _, output, trace = _recorded(_taking_back, PROMPTS[1:2])
    choices = trace["choices"].sort_values(["step", "offset"])
    assert choices[choices["accepted"]]["token_id"].tolist() == _answers(output)[0][0]
    guesses = choices[~choices["accepted"]]
    assert len(guesses) == len(choices) // 3
    assert guesses["probability"].isna().all()
    assert trace["calls"]["mode"].str.endswith("_taking_back)").all()


def test_a_sequence_that_was_set_aside_has_ended_though_no_test_said_so():
    _, output, trace = _recorded(_setting_aside, PROMPTS[1:2])
    assert output[0, -1] == 0
    (fault,) = trace["faults"].itertuples()
    assert "no stopping test was shown" in fault.reason
    assert trace["calls"]["mode"].iloc[0].endswith("rows change places, not followed to the end")


def _ignoring_the_test(model, input_ids, logits_processor, stopping_criteria, **rest):
    """Asks row by row and stops only when all say so at once, with no filler."""
    ids, done = input_ids, False
    while not done:
        chosen = _scores(model, ids, logits_processor).argmax(-1, keepdim=True)
        ids = torch.cat([ids, chosen], 1)
        done = bool(stopping_criteria(ids, None).all())
    return ids


def test_a_row_that_goes_on_behind_an_end_id_ends_where_it_ends():
    _, output, trace = _recorded(_ignoring_the_test)
    assert any(one in STOPS for one in output[:, 6:-1].flatten().tolist())
    choices = trace["choices"].sort_values("step")
    for row, ids in enumerate(output[:, 6:].tolist()):
        mine = choices[choices["row"] == row]
        assert mine["token_id"].tolist() == ids
        assert mine["finish"].isna().tolist() == [True] * (len(ids) - 1) + [False]
    assert json.loads(trace["calls"]["finish"].iloc[0]) == ["length"] * 3


def _losing(model, input_ids, logits_processor, stopping_criteria, generation_config, **rest):
    """Shows the test its last two ids alone, and returns a text."""
    ids, done = input_ids, False
    while not done:
        ids = torch.cat([ids, _scores(model, ids, logits_processor).argmax(-1, keepdim=True)], 1)
        done = bool(stopping_criteria(ids[:, -2:], None).all()) or ids.shape[1] > 9
    return "a text"


def test_choices_that_go_on_from_nothing_that_was_seen_claim_nothing():
    model = _model(0)
    with tracer.record(strict=True) as recording:
        model.generate(PROMPTS, custom_generate=_losing, max_new_tokens=3, eos_token_id=[])
    trace = recording.trace
    assert trace["calls"]["finish"].isna().all()
    assert not trace.rows("choices") or trace["choices"]["accepted"].isna().all()
    assert trace["tokens"]["origin"].ne("generated").all()
    assert trace["faults"]["reason"].str.contains("go on from no row").any()


@pytest.mark.parametrize("stops", [STOPS, []])
def test_a_cache_that_such_a_loop_has_arranged_is_built_from_no_ids_that_are_known(stops):
    """The rows of its answer are not those of its cache, so nothing of them counts as cached."""
    model, caches = _model(0), []

    def shortening(model, input_ids, logits_processor, stopping_criteria, **rest):
        output = model(input_ids=input_ids, use_cache=True)
        caches.append(output[CACHE])
        ids = torch.cat([input_ids, output.logits[:, -1:].argmax(-1)], 1)
        stopping_criteria(ids, None)
        caches[0].batch_select_indices(torch.tensor([1]))
        return ids

    with tracer.record(strict=True) as recording:
        output = model.generate(
            PROMPTS, custom_generate=shortening, eos_token_id=stops, max_new_tokens=1
        )
        turn = torch.cat([output[1:2], torch.tensor([[20]])], 1)
        given = {"attention_mask": torch.ones_like(turn), "max_new_tokens": 2, "do_sample": False}
        model.generate(turn, **{CACHE: caches[0]}, **given)
    last = recording.trace["calls"].sort_values("seq").iloc[-1]
    assert last["cache_why"] == "passed by the user"
    assert last[["cache_prefix_tokens", "cache_first_difference"]].isna().all()
