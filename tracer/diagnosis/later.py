"""What a folder can't tell before a load, each question with the look or the run that would tell.

A folder without a finding is no proof: values are not read, no class is built, nothing is asked.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from tracer.diagnosis.families import may_write
from tracer.diagnosis.finding import Untold
from tracer.diagnosis.rules import Answers, rule

if TYPE_CHECKING:
    from tracer.inspection import Inspection

_LATER: Final[tuple[tuple[str, str], ...]] = (
    ("weights_initialised", "built_model"),
    ("weights_mismatched", "built_model"),
    ("weights_prefixed", "built_model"),
    ("head_random", "built_class"),
    ("weights_differ", "verified_load"),
    ("ties_undone", "verified_load"),
    ("cast_lost_values", "verified_load"),
    ("buffers_unwritten", "recorded_load"),
    ("offloaded_unasked", "recorded_load"),
    ("load_slow", "recorded_load"),
    ("template_missing", "recorded_answer"),
    ("padding_attended", "recorded_answer"),
    ("end_token_no_stop", "recorded_answer"),
    ("nonfinite_scores", "recorded_answer"),
)
"""A rule on traces, and what would tell: a key of the section `doctor_needs` of the phrases."""
_OF_ANSWERS: Final = "recorded_answer"


def _later(needs: str, inspection: Inspection) -> Answers:
    survey = inspection.survey
    is_whole = bool(survey.chosen) and all(one in survey.headers for one in survey.chosen)
    # A load that stops at a file shows none of it: the file is the first question.
    stops = any(one.level == "error" for one in inspection.problems)
    if is_whole and not stops and (needs != _OF_ANSWERS or may_write(inspection)):
        yield Untold(needs)


for _name, _needs in _LATER:
    rule(_name, "note", "folder")(functools.partial(_later, _needs))
