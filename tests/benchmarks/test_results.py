"""The committed results, and the READMEs' tables that are made of them."""

import dataclasses

import pytest

from benchmarks import pairs
from benchmarks.figures import PACKAGES, Figure, figure, quartiles
from benchmarks.results import NAMES, keep, read
from benchmarks.table import BEGIN, COSTS, END, READMES, costs_table, number, peers_table, written

LANGUAGES = tuple(READMES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_readme_shows_the_committed_results(language):
    text = READMES[language].read_text("utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert written(text, read(), language) == text, "run python -m benchmarks.table"


@pytest.mark.skipif(
    not {*NAMES, "peers"} <= {*read()}, reason="results.json is of a part of the benchmarks"
)
def test_every_row_of_the_table_was_measured():
    measured = {one.name for section in read().values() for one in section["figures"]}
    assert set(COSTS) <= measured


def test_results_name_no_machine_and_no_user():
    known = {"date", "python", *PACKAGES, "system", "processor", "cores", "torch_threads", "load"}
    for section in read().values():
        assert set(section["machine"]) == known


def _section(*figures):
    return {"one": {"machine": {"date": "2026-01-01"}, "figures": list(figures)}}


@pytest.mark.parametrize(("language", "over"), [("en", "1.02, **over**"), ("zh", "1.02，**超出**")])
def test_a_figure_over_its_budget_says_so(language, over):
    slow = Figure("decode, layers", "x", 1.0, 0.9, 1.1, 1.05, 1.04, 1.06, 7, 1.02)
    row = costs_table(_section(slow), language).splitlines()[-1]
    assert row.endswith(f"| 1.00 (0.90 - 1.10) | 1.05 (1.04 - 1.06) | {over} |")
    good = dataclasses.replace(slow, processor=1.01)
    assert over not in costs_table(_section(good), language)


def test_a_peer_that_cannot_is_a_dash_with_its_reason():
    section = {
        "peers": {
            "machine": {},
            "figures": [
                Figure("peers, forward, TorchLens", "x", 66.0, processor=67.25),
                Figure("peers, decode, TorchLens", "x", None, note="not done within 180 s"),
                Figure("peers, load, TorchLens", "x", None, note="there | is `no` model"),
            ],
        }
    }
    row = peers_table(section, "en").splitlines()[-1]
    told = "`not done within 180 s` / `there / is no model`"
    assert row == f"| `TorchLens` | 67.25 | - | - | {told} |"


def test_sections_are_replaced_and_peers_are_added_to(tmp_path):
    path = tmp_path / "results.json"
    first, second = Figure("a", "x", 1.0), Figure("b", "x", 2.0, note="why")
    keep("hooks", {"date": "1"}, [first], path)
    keep("peers", {"date": "1"}, [first], path)
    keep("hooks", {"date": "2"}, [second], path)
    keep("peers", {"date": "2"}, [second], path)
    told = read(path)
    assert told["hooks"] == {"machine": {"date": "2"}, "figures": [second]}
    assert told["peers"]["figures"] == [first, second]


def test_quartiles_and_their_figure():
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)
    made = figure("a", "x", [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 1.0, 2.0], budget=1.0)
    assert (made.low, made.value, made.high) == (2.0, 3.0, 4.0)
    assert (made.processor_low, made.processor, made.processor_high) == (1.0, 1.0, 1.5)
    assert made.rounds == 5
    assert not made.is_over  # judged by the processor's time


def test_pairs_take_turns_and_are_neighbours():
    order = []
    times = iter([(1.0, 1.0), (2.0, 3.0), (8.0, 2.0), (4.0, 1.0)])

    def measured(name):
        order.append(name)
        return next(times)

    made = pairs.ratio("a", lambda: measured("plain"), lambda: measured("changed"), 2)
    assert order == ["plain", "changed", "changed", "plain"]
    assert made.value == 2.0
    assert made.processor == 2.5


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.0149, "x", "1.01"),
        (2_310, "ns", "2.31 µs"),
        (25, "us", "25.00 µs"),
        (0.0031, "s", "3.10 ms"),
        (65.2, "bytes", "65 B"),
        (12_345_678, "bytes", "12.3 MB"),
        (0.0123, "share", "1.2%"),
    ],
)
def test_numbers_are_as_short_as_they_can_be_read(value, unit, text):
    assert number(value, unit) == text
