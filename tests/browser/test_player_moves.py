"""The player's pure modules, called in a blank page: moves, folds, breakpoints, guesses, keys."""

import pytest
from playing import HOST, serve_modules

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.browser

# A load of two tensors, the recorder at its work, and an answer of two steps with a token each.
#  0 from_pretrained   1 a.0  2 a.1  3 a.2     4 rows (recorder)
#  5 generate   6 step 0 (7 layers.0, 8 layers.1, 9 layers.2, 10 " red")   11 resolved (recorder)
#              12 step 1 (13 layers.0, 14 layers.1, 15 layers.2, 16 " blue")
RUN = """
const { makeRun } = await import(HOST + "/run.js");
const shape = {
  parent: [-1, 0, 0, 0, 0, -1, 5, 6, 6, 6, 6, 5, 5, 12, 12, 12, 12],
  last: [4, 1, 2, 3, 4, 16, 10, 7, 8, 9, 10, 11, 16, 13, 14, 15, 16],
  depth: [0, 1, 1, 1, 1, 0, 1, 2, 2, 2, 2, 1, 1, 2, 2, 2, 2],
  kind: [0, 2, 2, 2, 1, 0, 4, 3, 3, 3, 5, 1, 4, 3, 3, 3, 5],
  stage: [0, 1, 1, 1, 2, 3, 4, 4, 4, 4, 4, 2, 5, 5, 5, 5, 5],
  status: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0],
  name: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 7, 8, 9, 13],
  thread: Array(17).fill(0),
  start: [0, 1, 2, 3, 5, 1000, 1001, 1002, 1004, 1006, 1009, 1010, 1012, 1013, 1015, 1018, 1020],
  duration: [8, 1, 1, 2, 1, 22, 9, 1, 1, 1, 0, 1, 9, 1, 2, 1, 0],
  step: [-1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, -1, 1, 1, 1, 1, 1],
  call: [0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
  row: Array(17).fill(0),
  fold: [-1, 0, 0, 0, -1, -1, -1, 1, 1, 1, -1, -1, -1, 2, 2, 2, -1],
  fold_first: [1, 7, 13], fold_last: [3, 9, 15], fold_count: [3, 3, 3], fold_name: [14, 15, 15],
  token_stop: [10, 16], token_entropy: [0.25, 2.5], token_probability: [0.9, 0.2],
  token_row: [0, 0],
};
const types = { start: "float64", duration: "float32", token_entropy: "float32" };
const arrays = { float64: Float64Array, float32: Float32Array, int32: Int32Array };
const buffer = new ArrayBuffer(8192);
const columns = {};
let offset = 0;
for (const [name, values] of Object.entries(shape)) {
  const type = types[name] ?? "int32";
  columns[name] = { type, offset, length: values.length };
  new arrays[type](buffer, offset, values.length).set(values);
  offset += Math.ceil((values.length * 8) / 8) * 8;
}
const both = (text) => ({ en: text, zh: text });
const run = makeRun({
  count: 17, columns,
  kinds: ["call", "span", "tensor", "module", "step", "token", "image", "message", "fault"],
  stages: ["resolve", "tensor_load", "recorder", "setup", "prefill", "decode"],
  statuses: ["ok", "error", "interrupted"],
  names: ["Model.from_pretrained", "a.0", "a.1", "a.2", "rows", "Model.generate", "prefill 0",
    "layers.0", "layers.1", "layers.2", " red", "resolved", "decode 1", " blue", "a.*", "layers.*"],
  threads: ["MainThread"],
  marks: [
    { group: "moments", key: "window", stop: 12, title: both("window"), text: both("") },
    { group: "findings", key: "slow-load", stop: 0, title: both("slow"), text: both("") },
    { group: "faults", key: "compiled", stop: 5, title: both("compiled"), text: both("") },
  ],
}, buffer);
const { firstState, reduce, isHidden } = await import(HOST + "/state.js");
const { visibleLines } = await import(HOST + "/rows.js");
const play = (actions, state = firstState(run)) => actions.reduce(
  (now, one) => reduce(run, now, typeof one === "string" ? { kind: one } : one), state);
const at = (actions) => play(actions).at;
const lines = (state) => Array.from(visibleLines(run, state).lines);
"""


@pytest.fixture(scope="module")
def page(chromium):
    """A page that has the modules at an address of their own, and nothing else."""
    context = chromium.new_context()
    page = context.new_page()
    serve_modules(page)
    yield page
    context.close()


@pytest.fixture
def walk(page):
    def ask(code: str):
        return page.evaluate(f'async () => {{ const HOST = "{HOST}"; {RUN} {code} }}')

    return ask


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
        (2, [{"kind": "jump", "to": 9}, {"kind": "scrub", "to": 8}, "undo"], 2),
    ],
)
def test_moves_lead_where_a_debugger_would(walk, start, moves, expected):
    assert walk(f"return play({moves}, {{ ...firstState(run), at: {start} }}).at") == expected


def test_the_recorders_own_work_is_walked_when_asked_for(walk):
    assert walk('return at(["own", "step", "step", "step", "step"])') == 4
    shown = walk('return lines(play(["own"]))')
    assert 4 in shown
    assert 4 not in walk("return lines(firstState(run))")


def test_a_place_in_time_is_the_deepest_stop_that_runs_then(walk):
    found = walk(
        'const { stopAtTime } = await import(HOST + "/moves.js");'
        "return [0, 2.5, 7.5, 500, 1004.5, 1011.5, 5000].map((time) => stopAtTime(run, time))"
    )
    assert found == [0, 2, 0, 4, 8, 5, 16]


def test_what_is_folded_opens_around_the_cursor_only(walk):
    fold = -1  # the line of the first fold
    assert walk("return lines(firstState(run))") == [0, fold, 5, 6, 12]
    assert walk('return lines(play([{kind: "jump", to: 2}]))') == [0, fold, 2, 5, 6, 12]
    opened = walk('return lines(play([{kind: "fold", line: -1}]))')
    assert opened == [0, fold, 1, 2, 3, 5, 6, 12]
    inside = walk('return lines(play([{kind: "jump", to: 8}]))')
    assert inside == [0, fold, 5, 6, -2, 8, 10, 12]
    everything = walk(
        "const opened = new Set([0, 5, 6, 12, -1, -2, -3]);"
        "return lines({ ...firstState(run), opened, own: true })"
    )
    assert everything == [0, -1, 1, 2, 3, 4, 5, 6, -2, 7, 8, 9, 10, 11, 12, -3, 13, 14, 15, 16]


def test_closing_what_holds_the_cursor_moves_it_out(walk):
    found = walk(
        'const state = play([{kind: "jump", to: 8}, {kind: "fold", line: 5}]);'
        "return [state.at, lines(state)]"
    )
    assert found == [5, [0, -1, 5]]


def test_space_means_the_inside_of_a_stop_else_the_fold_around_it(walk):
    assert walk('return at([{kind: "jump", to: 6}, "fold"])') == 6
    assert walk('return lines(play([{kind: "jump", to: 8}, "fold"])).includes(9)')


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
        ("token", "blue", [16]),
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
def test_a_breakpoint_stops_at(walk, kind, value, hits):
    found = walk(
        'const { hitsOf } = await import(HOST + "/breakpoints.js");'
        f"return Array.from(hitsOf(run, {{ kind: {kind!r}, value: {value!r} }}))"
    )
    assert found == hits


def test_running_goes_from_hit_to_hit_both_ways(walk):
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
        assert walk(f"return at([{made}, ...{moves}])") == expected, moves
    assert walk(f'return play([{made}, "continue"]).notice') == {"code": "hit", "by": [0]}
    assert walk('return play(["continue"]).notice.code') == "no breakpoints"


def test_a_breakpoint_here_is_set_and_taken_away(walk):
    assert walk('return play(["step", "break"]).breakpoints.map((one) => one.value)') == [1]
    assert walk('return play(["step", "break", "break"]).breakpoints') == []
    assert walk('return play([{kind: "break", at: 9}]).at') == 0
    twice = '{kind: "add", of: "fault", value: ""}'
    assert walk(f"return play([{twice}, {twice}]).breakpoints.length") == 1


def test_findings_that_come_later_are_counted_anew(walk):
    found = walk(
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
        ("token", "  ", None),
        ("fault", "", ""),
        ("finding", "", ""),
    ],
)
def test_a_value_is_read_or_refused(walk, kind, typed, value):
    code = 'const { parseValue } = await import(HOST + "/breakpoints.js");'
    assert walk(f"{code} return parseValue({kind!r}, {typed!r})") == value


def test_in_teaching_mode_tokens_are_hidden_until_guessed_or_revealed(walk):
    hidden = (
        "const hidden = (moves) => { const state = play(moves);"
        "return [10, 16].map((one) => isHidden(run, state, one)); };"
    )
    for moves, expected in [
        ([], [False, False]),
        (["teach"], [True, True]),
        (["teach", "next token", "next token"], [False, True]),  # passed is known
        (["teach", "next token", "reveal"], [False, True]),
        (["teach", "next token", {"kind": "guess", "text": "red"}], [False, True]),
        (["teach", "next token", {"kind": "guess", "text": "blue"}], [True, True]),
        (["teach", "teach"], [False, False]),
    ]:
        assert walk(f"{hidden} return hidden({moves!r})") == expected, moves
    verdicts = walk(
        'return [..." red| blue".split("|")].map((text) =>'
        'play(["teach", "next token", {kind: "guess", text}]).guesses.get(10).verdict)'
    )
    assert verdicts == ["right", "wrong"]


def test_neighbours_are_the_same_stop_in_the_other_members_of_a_fold(walk):
    code = 'const { siblingsOf } = await import(HOST + "/moves.js");'
    found = walk(f"{code} const found = siblingsOf(run, 8); return [found.stops, found.position]")
    assert found == [[7, 8, 9], 1]
    assert walk(f"{code} return siblingsOf(run, 5)") is None


@pytest.mark.parametrize(
    ("event", "action"),
    [
        ({"key": "ArrowRight"}, "step"),
        ({"key": "s"}, "step"),
        ({"key": "S"}, "step"),  # caps lock
        ({"key": "C", "shiftKey": True}, "continue back"),
        ({"key": "T", "shiftKey": True}, "previous token"),
        ({"key": "?", "shiftKey": True}, "help"),
        ({"key": "s", "ctrlKey": True}, None),
        ({"key": "s", "metaKey": True}, None),
        ({"key": "s", "isComposing": True}, None),
        ({"key": "s", "keyCode": 229}, None),
        ({"key": "F5"}, None),
    ],
)
def test_a_key_means(walk, event, action):
    code = 'const { actionOf } = await import(HOST + "/keymap.js");'
    event = str(event).replace("True", "true")
    assert walk(f"{code} return actionOf({event})") == action


def test_every_key_and_word_is_there_in_both_languages(walk):
    found = walk(
        'const { WORDS } = await import(HOST + "/words.js");'
        'const { GROUPS } = await import(HOST + "/keymap.js");'
        "const keys = GROUPS.flatMap(([group, actions]) => actions);"
        "return { en: Object.keys(WORDS.en).sort(), zh: Object.keys(WORDS.zh).sort(), keys }"
    )
    assert found["en"] == found["zh"]
    assert {f"key {key}" for key in found["keys"]} <= set(found["en"])


def test_time_without_a_run_takes_little_room_on_the_line(walk):
    found = walk(
        'const scales = await import(HOST + "/timescale.js");'
        "const { timeScale, shareOfTime, timeOfShare, runsOf } = scales;"
        "const scale = timeScale(run);"
        "return { ends: [0, 8, 1000, 1022].map((time) => shareOfTime(scale, time)),"
        " back: timeOfShare(scale, shareOfTime(scale, 1004)), gaps: scale.gaps.length,"
        " runs: runsOf([1, 1, 1, 1, 2, 1, 1, 3, 3, 3, 3], 3) }"
    )
    start, load, answer, end = found["ends"]
    assert (start, end) == pytest.approx((0, 1))
    assert 0 < answer - load < 0.02
    assert found["back"] == pytest.approx(1004)
    assert found["gaps"] == 1
    assert found["runs"] == [{"value": 1, "from": 0, "to": 7}, {"value": 3, "from": 7, "to": 11}]


def test_python_is_coloured_and_stays_the_same_text(walk):
    source = 'def f(x):\n    """Two\n    lines."""\n    return x + 1  # why\n'
    found = walk(
        'const { paintedLines } = await import(HOST + "/source.js");'
        f"return paintedLines({source!r})"
    )
    assert "\n".join("".join(text for _, text in line) for line in found) == source
    assert ["keyword", "return"] in found[3]
    assert ["comment", "# why"] in found[3]
    assert found[1][1][0] == "string"
    assert found[2][0][0] == "string"
