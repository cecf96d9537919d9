"""A trace whose text was taken out: rules say what they still can, and no more."""

import pytest
from diagnosis.faults import caches, padding, templates

from tracer.diagnosis.examine import doctor

# What a case shows, and whether the mask or the numbers show it without any id.
CASES = [
    (padding.a_batch_padded_on_the_right, "padding_on_the_right", True),
    (padding.a_mask_of_ones_over_padding, "padding_attended", False),
    (templates.a_question_to_a_chat_model_as_bare_text, "template_missing", False),
    (templates.a_user_who_ends_his_own_turn, "special_typed", True),
    (caches.an_answer_that_was_encoded_otherwise, "cache_not_prefix", True),
]


@pytest.mark.parametrize(("make", "rule", "stays"), CASES, ids=lambda one: getattr(one, "name", ""))
def test_a_rule_that_needs_text_says_so(bench, make, rule, stays):
    trace = make(bench)
    whole, bare = doctor(trace), doctor(trace.scrub())
    assert rule in {one.rule for one in whole}
    assert (rule in {one.rule for one in bare}) == stays
    assert {one.rule for one in bare} <= {one.rule for one in whole}
    open_questions = {one.rule: one.needs for one in bare.undecided}
    assert open_questions.get(rule) == (None if stays else "text")
    assert "rule_failed" not in open_questions.values()
