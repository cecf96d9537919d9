"""A published walk through serving: its code, and each habit of its table that a run can show."""

import pytest

import tracer
from tracer.diagnosis.examine import doctor
from tracer.lessons import walk
from tracer.lessons.attempts import attempt
from tracer.lessons.conversations import converse, long_questions
from tracer.lessons.pitfalls import continue_ids, forward_in_each_mode, tiny

LIGHT = {"detail": "stages", "top_k": 0}


def _found(trace):
    findings = doctor(trace)
    assert [one for one in findings.undecided if one.needs == "rule_failed"] == []
    return {one.rule: one for one in findings}


def test_the_two_functions_as_repaired_show_what_they_get_wrong(bench):
    recording = tracer.record(**LIGHT)
    attempt(recording, walk._run, walk.repaired(), str(bench.chat()), "Hello!", 4)
    found = _found(recording.trace)
    assert {"template_missing", "argument_dropped", "clean_up_refused"} <= set(found)
    assert not {"setting_ignored", "sampled_by_file", "prompt_decoded"} & set(found)


@pytest.mark.parametrize(
    ("kind", "rule"), [("gpt2", "positions_exhausted"), ("llama", "beyond_positions")]
)
def test_a_prompt_that_is_too_long_is_found_by_the_kind_of_model(kind, rule):
    recording = tracer.record(**LIGHT)
    attempt(recording, continue_ids, tiny(kind), 40)
    assert set(_found(recording.trace)) == {rule}


def test_of_three_modes_the_one_that_keeps_gradients_is_found(bench):
    with tracer.record(**LIGHT) as recording:
        forward_in_each_mode(*bench.chat_model(), repeats=1)
    found = _found(recording.trace)
    assert found["gradients_on"].values["count"] == 2  # the first of them warms up


WAYS = [("history", "cache_not_reused"), ("cache", None), ("window and cache", "cache_not_prefix")]


@pytest.mark.parametrize(("way", "rule"), WAYS)
def test_a_conversation_is_diagnosed_by_the_way_it_is_held(bench, way, rule):
    model, tokenizer = bench.chat_model()
    questions = long_questions(tokenizer, 4, 30)
    recording = tracer.record(**LIGHT)
    attempt(recording, converse, model, tokenizer, questions, way, window=1, new_tokens=4)
    found = {name for name in _found(recording.trace) if name.startswith("cache")}
    assert found == ({rule} if rule else set())
