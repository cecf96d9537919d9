"""Other processes leave the parent's trace alone, and can use the model as if nobody recorded."""

import functools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from contextlib import ExitStack, contextmanager

import pytest
import torch
from instrument.toys import generate, hook_count, is_ours, owners, text_inputs
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

import tracer
from tracer import opening
from tracer.demo import checkpoint_folder
from tracer.errors import SessionStateError
from tracer.instrument.installer import INSTALLER

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork"),
]


def in_child(work):
    """What `work()` gives in a forked child; an exception there is one here."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(work, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        error, value = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    assert error is None, error
    return value


def _answer(work, pipe):
    """In the child: send the result and end at once, without pytest's own clean-up."""
    try:
        answer = (None, work())
    except BaseException:
        answer = (traceback.format_exc(), None)
    with os.fdopen(pipe, "wb") as file:
        file.write(pickle.dumps(answer))
    os._exit(0)


def _content(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _ids(model):
    return model.generate(**text_inputs(), max_new_tokens=5, do_sample=False).tolist()


@pytest.fixture
def recording(tmp_path):
    """A recording to a folder, on during the test."""
    with tracer.record(tmp_path / "run", strict=True) as recording:
        yield recording


def _assert_whole(trace, calls):
    """The parent's trace holds its own calls, each whole, and passes its audit."""
    assert trace["calls"]["name"].tolist() == ["LlamaForCausalLM.generate"] * calls
    assert trace["calls"]["status"].tolist() == ["ok"] * calls
    assert trace.rows("steps") == 5 * calls
    assert trace["events"]["seq"].is_unique
    assert trace.rows("faults") == 0
    verdicts = trace.audit().set_index("check")["verdict"].drop("5 explained time")
    assert "broken" not in set(verdicts)


def test_a_forked_child_uses_the_model_and_writes_nothing(llama, recording):
    plain = _ids(llama)
    before = _content(recording.path)
    ids, hooks = in_child(lambda: (_ids(llama), hook_count(llama)))
    assert _content(recording.path) == before
    assert ids == _ids(llama) == plain
    assert hooks < hook_count(llama)
    _assert_whole(recording.stop(), calls=2)
    assert hooks == hook_count(llama)


def _left_over():
    """What a child finds of the lab, where its parent records."""
    found = [
        name for owner in owners().values() for name, one in vars(owner).items() if is_ours(one)
    ]
    found += [finder for finder in sys.meta_path if type(finder).__module__.startswith("tracer")]
    if is_ours(warnings.showwarning):
        found.append("showwarning")
    return len(found) + len(INSTALLER.recorders)


def test_in_a_forked_child_everything_is_undone(llama, recording):
    _ids(llama)
    assert _left_over() > 0
    assert in_child(_left_over) == 0
    assert _left_over() > 0


def _locks():
    """Every lock of the lab's that lasts as long as the process, or belongs to a recording."""
    kinds = (type(threading.Lock()), type(threading.RLock()))
    homes = [one for name, one in list(sys.modules.items()) if name.startswith("tracer.")]
    homes += [INSTALLER, *INSTALLER.recorders, *(one.sink for one in INSTALLER.recorders)]
    homes += opening._opened.values()
    found = [value for home in homes for value in _values(home) if isinstance(value, kinds)]
    return list({id(one): one for one in found}.values())


def _values(home):
    slots = getattr(type(home), "__slots__", ())
    return [*getattr(home, "__dict__", {}).values(), *(getattr(home, name) for name in slots)]


@contextmanager
def _held_by_a_thread(locks):
    """Another thread holds the locks inside the block."""
    held, over = threading.Event(), threading.Event()

    def hold():
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_child_records_whatever_lock_another_thread_held_at_the_fork(
    llama, llama_folder, recording
):
    """Whoever held one in the parent does not exist in the child, and never lets go of it."""
    _ids(llama)

    def record():
        signal.alarm(120)  # rather than to wait for ever
        with tracer.record(strict=True) as own:
            AutoModelForCausalLM.from_pretrained(llama_folder)
            ids = _ids(llama)
        with opening._lock:
            return ids, own.trace.rows("steps"), own.trace.rows("placements") > 0

    assert len(_locks()) >= 6
    with _held_by_a_thread(_locks()):
        child = in_child(record)
    assert child == (_ids(llama), 5, True)
    _assert_whole(recording.stop(), calls=2)


def test_a_child_that_leaves_the_block_ends_nothing(llama, tmp_path):
    def leave(recording, kind, error):
        before = _content(recording.path)
        recording.__exit__(kind, error, None)
        with pytest.raises(SessionStateError, match="goes on in process"):
            recording.stop()
        with pytest.raises(SessionStateError, match="is not over"):
            assert recording.trace
        return _content(recording.path) == before

    with tracer.record(tmp_path / "run", strict=True) as recording:
        _ids(llama)
        assert in_child(lambda: leave(recording, None, None))
        error = ValueError("in the child")
        assert in_child(lambda: leave(recording, ValueError, error))
        _ids(llama)
    _assert_whole(recording.trace, calls=2)
    assert recording.trace.manifest["ended"] == "completed"


def test_a_child_may_record_by_itself(llama, recording, tmp_path):
    def record():
        with tracer.record(tmp_path / "child", strict=True) as own:
            warnings.warn("said once", stacklevel=1)
            ids = _ids(llama)
        return ids, own.trace.rows("messages")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert in_child(record) == (_ids(llama), 1)
    _assert_whole(recording.stop(), calls=1)
    _assert_whole(tracer.open_trace(tmp_path / "child"), calls=1)


def test_a_fork_inside_a_step_leaves_the_rest_of_the_call_to_both(llama, recording):
    children = []

    def fork(ids, scores):
        if len(children) == 0 and ids.shape[1] == 8:
            read, write = os.pipe()
            children.append((os.fork(), read, write))
        return scores

    def ask():
        return llama.generate(
            **text_inputs(), max_new_tokens=5, do_sample=False, logits_processor=[fork]
        ).tolist()

    before = _content(recording.path).keys()
    answer = ask()
    child, read, write = children[0]
    if child == 0:
        _answer(lambda: answer, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pickle.loads(pipe.read()) == (None, answer)
    os.waitpid(child, 0)
    trace = recording.stop()
    assert before
    _assert_whole(trace, calls=1)


# A spawned process imports everything anew.
METHODS = pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])


class Prompts(Dataset):
    """Prompts that are tokenised by whoever asks for them."""

    def __init__(self, folder):
        self.folder = str(folder)
        self.texts = ["a red circle", "a blue square", "top left", "bottom right"]

    def __len__(self):
        return len(self.texts)

    @functools.cached_property
    def tokenizer(self):
        return AutoTokenizer.from_pretrained(self.folder)

    def __getitem__(self, index):
        ids = self.tokenizer(self.texts[index])["input_ids"]
        return torch.tensor((ids * 8)[:8])


@METHODS
def test_workers_of_a_data_loader_do_not_write_into_the_trace(llama, tmp_path, method):
    prompts = Prompts(checkpoint_folder())
    plain = torch.stack([prompts[index] for index in range(len(prompts))])
    prompts = Prompts(checkpoint_folder())
    with tracer.record(tmp_path / "run", strict=True) as recording:
        loader = DataLoader(prompts, batch_size=2, num_workers=1, multiprocessing_context=method)
        batches = list(loader)
        for batch in batches:
            llama.generate(batch, max_new_tokens=2, do_sample=False)
    assert torch.equal(torch.cat(batches), plain)
    calls = recording.trace["calls"]
    assert calls["name"].tolist() == ["LlamaForCausalLM.generate"] * 2
    assert recording.trace.rows("steps") == 4
    assert recording.trace.rows("faults") == 0


def _load_and_ask(folder, pipe):
    torch.set_num_threads(1)
    pipe.send(_ids(AutoModelForCausalLM.from_pretrained(folder)))
    pipe.close()


@METHODS
def test_a_process_of_multiprocessing_loads_and_asks_unrecorded(
    llama, llama_folder, tmp_path, method
):
    context = multiprocessing.get_context(method)
    with tracer.record(tmp_path / "run", strict=True) as recording:
        here, there = context.Pipe()
        process = context.Process(target=_load_and_ask, args=(str(llama_folder), there))
        process.start()
        there.close()
        answer = here.recv()
        process.join()
        assert answer == _ids(llama)
    assert process.exitcode == 0
    _assert_whole(recording.trace, calls=1)


def test_a_generate_call_after_a_fork_is_still_recorded_with_the_same_random_numbers(llama):
    plain = generate(llama, text_inputs(), do_sample=True)
    with tracer.record(strict=True) as recording:
        in_child(lambda: generate(llama, text_inputs(), do_sample=True).sequences.tolist())
        recorded = generate(llama, text_inputs(), do_sample=True)
    assert torch.equal(recorded.sequences, plain.sequences)
    assert recording.trace.rows("steps") == 5
