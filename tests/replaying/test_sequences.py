"""Tokens in their sequence: strips, candidates, effects; batches, beams, runs without texts."""

import math

import pytest
from replayed import first
from synthetic import GENERATED, PROMPT, coherent_rows, event, make_trace

from tracer.replaying.replay import Replay
from tracer.views.budget import strip_places


def test_a_token_stands_in_its_strip_where_it_came(replay):
    upto = []
    for stop in replay.stops.of_kind("token"):
        told = replay.detail(int(stop))
        strip = replay.shared("strips", told["token"]["strip"])
        at = told["token"]["upto"]
        assert strip["chips"][at][0] == told["title"]
        assert strip["chips"][at][2] == "generated"
        upto.append(at)
    # Four placeholders of the picture are one chip.
    assert strip["prompt"] == PROMPT - 3
    assert [chip[4] for chip in strip["chips"] if chip[1] == "image"] == [4]
    assert upto == list(range(PROMPT - 3, PROMPT - 3 + len(GENERATED)))


def test_a_chip_leads_to_the_token_that_it_is():
    """Also where a token was proposed and refused, or a sequence came over from another row."""
    rows = coherent_rows()
    rows["choices"][1]["accepted"] = False
    for replay in (Replay(make_trace(rows)), beams()):
        choices = replay.trace["choices"]
        for stop in replay.stops.of_kind("token"):
            strip = replay.shared("strips", replay.detail(int(stop))["token"]["strip"])
            answer = [chip[0] for chip in strip["chips"][strip["prompt"] :]]
            assert choices["text"].iloc[strip["made"]].tolist() == answer


def test_a_token_whose_id_is_0_is_special_where_the_prompt_says_so():
    rows = coherent_rows()
    rows["tokens"][0] |= {"token_id": 0, "kind": "special"}
    rows["choices"][-1]["token_id"] = 0
    replay = Replay(make_trace(rows))
    strip = replay.shared("strips", first(replay, "token")["token"]["strip"])
    assert strip["chips"][-1][1] == "special"


def test_a_token_has_candidates_that_leave_a_rest(replay):
    token = first(replay, "token")["token"]
    (chosen,) = (one for one in token["candidates"] if one["chosen"])
    assert chosen["probability"] == pytest.approx(math.exp(-0.5), rel=1e-3)
    listed = sum(one["probability"] for one in token["candidates"])
    assert token["rest"][1] == pytest.approx(1 - listed, abs=1e-5)


def test_a_token_knows_what_each_processor_did(recorded):
    rows = recorded.trace["effects"]
    token = first(recorded, "token")["token"]
    assert [one[0] for one in token["effects"]] == rows[rows["step"] == 0]["class_name"].tolist()
    assert token["effects"][0][3] == pytest.approx(rows["entropy_before"][0], rel=1e-4)


def test_a_chosen_token_outside_of_the_candidates_is_listed_all_the_same():
    rows = coherent_rows()
    rows["candidates"] = [one for one in rows["candidates"] if one["token_id"] != GENERATED[0]]
    token = first(Replay(make_trace(rows)), "token")["token"]
    (chosen,) = (one for one in token["candidates"] if one["chosen"])
    assert chosen["rank"] is None
    assert chosen["probability"] == pytest.approx(math.exp(-0.5), rel=1e-3)


def beams(sequences=((None, None), (None, None))):
    """Two beams of one prompt; the second token of beam 0 continues what beam 1 had."""
    call = event(0, -1, 0, "setup", "generate", 0, 10) | {"kind": "generate", "beams": 2}
    steps = [
        event(1 + step, 0, 0, "decode", f"decode {step}", step, 1)
        | {"step": step, "kind": "decode"}
        for step in range(2)
    ]
    place = {"event": 0, "call": 0, "rank": 0, "offset": 0, "accepted": True}
    texts = [[" cat", " dog"], [" barks", " sleeps"]]
    parents = [[0, 1], [1, 0]]
    choices = [
        place
        | {"step": step, "row": row, "token_id": 10 * step + row, "text": texts[step][row]}
        | {"parent_row": parents[step][row], "sequence": sequences[step][row]}
        for step in range(2)
        for row in range(2)
    ]
    prompt = {"event": 0, "call": 0, "rank": 0, "row": 0, "index": 0, "position": 0}
    prompt |= {"text": "The", "kind": "text", "origin": "user", "token_id": 1}
    return Replay(
        make_trace({"calls": [call], "steps": steps, "choices": choices, "tokens": [prompt]})
    )


def test_a_beam_is_followed_back_through_the_rows_that_it_had():
    replay = beams()
    ways = {}
    for stop in replay.stops.of_kind("token"):
        told = replay.detail(int(stop))
        strip = replay.shared("strips", told["token"]["strip"])
        chips = [chip[0] for chip in strip["chips"][: told["token"]["upto"] + 1]]
        ways[told["title"]] = "".join(chips)
    assert ways[" barks"] == "The dog barks"
    assert ways[" sleeps"] == "The cat sleeps"


def test_what_beams_returned_is_told_at_their_call():
    """Row 0 of each step would be a text that no beam ever was."""
    replay = beams(sequences=[[None, 0], [0, 1]])
    place = replay.detail(0)["strip"]
    told = {}
    for one in strip_places({"strip": place}):
        chips = replay.shared("strips", one["strip"])["chips"]
        told[one["sequence"]] = "".join(chip[0] for chip in chips)
    assert told == {0: "The dog barks", 1: "The cat sleeps"}


def test_every_row_of_a_batch_is_told_at_its_call():
    rows = coherent_rows()
    other = [one | {"row": 1, "parent_row": 1, "text": "!"} for one in rows["choices"]]
    rows["choices"] += other
    rows["tokens"] += [one | {"row": 1} for one in rows["tokens"]]
    replay = Replay(make_trace(rows))
    (_, generate) = replay.stops.of_kind("call")
    places = strip_places(replay.detail(int(generate)))
    assert [one["row"] for one in places] == [0, 1]
    answers = [replay.shared("strips", one["strip"])["chips"][-1][0] for one in places]
    assert answers == [rows["choices"][len(other) - 1]["text"], "!"]


def test_without_a_tokenizer_ids_stand_for_texts_and_nobody_took_them():
    rows = coherent_rows()
    for record in rows["tokens"] + rows["choices"] + rows["candidates"]:
        record["text"] = None
    replay = Replay(make_trace(rows))
    told = first(replay, "token")
    assert told["title"] == f"#{GENERATED[0]}"
    strip = replay.shared("strips", told["token"]["strip"])
    assert (strip["unnamed"], strip["redacted"]) == (True, False)
    assert strip["chips"][told["token"]["upto"]][5] == GENERATED[0]


def test_a_sequence_without_choices_shows_what_was_generated():
    """As continuous batching is told: no forward of its own, but the sequence."""
    rows = coherent_rows()
    last = rows["tokens"][-1]
    rows["tokens"].append(last | {"index": 99, "text": "end", "origin": "generated"})
    rows["choices"] = []
    replay = Replay(make_trace(rows))
    (_, generate) = replay.stops.of_kind("call")
    strip = replay.shared("strips", replay.detail(int(generate))["strip"]["strip"])
    assert strip["chips"][-1][:3] == ["end", last["kind"], "generated"]
    assert strip["prompt"] < len(strip["chips"])
