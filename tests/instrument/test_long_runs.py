"""Long use leaves the process as it was: hooks, files, threads and memory do not grow."""

import gc
import itertools
import os
import sys
import threading

import pyarrow
import pytest
import torch
from instrument.toys import generate, hook_count, text_inputs
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import tracer
from tracer.instrument import measure

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads memory and files in /proc"),
]
MIB = 2**20
# Allocators take some thirty recordings to settle, more where other tests ran before, and give
# back what they like: resident bytes show a tensor that is kept. One recording's objects are
# thousands; a step may leave its number and the token that was chosen, and its rows are dozens.
ALLOWED_RESIDENT = 24 * MIB
ALLOWED_OBJECTS = 500
ALLOWED_BLOCKS_A_STEP = 6
STEPS = 2_000


def _resident():
    gc.collect()
    return measure.resident_bytes()


def _open_files():
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return {os.readlink(link) for link in links if os.path.exists(link)}


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_fifty_recordings_leave_no_trace_in_the_process(gpt2, llama_folder, tmp_path, where):
    def record(number):
        path = tmp_path / str(number) if where == "folder" else None
        with tracer.record(path, strict=True, detail="modules", values=True, logits=True):
            generate(gpt2, text_inputs(2))
            AutoModelForCausalLM.from_pretrained(llama_folder)

    for number in range(20):  # caches of the libraries fill
        record(number)
    before = hook_count(gpt2), _open_files(), threading.active_count()
    resident, objects = _resident(), len(gc.get_objects())
    for number in range(20, 70):
        record(number)
    assert _resident() - resident < ALLOWED_RESIDENT
    assert len(gc.get_objects()) - objects < ALLOWED_OBJECTS
    assert (hook_count(gpt2), _open_files(), threading.active_count()) == before


@pytest.fixture(scope="module")
def endless():
    """A tiny Llama with room for long answers."""
    config = LlamaConfig(
        vocab_size=640, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=2 * STEPS,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


def _ask(model, steps, after_step):
    def note(ids, scores):
        after_step(ids.shape[1])
        return scores

    model.generate(
        **text_inputs(), max_new_tokens=steps, do_sample=False, eos_token_id=[],
        logits_processor=[note],
    )  # fmt: skip


def test_memory_stays_flat_over_two_thousand_steps(endless, tmp_path):
    resident, arrow, blocks = [], [], []

    def sample(length):
        if length % 50 == 0:
            resident.append(_resident())
            arrow.append(pyarrow.total_allocated_bytes())
            blocks.append(sys.getallocatedblocks())

    with tracer.record(tmp_path / "run", strict=True, detail="layers") as recording:
        _ask(endless, STEPS, sample)
    assert recording.trace.rows("steps") == recording.trace.rows("choices") == STEPS
    assert _growth(resident) < ALLOWED_RESIDENT
    assert _growth(arrow) == 0
    assert _growth(blocks) < ALLOWED_BLOCKS_A_STEP * STEPS // 2


def _growth(samples):
    """From the second quarter's lowest to the last quarter's: rows wait for a flush between."""
    quarter = len(samples) // 4
    return min(samples[-quarter:]) - min(samples[quarter : 2 * quarter])


def test_over_max_bytes_a_table_is_given_up_at_the_first_flush(endless, tmp_path):
    limit, written, dropped = 40_000, [0], []
    options = {"detail": "modules", "max_bytes": limit}

    with tracer.record(tmp_path / "run", strict=True, **options) as recording:

        def note(_):
            written.append(recording._journal.bytes_written)
            dropped.append(len(recording._recorder.dropped))

        _ask(endless, 600, note)
    flushes = [
        number for number, sizes in enumerate(itertools.pairwise(written)) if sizes[1] > sizes[0]
    ]
    passed = next(turn for turn, number in enumerate(flushes) if written[number + 1] > limit)
    assert dropped[flushes[passed] - 1] == 0
    # logits, modules, candidates with effects and stops, cache layers: one more at each flush
    assert [dropped[number] for number in flushes[passed : passed + 4]] == [1, 2, 5, 6]
    trace = recording.trace
    assert trace.manifest["dropped"][0] == "logits"
    for reason in trace["faults"]["reason"]:
        assert f"max_bytes={limit} reached" in reason
    _assert_ends(trace, "modules", "seq")
    _assert_ends(trace, "candidates", "event")
    assert trace.rows("steps") == trace.rows("choices") == 600


def _assert_ends(trace, table, column):
    """No row of a table that was given up is later than its fault says."""
    (reason,) = trace["faults"].query("target.str.startswith(@table)")["reason"]
    assert trace.rows(table) > 0
    assert trace[table][column].max() < int(reason.rpartition("seq ")[2].split()[0])
