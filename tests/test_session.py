"""record() and start(): what they refuse, when, and what they leave when nothing happened."""

import json
import subprocess
import sys
import threading

import pytest

import tracer
from tracer.errors import SessionStateError, StorageError, TracerError
from tracer.instrument.installer import INSTALLER

BAD_OPTIONS = [
    {"detail": "everything"},
    {"detail": None},
    {"top_k": -1},
    {"max_bytes": 0},
    {"max_bytes": -5},
]


def test_a_recording_is_used_once():
    recording = tracer.record()
    with recording:
        pass
    with pytest.raises(SessionStateError, match="can't be used twice"), recording:
        pytest.fail("the block must not run")
    assert INSTALLER.recorders == []


def test_entering_twice_is_refused_and_the_first_goes_on():
    with tracer.record() as recording:
        with pytest.raises(SessionStateError, match="can't be used twice"):
            recording.begin()
        assert len(INSTALLER.recorders) == 1
    assert recording.trace.manifest["state"] == "complete"


def test_the_trace_before_the_end_is_refused():
    with tracer.record() as recording, pytest.raises(SessionStateError, match="not over"):
        _ = recording.trace
    assert recording.trace.manifest["ended"] == "completed"


def test_a_recording_that_never_began_cannot_be_stopped():
    with pytest.raises(SessionStateError, match="never begun"):
        tracer.record().stop()


def test_stopping_again_gives_the_same_trace():
    recording = tracer.start()
    assert len(INSTALLER.recorders) == 1
    trace = recording.stop()
    assert recording.stop() is trace is recording.trace
    assert INSTALLER.recorders == []


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=str)
def test_a_bad_option_is_refused_before_anything_is_attached_or_written(tmp_path, options):
    with pytest.raises(TracerError, match=next(iter(options))):
        tracer.record(tmp_path / "run", **options)
    with pytest.raises(TracerError):
        tracer.start(tmp_path / "run", **options)
    assert INSTALLER.recorders == []
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_option_is_a_type_error():
    with pytest.raises(TypeError, match="colour"):
        tracer.start(colour="red")
    assert INSTALLER.recorders == []


def _file(folder):
    (folder / "run").write_text("mine")


def _trace(folder):
    with tracer.record(folder / "run"):
        pass


def _full(folder):
    (folder / "run").mkdir()
    (folder / "run" / "notes.txt").write_text("mine")


@pytest.mark.parametrize("occupy", [_file, _trace, _full])
def test_an_occupied_path_is_refused_before_the_block_runs(tmp_path, occupy):
    occupy(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StorageError, match="run"), tracer.record(tmp_path / "run"):
        pytest.fail("the block must not run")
    assert sorted(tmp_path.rglob("*")) == before
    assert INSTALLER.recorders == []


@pytest.mark.parametrize("if_exists", ["replace", "number"])
def test_an_older_trace_gives_way_or_a_number_is_added(tmp_path, if_exists):
    for _ in range(3):
        with tracer.record(tmp_path / "run", if_exists=if_exists):
            pass
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == (["run"] if if_exists == "replace" else ["run", "run-2", "run-3"])


def test_the_badge_says_since_when_and_then_that_it_is_over():
    recording = tracer.record()
    assert "not begun" in repr(recording)
    recording.begin()
    assert "since" in repr(recording)
    assert "stop()" in recording._repr_html_()
    recording.stop()
    assert "ended" in repr(recording)


@pytest.mark.parametrize("is_over", [False, True])
def test_the_badge_is_escaped_html(is_over):
    recording = tracer.start()
    if is_over:
        recording.stop()
    inner = recording._repr_html_().partition(">")[2].rpartition("</span>")[0]
    recording.stop()
    assert inner
    assert not set("<>") & set(inner)


def test_a_recording_around_nothing_is_a_complete_trace(tmp_path):
    with tracer.record(tmp_path / "run") as recording:
        pass
    manifest = tracer.open_trace(tmp_path / "run").manifest
    assert (manifest["state"], manifest["ended"]) == ("complete", "completed")
    assert manifest["options"]["detail"] == "layers"
    assert manifest["versions"]["python"]
    assert recording.trace.rows("calls") == recording.trace.rows("faults") == 0
    assert json.loads((tmp_path / "run" / "manifest.json").read_text("utf-8")) == manifest


def test_a_user_error_is_kept_as_the_ending(tmp_path):
    with pytest.raises(ZeroDivisionError), tracer.record(tmp_path / "run"):
        _ = 1 / 0
    ended = tracer.open_trace(tmp_path / "run").manifest["ended"]
    assert ended == "ZeroDivisionError: division by zero"


def test_a_recording_may_be_stopped_by_another_thread():
    recording = tracer.start()
    thread = threading.Thread(target=recording.stop)
    thread.start()
    thread.join()
    assert recording.trace.manifest["ended"] == "completed"
    assert INSTALLER.recorders == []


def run_python(code: str) -> str:
    """Run code in a fresh interpreter; what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_LIVE = "[name for name in ('torch', 'transformers', 'tokenizers') if name in sys.modules]"


@pytest.mark.parametrize(
    "code",
    [
        "import tracer",
        "import tracer; tracer.record, tracer.Trace, tracer.open_trace, tracer.check",
        "import tracer\nwith tracer.record() as r: pass\nassert r.trace.rows('faults') == 0",
        "import tracer\nwith tracer.record(strict=True): import json.tool",
        "import tracer\nr = tracer.start(); r.stop().summary()",
    ],
)
def test_the_lab_alone_imports_no_torch_and_patches_nothing(code):
    before = "import sys, warnings; path, show = list(sys.meta_path), warnings.showwarning\n"
    after = f"\nprint(sys.meta_path == path, warnings.showwarning is show, {_LIVE})"
    assert run_python(before + code + after) == "True True []"


@pytest.mark.slow
def test_libraries_first_imported_inside_the_block_are_met():
    code = """
import tracer
from tracer.demo import checkpoint_folder, draw_scene
with tracer.record(strict=True) as recording:
    from qwen_vl_utils import process_vision_info
    from transformers import AutoModelForImageTextToText, AutoProcessor
    processor = AutoProcessor.from_pretrained(checkpoint_folder())
    model = AutoModelForImageTextToText.from_pretrained(checkpoint_folder())
    picture = {"type": "image", "image": draw_scene("red circle top left")}
    messages = [{"role": "user", "content": [picture]}]
    text = processor.apply_chat_template(messages, tokenize=False)
    images, _ = process_vision_info(messages)
    inputs = processor(text=[text], images=images, return_tensors="pt")
    model.generate(**inputs, max_new_tokens=2, do_sample=False)
trace = recording.trace
spans = trace["spans"]
imported = {name.partition(".")[0] for name in spans[spans["stage"] == "import"]["name"]}
print(trace.rows("steps"), trace.rows("faults"), trace["images"]["helper_w"].notna().tolist())
print(sorted(imported & {"transformers", "qwen_vl_utils"}), "tracer" in imported)
print(trace.rows("tensor_loads") == trace.rows("checkpoint_tensors") > 0)
"""
    assert run_python(code).splitlines() == [
        "2 0 [True]",
        "['qwen_vl_utils', 'transformers'] False",
        "True",
    ]
