"""Breakpoints of the player: what each stops at, how its value is read, running to and fro."""

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("kind", "value", "hits"),
    [
        ("stop", 7, [7]),
        ("stage", "decode", [12]),
        ("stage", "tensor_load", [1]),
        ("module", "layers.1", [8, 14]),
        ("module", "layers.*", [7, 8, 9, 13, 14, 15]),
        ("module", "*.1", [8, 14]),
        ("module", "ayers.1", []),
        ("module", "layers.[0", []),  # no pattern of a star: no error, and nothing fits
        ("module", " ", []),
        ("module", "*" * 60 + "x", []),  # stars in a row are one, or this never ends
        ("token", "blue", [16]),
        ("token", "␣blue", [16]),  # as the player shows it
        ("token", "", []),
        ("entropy", 1, [16]),
        ("entropy", 0, [10, 16]),
        ("slower", 8.5, [5, 6, 12]),
        ("finding", "", [0]),
        ("finding", "slow-load", [0]),
        ("finding", "another", []),
        ("window", "", [12]),
        ("fault", "", [5, 14]),
    ],
)
def test_a_breakpoint_stops_at(small_run, kind, value, hits):
    found = small_run(
        'const { hitsOf } = await import(HOST + "/breakpoints.js");'
        f"return Array.from(hitsOf(run, {{ kind: {kind!r}, value: {value!r} }}))"
    )
    assert found == hits


def test_running_goes_from_hit_to_hit_both_ways(small_run):
    made = '{kind: "add", of: "module", value: "layers.1"}, {kind: "add", of: "entropy", value: 1}'
    for moves, expected in [
        (["continue"], 8),
        (["continue", "continue"], 14),
        (["continue", "continue", "continue"], 16),
        (["end", "continue"], 16),  # none that way: it stays
        (["end", "continue back"], 14),
        (["continue", "continue back"], 8),
        (["over"], 5),
        (["over", "over"], 8),  # a long move stops on its way
        (["step", {"kind": "switch", "id": 0}, "continue"], 16),  # switched off
        ([{"kind": "remove", "id": 0}, "continue"], 16),
        (["clear", "continue"], 0),
    ]:
        assert small_run(f"return at([{made}, ...{moves}])") == expected, moves
    assert small_run(f'return play([{made}, "continue"]).notice') == {"code": "hit", "by": [0]}
    assert small_run('return play(["continue"]).notice.code') == "no breakpoints"


def test_a_breakpoint_here_is_set_and_taken_away(small_run):
    assert small_run('return play(["step", "break"]).breakpoints.map((one) => one.value)') == [1]
    assert small_run('return play(["step", "break", "break"]).breakpoints') == []
    assert small_run('return play([{kind: "break", at: 9}]).at') == 0
    twice = '{kind: "add", of: "fault", value: ""}'
    assert small_run(f"return play([{twice}, {twice}]).breakpoints.length") == 1


def test_findings_that_come_later_are_counted_anew(small_run):
    found = small_run(
        'let state = play([{kind: "add", of: "finding", value: ""}]);'
        'run.marks = [...run.marks, { group: "audit", key: "sizes", stop: 6 }];'
        'return Array.from(play(["marks"], state).breakpoints[0].hits)'
    )
    assert found == [0, 6]


@pytest.mark.parametrize(
    ("kind", "typed", "value"),
    [
        ("slower", "250 ms", 250),
        ("slower", "1.5s", 1500),
        ("slower", "40us", 0.04),
        ("slower", "7", 7),
        ("slower", "soon", None),
        ("slower", "-3", None),
        ("entropy", "1.5", 1.5),
        ("entropy", "much", None),
        ("entropy", "1,5", 1.5),
        ("entropy", "1.5 or so", None),
        ("entropy", "", None),
        ("slower", "1,5 s", 1500),
        ("slower", "1.2.3", None),
        ("token", "  ", None),
        ("fault", "", ""),
        ("finding", "", ""),
    ],
)
def test_a_value_is_read_or_refused(small_run, kind, typed, value):
    code = 'const { parseValue } = await import(HOST + "/breakpoints.js");'
    assert small_run(f"{code} return parseValue({kind!r}, {typed!r})") == value
