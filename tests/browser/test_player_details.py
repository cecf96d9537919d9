"""What the player asks while one walks: few questions at once, the latest wish first, no mix-up."""

import pytest
from playing import HOST

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.browser

ASKED = """
const { Details } = await import(HOST + "/details.js");
const asked = [];
const arrived = [];
const open = new Map();
const source = {
  detail: (stop) => {
    asked.push(stop);
    return new Promise((resolve, reject) => open.set(stop, { resolve, reject }));
  },
  shared: async (room, key) => {
    if (key === "gone") throw new Error("gone");
    return `${room} ${key}`;
  },
};
const details = new Details(source, (stop) => arrived.push(stop));
const answer = async (stop) => { open.get(stop).resolve({ stop }); await null; await null; };
const refuse = async (stop) => { open.get(stop).reject(new Error("no")); await null; await null; };
"""


@pytest.fixture
def ask(modules_page):
    return lambda code: modules_page.evaluate(
        f'async () => {{ const HOST = "{HOST}"; {ASKED} {code} }}'
    )


def test_a_fast_walk_asks_for_where_it_ends(ask):
    found = ask(
        "for (const stop of [1, 2, 3, 4, 5]) details.detail(stop);"
        "await answer(1); await answer(2);"
        "return { asked, arrived };"
    )
    assert found == {"asked": [1, 2, 5], "arrived": [1, 2]}


def test_an_answer_is_kept_under_its_own_stop(ask):
    found = ask(
        "details.detail(1); details.detail(2); await answer(2); await answer(1);"
        "return [details.detail(1).stop, details.detail(2).stop, asked.length];"
    )
    assert found == [1, 2, 2]


def test_a_stop_is_prepared_only_when_nothing_is_asked(ask):
    found = ask(
        "details.detail(1); details.prepare(2); const early = [...asked]; await answer(1);"
        "details.prepare(2); details.prepare(3); return [early, asked];"
    )
    assert found == [[1], [1, 2]]


def test_what_failed_says_so_and_is_asked_again_later(ask):
    found = ask(
        "details.detail(1); await refuse(1); const told = details.detail(1).failed;"
        "details.detail(2); await answer(2); const again = details.detail(1);"
        "return { told, again: again === undefined, asked };"
    )
    assert found == {"told": "no", "again": True, "asked": [1, 2, 1]}


def test_what_is_shared_is_asked_once_and_may_be_missing(ask):
    found = ask(
        "const first = [details.shared('stacks', 'a'), details.shared('stacks', 'a')];"
        "details.shared('stacks', 'gone'); await new Promise((done) => setTimeout(done));"
        "return { first: first.every((one) => one === undefined), arrived: arrived.length,"
        " value: details.shared('stacks', 'a'), gone: details.shared('stacks', 'gone') };"
    )
    assert found == {"first": True, "arrived": 2, "value": "stacks a", "gone": None}
