"""Every rule finds its seeded fault, says nothing of the clean twin, and has words and cases."""

import pytest
from diagnosis import cases

import tracer
from tracer import explain
from tracer.diagnosis import examine  # noqa: F401  (enters the rules)
from tracer.diagnosis.rules import RULES
from tracer.explain.languages import words

CASES = cases.all_cases()  # those that this release can show


def in_time():
    """Every case: the first fault of each rule always, all others with the slow tests.

    `make doctor-score` runs every one of them, as the slow tests do.
    """
    seen: set[str] = set()
    for case in CASES:
        is_first = case.kind == "fault" and not set(case.rules) <= seen
        seen |= set(case.rules) if is_first else set()
        name = f"{case.kind}-{case.name}"
        yield pytest.param(case, id=name, marks=() if is_first else pytest.mark.slow)


NAMES = sorted({rule.name for rule in RULES})


# What the library itself says of a fault is not asked here.
@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("case", list(in_time()))
def test_the_doctor_finds_what_is_there_and_nothing_else(case, bench):
    made = case.make(bench)
    findings = cases.asked(made)
    assert cases.rows_not_there(made, findings) == []
    assert [one for one in findings.undecided if one.needs == "rule_failed"] == []
    assert case.missed(findings) == [], str(findings)
    assert case.false_alarms(findings) == [], str(findings)
    for code in explain.LANGUAGES:
        tracer.language(code)
        assert str(findings)
        assert findings._repr_html_()
    tracer.language("en")


@pytest.mark.parametrize("kind", ["fault", "clean"])
def test_every_rule_has_its_case(kind):
    covered = {rule for case in cases.CASES if case.kind == kind for rule in case.rules}
    assert [name for name in NAMES if name not in covered] == []


def test_cases_name_rules_that_there_are():
    named = {rule for case in CASES for rule in (*case.rules, *case.also)}
    assert named <= set(NAMES)


@pytest.mark.parametrize("code", explain.LANGUAGES)
def test_every_rule_has_words_and_no_words_are_left_over(code):
    assert sorted(words("findings", code)) == NAMES
    for name in NAMES:
        assert "{" not in explain.finding_title(name, code)
