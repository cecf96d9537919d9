"""The page for those who use no mouse or see no screen: focus, names, what is said and kept."""

import re

import pytest
from playing import Playing
from synthetic import coherent_rows, make_trace

from tracer.views.html import to_html

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
pytestmark = pytest.mark.browser

FAULTS = """root => {
  const faults = [];
  const all = (selector) => root.querySelectorAll(selector);
  for (const one of all("[role=list] > *"))
    if (one.getAttribute("role") !== "listitem") faults.push(`no item: ${one.outerHTML}`);
  for (const one of all("button, input, select, [role=img], [role=group], [role=tree]")) {
    const name = one.getAttribute("aria-label") ?? one.textContent;
    if (name.trim() === "") faults.push(`no name: ${one.outerHTML}`);
  }
  for (const name of ["aria-activedescendant", "aria-describedby", "aria-controls"])
    for (const one of all(`[${name}]`)) {
      const to = one.getAttribute(name);
      if (!document.getElementById(to)) faults.push(`${name}: ${to}`);
    }
  const ids = Array.from(all("[id]"), (one) => one.id);
  if (new Set(ids).size < ids.length) faults.push("an id twice");
  return faults; }"""
IN_PLAYER = "() => document.querySelector('.tracer-player').contains(document.activeElement)"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return to_html(make_trace(coherent_rows()), tmp_path_factory.mktemp("page") / "run.html")


@pytest.fixture
def player(path, chromium):
    context = chromium.new_context(offline=True, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    complaints = []
    player = Playing(context.new_page())
    player.listen(complaints)
    player.page.goto(path.as_uri())
    expect(player.title).not_to_be_empty()
    yield player
    context.close()
    assert complaints == []


def keys(player, *names):
    """Press keys wherever the focus is, as somebody does who can't click."""
    for name in names:
        player.page.keyboard.press(name)


def test_the_page_takes_keys_as_soon_as_it_is_there(player):
    keys(player, "s", "s")
    assert player.at() == 3


@pytest.mark.parametrize(
    "where", [".tp-crumb", ".tp-remove", ".tp-point-name", ".tp-point input", ".tp-add-it"]
)
def test_the_focus_stays_inside_whatever_is_pressed(player, where):
    """What was pressed is drawn anew: a key that falls through cuts cells of a notebook."""
    player.add_breakpoint("module", "layers.1")
    player.press("t")
    player.root.locator(where).first.focus()
    keys(player, "Space" if where.endswith("input") else "Enter")
    assert player.page.evaluate(IN_PLAYER)
    before = player.at()
    if not where.endswith("input"):
        keys(player, "ArrowLeft")
        assert player.at() == before - 1


def test_what_is_typed_survives_what_is_drawn_meanwhile(player):
    player.press("q", "t")
    player["guess"].focus()
    player.type("wor")
    player.page.set_viewport_size({"width": 1100, "height": 900})
    player.type("d5")
    expect(player["guess"]).to_have_value("word5")
    keys(player, "Enter")
    expect(player.title).to_have_text("␣word5")


def test_a_dialog_keeps_the_focus_and_its_list_says_what_is_picked(player):
    keys(player, "?")
    for _ in range(4):
        keys(player, "Tab")
        inside = player.page.evaluate(
            "() => document.activeElement === document.body"
            " || document.activeElement.closest('.tp-dialog') !== null"
        )
        assert inside
    keys(player, "Escape", "g")
    player.type("word")
    keys(player, "ArrowDown")
    picked = player["found"].get_by_role("option", selected=True)
    expect(picked).to_have_count(1)
    field = player.root.get_by_role("combobox", name="Jump to")
    assert field.get_attribute("aria-activedescendant") == picked.get_attribute("id")
    field.fill("nothing of that name")
    expect(player["found"].get_by_role("option")).to_have_count(0)
    assert field.get_attribute("aria-activedescendant") is None
    keys(player, "Escape", "s")
    assert player.at() == 2


def test_a_step_is_said_with_all_that_the_eye_sees(player):
    keys(player, "t")
    said = player.root.get_by_role("status").first
    expect(said).to_contain_text("token, ␣word5, Prefill")
    keys(player, "p")
    expect(said).to_contain_text(re.compile(r"forward, step 0, Prefill, [\d.]+ ms"))
    keys(player, "q", "t")
    expect(said).to_contain_text("token, ?")


def test_the_tree_is_walked_as_a_list_and_by_pages(player):
    tree = player.root.get_by_role("tree", name="Calls and spans")
    tree.focus()
    keys(player, "ArrowDown", "ArrowDown")
    picked = player.root.get_by_role("treeitem", selected=True)
    assert tree.get_attribute("aria-activedescendant") == picked.get_attribute("id")
    keys(player, "PageDown")
    assert player.at() > 5
    keys(player, "PageUp")
    assert player.at() == 1
    assert picked.get_attribute("aria-posinset") == "1"
    keys(player, "b")
    expect(picked.get_by_role("img", name="breakpoint")).to_be_visible()


def test_the_line_of_time_is_scrubbed_by_keys(player):
    last = int(player["at"].inner_text().split("/")[1])
    reached = [player.at()]
    for _ in range(60):
        keys(player, ".")
        reached.append(player.at())
    assert len(set(reached)) > 5
    assert reached[-1] > last / 2
    for _ in range(60):
        keys(player, ",")
    assert player.at() < 3
    player["timeline"].focus()
    keys(player, "PageUp", "PageUp")
    assert player.at() > 3


def test_a_zoomed_line_goes_along_with_the_cursor(player):
    keys(player, "+", "+", "+", "End")
    inside = player.root.evaluate(
        "root => { const [line, one] = ['timeline', 'span'].map((name) =>"
        " root.querySelector(`.tp-${name}`).getBoundingClientRect());"
        " return one.right >= line.left && one.left <= line.right; }"
    )
    assert inside


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [("entropy", "much", "1.5"), ("slower", "soon", "250 ms"), ("module", " ", "layers.*.mlp")],
)
def test_a_value_that_says_nothing_is_refused_with_a_word(player, kind, value, told):
    player.add_breakpoint(kind, value)
    expect(player.root.get_by_role("alert")).to_contain_text(told)
    field = player["value"]
    expect(field).to_have_attribute("aria-invalid", "true")
    assert field.get_attribute("aria-describedby") == player["refusal"].get_attribute("id")
    expect(field).to_have_value(value)
    field.fill("1.5")
    field.press("Enter")
    expect(player["point"]).to_have_count(1)
    expect(player["refusal"]).to_be_hidden()


def test_roles_have_what_they_need(player):
    player.add_breakpoint("entropy", "1")
    for press in ("", "t", "q", "End"):
        if press:
            player.press(press)
        faults = player.root.evaluate(FAULTS)
        assert faults == []


def test_a_page_that_is_loaded_again_is_where_it_was(player):
    keys(player, "t", "t")
    player.add_breakpoint("module", "layers.1")
    at = player.at()
    expect(player.page).to_have_url(re.compile(f"#{at}$"))
    player.page.reload()
    expect(player["point"]).to_have_count(1)
    assert player.at() == at
    # A link leads to a stop; one that leads nowhere changes nothing.
    player.page.evaluate("() => { location.hash = '#3'; }")
    expect(player["at"]).to_contain_text("3 /")
    player.page.evaluate("() => { location.hash = '#nowhere'; }")
    assert player.at() == 3
