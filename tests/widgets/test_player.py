"""The player's widget: opened, asked about a stop, asked about nonsense, kept in a notebook."""

import html
import json
import re
import threading

import pytest
from synthetic import coherent_rows, make_trace

import tracer
from tracer.replaying.replay import Replay
from tracer.widgets import kept_player, player
from tracer.widgets.kept_player import KEPT_BYTES, KeptPlayer, kept
from tracer.widgets.live_player import MARKING, LivePlayer


@pytest.fixture(scope="module")
def replay():
    """A run opened once: its audit takes longer than all else."""
    return Replay(make_trace(coherent_rows()))


@pytest.fixture
def live(replay):
    """A player, and what it sent to the page."""
    made = LivePlayer(replay)
    made.sent = []
    made.send = lambda content, buffers=None: made.sent.append(content)
    return made


def ask(live, message):
    """What the page gets back."""
    live.sent.clear()
    live._heard(live, message, [])
    for thread in threading.enumerate():
        if thread.name == MARKING:
            thread.join()
    return live.sent


def test_it_opens_with_header_and_columns():
    live = tracer.play(make_trace(coherent_rows()))
    assert isinstance(live, LivePlayer)
    header = json.loads(live.header)
    assert header["count"] == len(live.replay.stops)
    assert live.columns == live.replay.columns
    assert {"header", "columns"} <= set(live.get_state())


def test_a_folder_or_a_zip_is_played_too(tmp_path):
    trace = make_trace(coherent_rows())
    for name in ("run", "run.zip"):
        trace.save(tmp_path / name)
        assert len(tracer.play(tmp_path / name).replay.stops) == len(Replay(trace).stops)


def test_a_stop_is_told_when_it_is_asked_for(live):
    (told,) = ask(live, {"kind": "detail", "stop": 3})
    assert told == {"kind": "detail", "stop": 3, "detail": live.replay.detail(3)}
    json.dumps(told)


def test_what_stops_share_is_asked_for_by_key(live):
    token = int(live.replay.stops.of_kind("token")[0])
    key = live.replay.detail(token)["token"]["strip"]
    (told,) = ask(live, {"kind": "shared", "room": "strips", "key": key})
    assert told["value"] == live.replay.shared("strips", key)


def test_marks_are_found_in_a_thread_and_sent(live):
    (told,) = ask(live, {"kind": "marks"})
    assert told == {"kind": "marks", "marks": live.replay.marks, "notes": live.replay.notes}


@pytest.mark.parametrize("stop", [-1, 10**9])
def test_a_stop_that_is_none_gets_an_answer_that_says_so(live, stop):
    (told,) = ask(live, {"kind": "detail", "stop": stop})
    assert told["stop"] == stop
    assert "there is no stop" in told["error"]


@pytest.mark.parametrize(
    "message",
    [None, 3, [], {}, {"kind": "dance"}, {"kind": "detail"}, {"kind": "detail", "stop": "1"}],
)
def test_a_message_that_is_no_question_gets_no_answer(live, message):
    assert ask(live, message) == []


def test_half_a_character_in_a_trace_breaks_no_message(live, monkeypatch):
    monkeypatch.setattr(live.replay, "shared", lambda room, key: {"text": "half \udc80"})
    (told,) = ask(live, {"kind": "shared", "room": "strips", "key": "0:0"})
    json.dumps(told, ensure_ascii=False).encode("utf-8")


def test_a_cell_shows_the_widget_and_keeps_a_page(live, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: shown.append(data))
    live._ipython_display_()
    widget, page = shown
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert widget["text/plain"].startswith("This player needs a kernel")
    assert page["text/html"] == kept(live.replay)


def test_the_kept_page_is_in_a_frame_that_reaches_nothing(replay):
    text = kept(replay)
    (frame,) = re.findall(r"<iframe[^>]*>", text)
    assert 'sandbox="allow-scripts"' in frame
    assert "allow-same-origin" not in frame
    inner = html.unescape(re.search('srcdoc="([^"]*)"', frame)[1])
    assert 'id="tracer-replay"' in inner
    assert len(text) < 1.2 * KEPT_BYTES


def test_of_a_long_run_a_notebook_keeps_the_page_without_modules_and_tensors(replay, monkeypatch):
    kinds = ("module", "tensor")
    few = len(replay.stops) - sum(len(replay.stops.of_kind(kind)) for kind in kinds)
    monkeypatch.setattr(kept_player, "MOST_KEPT_STOPS", few)
    inner = html.unescape(re.search('srcdoc="([^"]*)"', kept(replay))[1])
    held = json.loads(re.search('id="tracer-replay">(.*?)</script>', inner, re.DOTALL)[1])
    assert held["header"]["count"] == few
    assert held["header"]["notes"][0]["values"] == {"what": "modules, tensor_loads"}


def test_of_a_run_beyond_bounds_a_notebook_keeps_the_summary(replay, monkeypatch):
    monkeypatch.setattr(kept_player, "MOST_KEPT_STOPS", 3)
    text = kept(replay)
    assert "<iframe" not in text
    assert "tracer.to_html" in text
    assert "Trace complete" in text


def test_without_widgets_it_shows_the_page(monkeypatch):
    found = player.importlib.util.find_spec
    monkeypatch.setattr(
        player.importlib.util,
        "find_spec",
        lambda name: None if name == "anywidget" else found(name),
    )
    played = tracer.play(make_trace({}))
    assert isinstance(played, KeptPlayer)
    assert played._repr_html_() == kept(played.replay)
