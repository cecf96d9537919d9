"""A lesson gives the same traces under the same names, recorded or replayed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tracer.errors import SessionStateError, UnknownNameError
from tracer.lessons import Lesson, keep_traces, versions


@pytest.fixture
def live(tmp_path):
    return Lesson("02_some", runs=tmp_path / "runs", traces=tmp_path / "traces")


@pytest.fixture
def replayed(live, tmp_path):
    with live.record("first"):
        pass
    keep_traces(tmp_path / "runs/02_some", tmp_path / "traces/02_some")
    return Lesson("02_some", replay=True, runs=tmp_path / "runs", traces=tmp_path / "traces")


def test_a_recorded_run_is_found_by_its_name(live, tmp_path):
    with live.record("first") as recording:
        pass
    assert live.trace("first").equals(recording.trace)
    assert (tmp_path / "runs/02_some/first").is_dir()


def test_a_second_run_takes_the_place_of_the_first(live, tmp_path):
    for _ in range(2):
        with live.record("first", detail="stages"):
            pass
    assert (tmp_path / "runs/02_some/first-2").is_dir()
    assert live.trace("first").manifest["options"]["detail"] == "stages"


def test_a_replay_opens_what_was_kept(replayed, live):
    assert replayed.committed_names == ["first"]
    assert replayed.trace("first").equals(live.trace("first"))


def test_what_is_kept_tells_no_path_and_no_host(replayed, tmp_path):
    manifest = replayed.trace("first").manifest
    assert manifest["scrubbed"] == ["paths", "host"]
    assert str(tmp_path) not in str(manifest)


def test_keeping_again_replaces(replayed, tmp_path):
    keep_traces(tmp_path / "runs/02_some", tmp_path / "traces/02_some")
    assert replayed.committed_names == ["first"]


def test_a_recording_across_cells_is_replayed_by_the_committed_trace(live, replayed):
    began = live.start("second", detail="stages")
    assert "since" in repr(began)
    assert began.stop().equals(live.trace("second"))
    again = replayed.start("first", detail="stages")
    assert again.stop().equals(replayed.trace("first"))
    assert again.path.name == "first.zip"
    assert repr(again).endswith(", replayed>")
    assert "replayed" in again._repr_html_()
    with pytest.raises(UnknownNameError, match="committed there: first"):
        replayed.start("second")


def test_a_replay_records_nothing(replayed):
    with pytest.raises(SessionStateError, match="REPLAY = False"):
        replayed.record("second")


def test_a_live_lesson_opens_committed_traces_only_when_asked(replayed, tmp_path):
    lesson = Lesson("02_some", runs=tmp_path / "runs", traces=tmp_path / "traces")
    with pytest.raises(UnknownNameError, match="'first' was not recorded"):
        lesson.trace("first")
    assert lesson.committed("first").manifest["state"] == "complete"


def test_an_unknown_run_names_those_that_there_are(replayed):
    with pytest.raises(UnknownNameError, match="committed there: first"):
        replayed.trace("second")


def test_nothing_to_replay_says_where_it_looked(tmp_path):
    with pytest.raises(UnknownNameError, match="start Jupyter in the folder"):
        Lesson("02_some", replay=True, traces=tmp_path)


def test_it_says_what_it_is(live, replayed):
    assert "live, traces go to" in repr(live)
    assert "replay of first, recorded with torch" in repr(replayed)


def test_versions_tell_what_is_not_installed():
    assert versions("tracer-lab", "no-such-package").endswith("no-such-package not installed")


def test_lessons_import_no_torch():
    room = Path(sys.modules["tracer.lessons"].__file__).parent
    modules = ", ".join(f"tracer.lessons.{path.stem}" for path in room.glob("[!_]*.py"))
    code = f"import {modules}, sys; print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
