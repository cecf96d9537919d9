"""One recording's spans, frames, rows and error boundary, with a clock that tests set."""

import threading

import pytest

from tracer.journal import Journal
from tracer.ledger import RANK_SHIFT, Options
from tracer.recorder import Recorder
from tracer.rows import Circumstances, Encoded, ModuleSlot
from tracer.spans import ACTIVE
from tracer.trace import Trace, open_trace

PLAIN = Circumstances()


class _Clock:
    """Stands still until it is moved."""

    def __init__(self):
        self.now = 1_000

    def __call__(self):
        return self.now

    def wait(self, nanoseconds):
        self.now += nanoseconds


class _Bench:
    """A recorder on a journal in memory, its clock, and the trace that comes of it."""

    def __init__(self, options=None, folder=None, **more):
        self.clock = _Clock()
        self.journal = Journal(folder)
        self.recorder = Recorder(
            self.journal, options or Options(), **({"strict": True, "clock": self.clock} | more)
        )
        self.state = self.recorder.thread_state()

    def close(self) -> Trace:
        self.recorder.end()
        return Trace(self.journal.close({"schema_version": 1}))

    def span(self, name, **columns):
        return self.state.open("spans", "setup", name, **columns)

    def call(self, name):
        return self.state.open("calls", "forward", name, kind="forward")

    def frame(self, slot):
        """What a module's entering hook does."""
        seq = self.recorder.next_seq()
        self.state.frames.append((seq, self.state.top, slot, self.clock()))
        self.state.top = seq
        return seq

    def leave(self, made=()):
        """What its leaving hook does."""
        frame = self.state.frames.pop()
        self.state.top = frame[1]
        row = (frame, self.state.context, self.clock(), ((), made), "torch.float32", PLAIN)
        self.state.rows.append(row)


@pytest.fixture
def bench():
    """A recorder in strict mode; nothing of it is left active."""
    made = _Bench()
    yield made
    made.recorder.end()
    assert threading.get_ident() not in ACTIVE


def row_of(trace, table, name):
    """The one row of that name."""
    rows = trace[table]
    (row,) = rows[rows["name"] == name].to_dict("records")
    return row


def test_durations_are_exactly_what_the_clock_says(bench):
    bench.clock.wait(5)
    outer = bench.call("outer")
    bench.clock.wait(10)
    inner = bench.span("inner", function="f", summary={"n": 1})
    bench.clock.wait(7)
    bench.state.close(inner)
    bench.clock.wait(3)
    bench.state.close(outer)
    trace = bench.close()
    one, two = row_of(trace, "calls", "outer"), row_of(trace, "spans", "inner")
    assert (one["start_ns"], one["duration_ns"]) == (5, 20)
    assert (two["start_ns"], two["duration_ns"]) == (15, 7)
    assert two["summary"] == '{"n": 1}'


def test_parents_and_calls_follow_the_nesting(bench):
    outer = bench.call("outer")
    middle = bench.span("middle")
    inner = bench.call("inner")
    deepest = bench.span("deepest")
    for span in (deepest, inner, middle, outer):
        bench.state.close(span)
    after = bench.span("after")
    bench.state.close(after)
    events = bench.close()["events"].set_index("name")
    assert events.loc["outer", ["parent", "call"]].tolist() == [-1, outer.seq]
    assert events.loc["middle", ["parent", "call"]].tolist() == [outer.seq, outer.seq]
    assert events.loc["inner", ["parent", "call"]].tolist() == [middle.seq, inner.seq]
    assert events.loc["deepest", ["parent", "call"]].tolist() == [inner.seq, inner.seq]
    assert events.loc["after", ["parent", "call"]].tolist() == [-1, -1]


def test_a_thread_is_active_only_while_a_span_is_open(bench):
    assert threading.get_ident() not in ACTIVE
    outer, inner = bench.span("outer"), bench.span("inner")
    assert ACTIVE[threading.get_ident()] is bench.state
    bench.state.close(inner)
    assert ACTIVE[threading.get_ident()] is bench.state
    bench.state.close(outer)
    assert threading.get_ident() not in ACTIVE


def test_closing_a_span_cuts_what_is_open_above_it_as_interrupted(bench):
    outer = bench.call("outer")
    bench.span("lost")
    bench.span("lost too")
    bench.clock.wait(9)
    bench.state.close(outer, "error")
    rest = bench.span("rest")
    bench.state.close(rest)
    events = bench.close()["events"].set_index("name")
    assert events["status"].to_dict() == {
        "outer": "error", "lost": "interrupted", "lost too": "interrupted", "rest": "ok",
    }  # fmt: skip
    assert events["duration_ns"].isna().to_dict() == {
        "outer": False, "lost": True, "lost too": True, "rest": False,
    }  # fmt: skip
    assert events.loc["rest", "parent"] == -1


def test_open_module_calls_are_cut_with_the_span_below_them(bench):
    slots = [
        bench.recorder.add_slot(ModuleSlot("model-1", path, "Linear")) for path in ("a", "a.b")
    ]
    call = bench.call("outer")
    whole = bench.frame(slots[0])
    bench.clock.wait(4)
    bench.leave((1, 3))
    lost = [bench.frame(slots[0]), bench.frame(slots[1])]
    bench.state.close(call, "interrupted")
    modules = bench.close()["modules"].set_index("seq")
    assert modules.loc[whole, ["status", "duration_ns", "output_shape"]].tolist() == [
        "ok",
        4,
        "[1, 3]",
    ]
    assert modules.loc[lost, "status"].tolist() == ["interrupted"] * 2
    assert modules.loc[lost, "duration_ns"].isna().all()
    assert modules.loc[lost, "parent"].tolist() == [call.seq, lost[0]]
    assert modules.loc[lost, "path"].tolist() == ["a", "a.b"]
    assert modules["call"].tolist() == [call.seq] * 3
    assert bench.state.frames == []


def test_module_calls_bear_the_step_and_stage_of_their_context(bench):
    slot = bench.recorder.add_slot(ModuleSlot("model-1", "a", "Linear"))
    call = bench.call("generate")
    bench.frame(slot)
    bench.leave()
    bench.state.context = bench.recorder.context(call.seq, 3, "decode")
    bench.frame(slot)
    bench.leave()
    bench.state.close(call)
    modules = bench.close()["modules"]
    assert modules["stage"].tolist() == ["forward", "decode"]
    assert modules["step"].isna().tolist() == [True, False]
    assert modules["step"].iloc[1] == 3


def test_a_held_row_is_written_once_completed(bench):
    span = bench.state.open("steps", "decode", "decode 1", step=1)
    bench.clock.wait(6)
    row = bench.state.close_held(span)
    bench.clock.wait(50)
    row[1]["cache_bytes"] = 128
    bench.state.release(row)
    written = row_of(bench.close(), "steps", "decode 1")
    assert (written["duration_ns"], written["cache_bytes"], written["step"]) == (6, 128, 1)


def test_a_row_still_held_when_the_recording_ends_is_written(bench):
    bench.state.close_held(bench.state.open("steps", "decode", "decode 1", step=1))
    assert bench.close().rows("steps") == 1


def test_a_span_closed_after_the_end_is_not_written_twice(bench):
    span = bench.call("outer")
    bench.recorder.end()
    bench.state.close(span)
    assert row_of(bench.close(), "calls", "outer")["status"] == "interrupted"


def test_own_work_is_a_span_and_counted_in_its_call(bench):
    call = bench.call("outer")
    bench.clock.wait(10)
    with bench.state.own_work("reading"):
        bench.clock.wait(30)
    bench.state.close(call)
    trace = bench.close()
    assert row_of(trace, "spans", "reading")["stage"] == "recorder"
    assert row_of(trace, "spans", "reading")["duration_ns"] == 30
    assert row_of(trace, "calls", "outer")["recorder_ns"] == 30
    assert row_of(trace, "calls", "outer")["duration_ns"] == 40


def test_own_work_is_counted_also_when_it_fails(bench):
    def fail():
        bench.clock.wait(4)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), bench.state.own_work("reading"):
        fail()
    assert bench.state.recorder_ns == 4
    assert bench.state.spans == []


def test_a_strict_recorder_raises_its_own_failure_and_notes_it(bench):
    with pytest.raises(ValueError, match="ours"), bench.recorder.guard("the target"):
        raise ValueError("ours")
    assert bench.close()["faults"]["target"].tolist() == ["the target"]


def test_a_failure_of_the_recorder_is_a_fault_with_its_traceback():
    bench = _Bench(strict=False)
    with bench.recorder.guard("the target"):
        raise ValueError("ours")
    (fault,) = bench.close()["faults"].to_dict("records")
    assert fault["target"] == "the target"
    assert "ValueError('ours')" in fault["reason"]
    assert "raise ValueError" in fault["traceback"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_boundary_lets_the_users_interrupts_pass(error):
    bench = _Bench(strict=False)
    with pytest.raises(error), bench.recorder.guard("the target"):
        raise error
    assert bench.close().rows("faults") == 0


def test_the_same_fault_is_said_once(bench):
    for reason in ("why", "why", "another"):
        bench.recorder.fault("target", reason)
    assert bench.close()["faults"]["reason"].tolist() == ["why", "another"]


def test_points_stand_inside_the_open_span(bench):
    call = bench.call("outer")
    span = bench.span("inner")
    bench.recorder.add_point("messages", "recorder", "a logger", level="info", text="hello")
    bench.state.close(call)
    message = row_of(bench.close(), "messages", "a logger")
    assert (message["parent"], message["call"], message["duration_ns"]) == (span.seq, call.seq, 0)


UNSTORABLE = {
    "lone": "a\ud800b",
    "tail": "\udcff",
    "pair": "\ud83d\ude00",
    "fine": "你好 \U0001f600",
}


@pytest.mark.parametrize("text", UNSTORABLE.values(), ids=UNSTORABLE)
def test_text_that_is_not_unicode_is_stored_escaped(bench, text):
    bench.recorder.add_fact("prompts", -1, -1, row=0, text=text)
    stored = bench.close()["prompts"]["text"].iloc[0]
    assert stored.encode("utf-8")
    assert ("\\ud" in stored) == (text != UNSTORABLE["fine"])


def test_a_surrogate_inside_json_is_escaped_too(bench):
    bench.recorder.add_fact("settings", -1, -1, setting="s", asked={"k\ud800": ["v\udfff"]})
    stored = bench.close()["settings"]["asked"].iloc[0]
    assert stored.encode("utf-8")
    assert "\\ud800" in stored


def test_json_cells_are_encoded_once(bench):
    bench.recorder.add_fact("chain", -1, -1, kind="a", parameters="text")
    bench.recorder.add_fact("chain", -1, -1, kind="b", parameters=Encoded('{"n": 1}'))
    bench.recorder.add_fact("chain", -1, -1, kind="c", parameters=None)
    cells = bench.close()["chain"]["parameters"]
    assert cells.iloc[0] == '"text"'
    assert cells.iloc[1] == '{"n": 1}'
    assert cells.isna().tolist() == [False, False, True]


def test_a_column_that_the_schema_lacks_is_refused(bench):
    bench.recorder.add("prompts", {"event": -1, "colour": "red"})
    with pytest.raises(KeyError, match="colour"):
        bench.recorder.flush()


def test_redaction_empties_private_columns_and_keeps_the_rest():
    bench = _Bench(Options(redact_text=True))
    bench.recorder.add_fact("tokens", 1, 1, row=0, index=0, token_id=5, text="x", kind="text")
    tokens = bench.close()["tokens"]
    assert tokens[["token_id", "text", "vocab", "bytes_hex"]].isna().all(axis=None)
    assert tokens["kind"].tolist() == ["text"]


def test_over_its_limit_detail_goes_in_order_and_each_time_says_so():
    bench = _Bench(Options(max_bytes=1))
    for _ in range(6):
        for table in ("choices", "cache_layers", "candidates"):
            bench.recorder.add_fact(table, 1, 1, step=0)
        bench.recorder.flush()
    order = ["logits", "modules", "candidates, effects, stops", "cache_layers"]
    assert bench.recorder.dropped == ", ".join(order).split(", ")
    trace = bench.close()
    assert trace["faults"]["target"].tolist() == order
    said = "max_bytes=1 reached: not recorded from seq"
    assert trace["faults"]["reason"].str.contains(said).all()
    assert trace.rows("choices") == 6
    assert 0 < trace.rows("candidates") < trace.rows("cache_layers") < 6


def test_a_rank_numbers_its_events_apart():
    bench = _Bench(rank=3)
    span = bench.span("one")
    bench.state.close(span)
    row = row_of(bench.close(), "spans", "one")
    assert row["seq"] >> RANK_SHIFT == row["rank"] == 3


def test_every_thread_has_a_stack_of_its_own(bench):
    outer = bench.call("main")

    def work():
        state = bench.recorder.thread_state()
        span = state.open("spans", "setup", "beside")
        state.close(span)

    thread = threading.Thread(target=work, name="worker")
    thread.start()
    thread.join()
    bench.state.close(outer)
    row = row_of(bench.close(), "spans", "beside")
    assert (row["parent"], row["thread"]) == (-1, "worker")


def test_a_call_tells_the_journal_at_once_that_it_began(bench, tmp_path):
    journal = Journal(tmp_path / "run")
    recorder = Recorder(journal, Options(), clock=bench.clock)
    recorder.thread_state().open("calls", "setup", "generate", kind="generate")
    journal.release()
    (call,) = open_trace(tmp_path / "run")["calls"].to_dict("records")
    assert (call["name"], call["status"]) == ("generate", "interrupted")
    recorder.end()
    journal.close({})


def test_many_rows_at_once_are_written_like_single_ones(bench):
    bench.recorder.add_fact("choices", 1, 1, step=0, token_id=7, text="a")
    bench.recorder.add_facts("choices", 1, 2, step=[1, 2], token_id=[8, 9], text=None)
    rows = bench.close()["choices"]
    assert rows["step"].tolist() == [0, 1, 2]
    assert rows["token_id"].tolist() == [7, 8, 9]
    assert rows["text"].isna().tolist() == [False, True, True]
    assert set(rows["event"]) == {1}


def test_of_many_rows_at_once_the_one_that_cannot_be_stored_is_the_only_loss():
    bench = _Bench(strict=False)
    bench.recorder.add_facts("choices", 1, 3, step=[0, "no number", 2], token_id=5)
    trace = bench.close()
    assert trace["choices"]["step"].tolist() == [0, 2]
    assert trace["faults"]["target"].tolist() == ["choices"]


def test_rows_go_to_a_folder_once_a_second(tmp_path):
    bench = _Bench(folder=tmp_path / "run")
    bench.recorder.add_fact("choices", 1, 1, step=0)
    bench.recorder.flush_if_due(bench.state)
    assert bench.journal.bytes_written == 0
    bench.clock.wait(1_000_000_001)
    bench.recorder.flush_if_due(bench.state)
    assert bench.journal.bytes_written > 0
    bench.close()


def test_rows_in_memory_wait_until_there_are_many(bench):
    bench.recorder.add_fact("choices", 1, 1, step=0)
    bench.clock.wait(1_000_000_001)
    bench.recorder.flush_if_due(bench.state)
    assert bench.journal.bytes_written == 0
    bench.recorder.add_facts("choices", 1, 4096, step=list(range(1, 4097)))
    bench.recorder.flush_if_due(bench.state)
    assert bench.journal.bytes_written > 0


def test_ids_of_objects_are_stable_and_hold_nothing(bench):
    class Thing:
        pass

    one, two = Thing(), Thing()
    assert [bench.recorder.models.of(thing) for thing in (one, two, one)] == [
        "model-1", "model-2", "model-1",
    ]  # fmt: skip
    del two
    assert bench.recorder.models.alive() == [one]


def test_an_observer_that_fails_at_the_end_leaves_the_others():
    bench, told = _Bench(strict=False), []
    bench.recorder.at_end.extend([lambda: 1 / 0, lambda: told.append(True)])
    bench.recorder.finish()
    assert told == [True]
    assert bench.close()["faults"]["target"].tolist() == ["end of the recording"]


def test_what_a_call_left_is_written_though_nothing_follows(tmp_path):
    folder = tmp_path / "run"
    bench = _Bench(folder=folder)
    bench.state.close(bench.call("load"))
    (waiting,) = [one for one in threading.enumerate() if one.name == "tracer-journal"]
    waiting.join()
    trace = open_trace(folder)  # as a kill would leave it
    assert trace["calls"]["status"].tolist() == ["ok"]
    bench.close()


def test_nobody_waits_once_the_recording_is_over(tmp_path):
    bench = _Bench(folder=tmp_path / "run")
    bench.state.close(bench.call("load"))
    bench.close()
    assert "tracer-journal" not in [one.name for one in threading.enumerate()]


def test_a_recording_in_memory_needs_no_thread():
    bench = _Bench()
    bench.state.close(bench.call("load"))
    assert "tracer-journal" not in [one.name for one in threading.enumerate()]
    bench.close()
