"""The static page, opened from disk with the network off: played by keyboard, safe for any text."""

import re

import pytest
from playing import Playing
from synthetic import coherent_rows, make_trace

from tracer.schema import TABLES
from tracer.views.html import to_html

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
pytestmark = pytest.mark.browser

HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"
    "</style><style>*{background:url(http://evil.invalid/)}</style><!--<script>"
    "javascript:alert(1) \" onfocus=alert(1) x=' &lt;b&gt; ${alert(1)} \u2028\u202e\x00\x1b[31m"
)
# Whether any text in it would turn its line around.
TURNS = "root => /[\\u202a-\\u202e\\u2066-\\u2069]/.test(root.textContent)"
WIDTHS_AND_THEMES = [(1280, "light"), (1280, "dark"), (1920, "light"), (1920, "dark")]


@pytest.fixture
def open_page(chromium):
    """Open a file in a browser that has no network; it must not complain."""
    contexts, complaints = [], []

    def opened(path, width=1280, theme="light") -> Playing:
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, offline=True
        )
        context.set_default_timeout(60_000)
        contexts.append(context)
        player = Playing(context.new_page())
        player.listen(complaints)
        player.page.goto(path.as_uri())
        expect(player.title).not_to_be_empty()
        return player

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return to_html(make_trace(coherent_rows()), tmp_path_factory.mktemp("page") / "run.html")


def test_a_run_is_played_by_keyboard_alone(path, open_page):
    player = open_page(path)
    expect(player["place"]).to_contain_text("1 /")
    first = player.title.inner_text()

    player.press("ArrowRight", "s")
    assert player.at() == 3
    player.press("ArrowLeft", "ArrowLeft")
    expect(player.title).to_have_text(first)
    player.press("ArrowLeft")
    expect(player["notice"]).to_have_text("The run begins here.")

    # Tokens: forwards, backwards, and the candidates of the one that is looked at.
    player.press("t")
    expect(player.title).to_have_text("␣word5")
    player.press("t", "t")
    expect(player.title).to_have_text("␣word7")
    expect(player["candidates"].locator(".tp-chosen .tp-token")).to_have_text("␣word7")
    player.press("Shift+T")
    expect(player.title).to_have_text("␣word6")
    expect(player["strip"].locator(".tp-picked")).to_have_text(" word6")

    # Out to the caller's end, over a whole load, and where one was before.
    player.press("o")
    expect(player.title).to_have_text("step 2")
    player.press("p")
    expect(player.title).to_have_text("generate")
    player.press("u")
    expect(player.title).to_have_text("step 2")
    player.press("Home", "n")
    expect(player.title).to_have_text("generate")
    player.press("End")
    assert player.at() == int(player["at"].inner_text().split("/")[1])

    # The tree opens and closes, and walks by line.
    player.press("Home", " ")
    lines = player["line"].count()
    player.press(" ")
    assert player["line"].count() != lines
    player.press("ArrowDown")
    assert player.at() > 1
    player.press("ArrowUp")
    assert player.at() == 1

    # Help and jump list lie over it, take the keys, and give them back.
    player.press("?")
    expect(player["dialog"].first).to_contain_text("to the next breakpoint")
    player.page.keyboard.press("s")
    assert player.at() == 1
    player.page.keyboard.press("Escape")
    expect(player["dialog"].first).to_be_hidden()
    player.jump("word8")
    expect(player.title).to_have_text("␣word8")


def test_it_breaks_where_asked(path, open_page):
    player = open_page(path)
    player.press("c")
    expect(player["notice"]).to_contain_text("No breakpoint is set")
    player.add_breakpoint("entropy", "much")
    expect(player["point"]).to_have_count(0)
    expect(player["wrong"]).to_be_visible()
    player.add_breakpoint("entropy", "1")
    expect(player["count"]).to_have_text("0 / 4")
    player.press("c")
    expect(player.title).to_have_text("␣word5")
    expect(player["notice"]).to_have_text("Breakpoint: entropy > 1")
    player.add_breakpoint("module", "layers.1")
    player.press("c")
    expect(player.title).to_have_text("layers.1")
    player.press("Shift+C")
    expect(player.title).to_have_text("␣word5")

    # Switched off and taken away, it stops nothing; a line's gutter sets another.
    player["point"].first.locator("input").uncheck()
    player.press("Home", "c")
    expect(player.title).to_have_text("layers.1")
    player["point"].nth(1).locator(".tp-remove").click()
    player["point"].first.locator(".tp-remove").click()
    expect(player["point"]).to_have_count(0)
    player["line"].nth(2).locator(".tp-gutter").click()
    expect(player["point"]).to_have_count(1)
    player.press("Home", "c")
    assert player.at() > 1
    player.press("b")
    expect(player["point"]).to_have_count(0)
    for kind, value in [("stage", "decode"), ("token", "word8"), ("slower", "15 ms")]:
        player.add_breakpoint(kind, value)
    for kind in ("finding", "window", "fault"):
        player.add_breakpoint(kind)
    expect(player["point"]).to_have_count(6)


def test_a_token_is_guessed_before_it_is_shown(path, open_page):
    player = open_page(path)
    player.press("q", "t")
    expect(player.title).to_have_text("?")
    expect(player["guessing"]).to_be_visible()
    shown = player.root.inner_text()
    assert "0.6065" not in shown
    assert "60.7 %" not in shown
    expect(player.here.locator(".tp-token")).to_have_text("?")
    player["guess"].fill("word1")
    player["guess"].press("Enter")
    expect(player["verdict"]).to_contain_text("20.6 %")
    player["choices"].locator("button", has_text="word5").click()
    expect(player.title).to_have_text("␣word5")
    expect(player["verdict"]).to_contain_text("Right")
    player.press("t")
    expect(player.title).to_have_text("?")
    player.press("r")
    expect(player.title).to_have_text("␣word6")
    player.press("q")
    expect(player.here.locator(".tp-token")).to_have_text("␣word6")


def test_keys_that_are_not_its_own_are_left_alone(path, open_page):
    player = open_page(path)
    for press in ("Control+s", "Alt+s", "F2"):
        player.press(press)
    assert player.at() == 1
    player.root.dispatch_event("keydown", {"key": "s", "isComposing": True})
    player.root.dispatch_event("keydown", {"key": "s", "keyCode": 229})
    assert player.at() == 1
    field = player["add-value"].locator("input")
    field.press_sequentially("snt")
    expect(field).to_have_value("snt")
    assert player.at() == 1
    field.press("Escape")
    player.page.keyboard.press("s")
    assert player.at() == 2


def test_the_line_of_time_is_dragged(path, open_page):
    player = open_page(path)
    box = player["timeline"].bounding_box()
    middle = box["y"] + box["height"] / 2
    player.page.mouse.move(box["x"] + 10, middle)
    player.page.mouse.down()
    player.page.mouse.move(box["x"] + box["width"] * 0.97, middle, steps=8)
    player.page.mouse.up()
    expect(player["path"]).to_contain_text("generate")
    player.press("u")  # a drag is one move
    expect(player["path"]).not_to_contain_text("generate")
    player.press("x", "+", "+", "0", "-")
    expect(player.root.locator("[data-kind=axis]")).to_have_text("stops")


@pytest.mark.parametrize(("width", "theme"), WIDTHS_AND_THEMES)
def test_it_fits_and_follows_the_reader(path, open_page, width, theme):
    player = open_page(path, width, theme)
    is_dark = "tp-dark" in player.root.get_attribute("class")
    assert is_dark == (theme == "dark")
    player.press("d")
    assert ("tp-dark" in player.root.get_attribute("class")) != is_dark
    player.press("t")
    for keys in ([], ["l"], ["z"]):
        player.press(*keys)
        wide = player.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
        for part in ("tree", "timeline", "stop", "breakpoints", "bar"):
            box = player[part].first.bounding_box()
            assert box["width"] > 100
            assert box["x"] + box["width"] <= width + 1
    expect(player["breakpoints"]).to_contain_text("断点")
    expect(player.root).to_have_attribute("lang", "zh-CN")
    assert (
        player.root.evaluate(
            "root => { const c = root.querySelector('canvas');"
            "return new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size; }"
        )
        > 20
    )  # the line of time is drawn


def test_reasons_are_read_in_the_readers_language(tmp_path, open_page):
    rows = coherent_rows()
    rows["checkpoint_tensors"][0]["because"] = "set as embed.weight"
    rows["images"][0]["limit"] = "helper: multiples of the patch only"
    player = open_page(to_html(make_trace(rows), tmp_path / "run.html"))
    player.jump(rows["checkpoint_tensors"][0]["key"])
    expect(player["tags"].first).to_contain_text("set as embed.weight")
    player.press("z")
    expect(player["tags"].first).to_contain_text("设为 embed.weight")
    player.press("Home")
    while not player["sizes"].count():
        player.press("ArrowRight")
    expect(player["stop"]).to_contain_text("helper：只取图块边长的整数倍")


def hostile_rows():
    """The rows with hostile text in every cell that holds text of a run, but for keys."""
    rows = coherent_rows()
    kept = {"seq", "thread", "stage", "status", "kind", "stack", "source", "cache", "model"}
    for table, records in rows.items():
        columns = {one.name: one for one in TABLES[table].columns}
        for record in records:
            for name, value in record.items():
                if isinstance(value, str) and columns[name].kind == "text" and name not in kept:
                    record[name] = HOSTILE + value
    for source in rows["sources"]:
        source["text"] = f"def f():\n    '''{HOSTILE}\n"
    rows["stacks"][0]["frames"] = [f"{HOSTILE}.py:3 {HOSTILE}"]
    for record in rows["tokens"]:
        record["kind"] = "text tp-over"  # a class of ours, to lay the text over all else
    for record in rows["calls"]:
        record["stack"] = "constructor"  # every object of the language has one
    rows["images"][0] |= {"grid_h": 2**40, "grid_w": -3, "original_w": -1}
    return rows


def test_hostile_text_is_text_wherever_it_stands(tmp_path, open_page):
    player = open_page(to_html(make_trace(hostile_rows()), tmp_path / "hostile.html"))
    expect(player.title).to_contain_text("onerror")
    count = int(re.sub(r".*/ ", "", player["at"].inner_text()))
    for number in range(count):
        player.press(*("sz" if number == count // 2 else "s"))
        assert not player.root.evaluate(TURNS)
        assert player["over"].count() == 2
    assert player.at() > count - 5  # the recorder's own work may be the last
    player.press("q", "t", "r", "q", "?")
    player.page.keyboard.press("Escape")
    player.jump("onerror")
    for text in (HOSTILE, "img"):
        player.add_breakpoint("token", text)
    assert player.page.locator("img, iframe, script:not([type])").count() == 0
    assert player.page.title() != "owned"


def test_the_pages_policy_lets_no_other_script_run(path, chromium):
    context = chromium.new_context(offline=True)
    page = context.new_page()
    refused = []
    page.on("console", lambda told: refused.append(told.text))
    page.goto(path.as_uri())
    page.evaluate(
        "() => { const one = document.createElement('script');"
        "one.textContent = 'document.title = \"owned\"'; document.body.append(one);"
        "const image = document.createElement('img'); image.src = 'http://evil.invalid/x';"
        "image.setAttribute('onerror', 'document.title = \"owned\"');"
        "document.body.append(image); }"
    )
    page.wait_for_function("() => document.images.length === 1 && document.images[0].complete")
    assert page.title() != "owned"
    assert len(refused) >= 2
    assert all("Content Security Policy" in told for told in refused)
    context.close()
