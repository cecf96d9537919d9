"""What the player shows, made by its pure modules: words, times, text, code."""

import json

import pytest

from tracer.views.labels import bytes_label, duration_label

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.browser


def test_every_key_and_word_is_there_in_both_languages(small_run):
    found = small_run(
        'const { WORDS } = await import(HOST + "/words.js");'
        'const { GROUPS } = await import(HOST + "/keymap.js");'
        "const keys = GROUPS.flatMap(([group, actions]) => actions);"
        "return { en: Object.keys(WORDS.en).sort(), zh: Object.keys(WORDS.zh).sort(), keys }"
    )
    assert found["en"] == found["zh"]
    assert {f"key {key}" for key in found["keys"]} <= set(found["en"])


def test_time_without_a_run_takes_little_room_on_the_line(small_run):
    found = small_run(
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


def test_python_is_coloured_and_stays_the_same_text(small_run):
    source = 'def f(x):\n    """Two\n    lines."""\n    return x + 1  # why\n'
    found = small_run(
        'const { paintedLines } = await import(HOST + "/source.js");'
        f"return paintedLines({source!r})"
    )
    assert "\n".join("".join(text for _, text in line) for line in found) == source
    assert ["keyword", "return"] in found[3]
    assert ["comment", "# why"] in found[3]
    assert found[1][1][0] == "string"
    assert found[2][0][0] == "string"


def test_numbers_read_as_everywhere_in_the_lab(small_run):
    durations = [0, 1, 850, 999.4, 1_000, 2_300, 9_996, 61_000_000, 999_600, 99_949_999_999]
    durations += [99_950_000_000, 125_000_000_000, 3_600_000_000_000, 4e15]
    sizes = [0, 1, 999, 999.6, 1_000, 160, 16_584_333_312, 999_500, 1e13]
    found = small_run(
        'const { bytes, duration } = await import(HOST + "/dom.js");'
        f"return [{durations}.map((one) => duration(one / 1e6)), {sizes}.map((one) => bytes(one))];"
    )
    assert found == [
        [duration_label(one) for one in durations],
        [bytes_label(one) for one in sizes],
    ]


def test_no_text_turns_its_line_around_or_hides_in_it(small_run):
    hostile = "a\u202eb\u2066c\u200fd\u061ce\u200bf\x1b[31mg\x00h\ufeffi\u2028j\r"
    found = small_run(
        'const { element } = await import(HOST + "/dom.js");'
        f"const text = {json.dumps(hostile)};"
        'const node = element("p", { text, title: text }, text, element("b", { text }));'
        'const ends = element("p", { text: "\\n\\t" }).textContent;'
        'return [node.textContent, node.title, ends === "\\n\\t"];'
    )
    seen = "a·b·c·d·e·f␛[31mg␀h·i·j␍"
    assert found == [seen * 3, seen, True]


def test_a_line_without_length_has_ticks_all_the_same(small_run):
    """Late and short: a tick added to the one before would be the same number again."""
    found = small_run(
        'const { Timeline } = await import(HOST + "/timeline.js");'
        'const { makeWords } = await import(HOST + "/words.js");'
        "const late = { ...run, words: { en: {} }, start: run.start.map(() => 1e12),"
        "  duration: run.duration.map(() => 0), endOf: () => 1e12 };"
        "const line = new Timeline(() => {});"
        "document.body.append(line.node); line.node.style.width = '600px';"
        "const state = { ...firstState(late), isDark: false };"
        "line.update(late, state, makeWords(late, state));"
        "const width = line.picture.canvas.width; line.node.remove(); return width;"
    )
    assert found > 0
