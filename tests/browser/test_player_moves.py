"""The player's pure modules, called in a blank page: moves, folds, neighbours, keys."""

import json

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("start", "moves", "expected"),
    [
        (0, ["step"], 1),
        (3, ["step"], 5),  # past the recorder's own work
        (5, ["back"], 3),
        (0, ["over"], 5),
        (6, ["over"], 12),
        (5, ["over"], 5),  # the run ends inside
        (8, ["out"], 12),
        (14, ["out"], 12),  # nothing comes behind: the caller itself
        (16, ["step"], 16),
        (0, ["back"], 0),
        (8, ["parent"], 6),
        (0, ["next token", "next token"], 16),
        (16, ["previous token"], 10),
        (4, ["home"], 0),
        (4, ["end"], 16),
        (2, ["end", "undo"], 2),
        (2, [{"kind": "jump", "to": 99}], 16),
        (2, [{"kind": "grab", "to": 9}, {"kind": "scrub", "to": 8}, "undo"], 2),
        (2, [{"kind": "grab", "to": 2}, {"kind": "scrub", "to": 8}, "undo"], 2),
        (2, ["end", {"kind": "grab", "to": 16}, "undo"], 2),  # a press that moved nothing
        (8, ["neighbour"], 9),
        (8, ["previous neighbour"], 7),
        (9, ["neighbour"], 9),
        (0, ["neighbour"], 0),
    ],
)
def test_moves_lead_where_a_debugger_would(small_run, start, moves, expected):
    assert small_run(f"return play({moves}, {{ ...firstState(run), at: {start} }}).at") == expected


def test_the_recorders_own_work_is_walked_when_asked_for(small_run):
    assert small_run('return at(["own", "step", "step", "step", "step"])') == 4
    shown = small_run('return lines(play(["own"]))')
    assert 4 in shown
    assert 4 not in small_run("return lines(firstState(run))")


def test_a_place_in_time_is_the_deepest_stop_that_runs_then(small_run):
    found = small_run(
        'const { stopAtTime } = await import(HOST + "/moves.js");'
        "return [0, 2.5, 7.5, 500, 1004.5, 1011.5, 5000].map((time) => stopAtTime(run, time))"
    )
    assert found == [0, 2, 0, 4, 8, 5, 16]


def test_what_is_folded_opens_around_the_cursor_only(small_run):
    fold = -1  # the line of the first fold
    assert small_run("return lines(firstState(run))") == [0, fold, 5, 6, 12]
    assert small_run('return lines(play([{kind: "jump", to: 2}]))') == [0, fold, 2, 5, 6, 12]
    opened = small_run('return lines(play([{kind: "fold", line: -1}]))')
    assert opened == [0, fold, 1, 2, 3, 5, 6, 12]
    inside = small_run('return lines(play([{kind: "jump", to: 8}]))')
    assert inside == [0, fold, 5, 6, -2, 8, 10, 12]
    everything = small_run(
        "const opened = new Set([0, 5, 6, 12, -1, -2, -3]);"
        "return lines({ ...firstState(run), opened, own: true })"
    )
    assert everything == [0, -1, 1, 2, 3, 4, 5, 6, -2, 7, 8, 9, 10, 11, 12, -3, 13, 14, 15, 16]


def test_closing_what_holds_the_cursor_moves_it_out(small_run):
    found = small_run(
        'const state = play([{kind: "jump", to: 8}, {kind: "fold", line: 5}]);'
        "return [state.at, lines(state)]"
    )
    assert found == [5, [0, -1, 5]]


def test_space_means_the_inside_of_a_stop_else_the_fold_around_it(small_run):
    assert small_run('return at([{kind: "jump", to: 6}, "fold"])') == 6
    assert small_run('return lines(play([{kind: "jump", to: 8}, "fold"])).includes(9)')


def test_neighbours_are_the_same_stop_in_the_other_members_of_a_fold(small_run):
    code = 'const { siblingsOf } = await import(HOST + "/moves.js");'
    found = small_run(
        f"{code} const found = siblingsOf(run, 8); return [found.stops, found.position]"
    )
    assert found == [[7, 8, 9], 1]
    assert small_run(f"{code} return siblingsOf(run, 5)") is None


@pytest.mark.parametrize(
    ("event", "action"),
    [
        ({"key": "ArrowRight"}, "step"),
        ({"key": "s"}, "step"),
        ({"key": "S"}, "step"),  # caps lock
        ({"key": "C", "shiftKey": True}, "continue back"),
        ({"key": "C"}, "continue"),  # caps lock alone
        ({"key": "c", "shiftKey": True}, "continue back"),  # caps lock and shift
        ({"key": "M", "shiftKey": True}, "previous neighbour"),
        ({"key": ","}, "earlier"),
        ({"key": "T", "shiftKey": True}, "previous token"),
        ({"key": "?", "shiftKey": True}, "help"),
        ({"key": "s", "ctrlKey": True}, None),
        ({"key": "s", "metaKey": True}, None),
        ({"key": "s", "isComposing": True}, None),
        ({"key": "s", "keyCode": 229}, None),
        ({"key": "F5"}, None),
    ],
)
def test_a_key_means(small_run, event, action):
    code = 'const { actionOf } = await import(HOST + "/keymap.js");'
    event = str(event).replace("True", "true")
    assert small_run(f"{code} return actionOf({event})") == action


KEPT = {"at": 8, "teaching": True, "large": True, "language": "zh", "axis": "stops", "own": True}
POINTS = [
    {"kind": "module", "value": "layers.1", "on": True},
    {"kind": "entropy", "value": 1, "on": False},
    {"kind": "stop", "value": 3, "on": True},
]


def test_a_page_that_is_loaded_again_goes_on_where_it_was(small_run):
    kept = KEPT | {"dark": True, "breakpoints": POINTS}
    found = small_run(
        'const { keptOf, restored } = await import(HOST + "/state.js");'
        f"const state = restored(run, firstState(run), {json.dumps(kept)});"
        "return { kept: keptOf(state), hits: state.breakpoints.map((one) => one.hits.length),"
        " notice: state.notice };"
    )
    assert found == {"kept": kept, "hits": [2, 1, 1], "notice": None}


@pytest.mark.parametrize(
    "kept",
    [
        None,
        {},
        {"at": 99, "large": "yes", "dark": 1},
        {"at": 1.5, "breakpoints": "none"},
        {"breakpoints": [None, {"kind": "constructor"}, {"kind": "module", "value": 3}]},
        {"breakpoints": [{"kind": "stop", "value": 99}, {"kind": "entropy", "value": "1"}]},
    ],
)
def test_what_was_kept_of_another_run_is_left_alone(small_run, kept):
    found = small_run(
        'const { keptOf, restored } = await import(HOST + "/state.js");'
        "const first = firstState(run);"
        f"return [keptOf(restored(run, first, {json.dumps(kept)})), keptOf(first)];"
    )
    assert found[0] == found[1]
