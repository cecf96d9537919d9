"""Several ranks: each records for itself, and the folder of the run opens as one trace."""

import json
import shutil
import sys
import threading

import pyarrow.compute as pc
import pytest
from synthetic import MANIFEST, STARTS, as_batch, coherent_rows, starts

from tracer.errors import IncompleteTraceWarning, StorageError, TraceFormatError
from tracer.explain import language
from tracer.export.perfetto import write_perfetto
from tracer.journal import Journal
from tracer.ranks import Rank, current_rank, rank_folders
from tracer.schema import EVENT_TABLES, TABLES
from tracer.shortcomings import rank_names
from tracer.trace import open_trace, read_csv

SHIFT = 1 << 40
SECOND = 10**9
TARGETS = [{"target": "generate", "expected": True, "seen": 1}]


def rows_of(number):
    """The coherent trace as rank `number` would record it."""
    rows = coherent_rows()
    for records in rows.values():
        for record in records:
            record["rank"] = number
            for name in {"seq", "parent", "call", "event"} & set(record):
                record[name] += SHIFT * number if record[name] >= 0 else 0
    rows["stacks"] = [{"stack": "k1", "frames": [f"user.py:{number}"]}]
    rows["sources"] = [
        {"source": "transformers/modeling_utils.py:3900", "function": "load", "first_line": 3900},
        {"source": "user.py:1", "function": f"of_rank_{number}", "first_line": 1},
    ]
    rows["calls"][1]["source"] = "user.py:1"
    return rows


def manifest_of(number, world_size=2, **changed):
    clock = {"wall_ns": 50 * SECOND + number, "monotonic_ns": 9 * SECOND, "origin_ns": 8 * SECOND}
    own = {"clock": clock, "duration_ns": 3 * SECOND, "targets": TARGETS, "ended": "completed"}
    return {**MANIFEST, **Rank(number, world_size, "start").fields(), **own, **changed}


def write_rank(folder, number, world_size=2, **changed):
    """One rank's recording, closed."""
    rank = Rank(number, world_size, "start")
    journal = Journal(folder, rank=rank)
    for table, records in rows_of(number).items():
        if records:
            records = [
                {name: cell for name, cell in record.items() if name in TABLES[table].column_names}
                for record in records
            ]
            journal.append(table, as_batch(table, records))
    journal.close(manifest_of(number, world_size, **changed))
    return folder / rank.folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of two ranks, for tests that change nothing in it."""
    folder = tmp_path_factory.mktemp("ranks") / "run"
    for number in (0, 1):
        write_rank(folder, number)
    return folder


@pytest.fixture
def run(whole, tmp_path):
    """A copy of it that a test may damage."""
    return shutil.copytree(whole, tmp_path / "run")


def changed_manifest(folder, **fields):
    file = folder / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


@pytest.mark.parametrize(
    ("told", "rank"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4"}, (1, 4)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1)),
        ({"RANK": "1"}, (0, 1)),
        ({"WORLD_SIZE": "4"}, (0, 1)),
        ({"RANK": "one", "WORLD_SIZE": "4"}, (0, 1)),
        ({"RANK": "4", "WORLD_SIZE": "4"}, (0, 1)),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, (0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "9" * 30}, (0, 1)),
    ],
)
def test_a_rank_is_what_the_launcher_told(monkeypatch, told, rank):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    found = current_rank()
    assert (found.number, found.world_size) == rank


def test_ranks_are_named_shortly():
    assert str(rank_names([3])) == "rank 3"
    assert str(rank_names([0, 1])) == "ranks 0, 1"
    assert str(rank_names([0, 1, 2, 5, 7, 8, 9])) == "ranks 0-2, 5, 7-9"


def test_the_folder_of_a_run_opens_as_one_trace(run):
    trace = open_trace(run)
    assert trace.manifest["state"] == "complete"
    assert [rank["rank"] for rank in trace.manifest["ranks"]] == [0, 1]
    assert trace.rows("steps") == 8
    assert trace["steps"]["rank"].tolist() == [0] * 4 + [1] * 4
    assert trace["events"]["seq"].is_monotonic_increasing
    assert open_trace(run / "rank-00001").rows("steps") == 4


def test_keys_are_unique_over_all_ranks(run):
    trace = open_trace(run)
    for table in trace.tables:
        assert not trace[table].duplicated(list(TABLES[table].key)).any(), table


def test_every_reference_still_leads_to_its_row(run):
    trace = open_trace(run)
    assert set(trace["models"]["model"]) == {"r0/m1", "r1/m1"}
    for table in trace.tables:
        frame = trace[table]
        for column in {"model", "stack", "source"} & set(frame.columns):
            known = trace[{"model": "models", "stack": "stacks", "source": "sources"}[column]]
            used = set(frame[column].dropna())
            if table != "modules" or column == "model":
                assert used <= set(known[column]), (table, column)
    assert set(trace["steps"]["cache"]) == set(trace["cache_layers"]["cache"])


def test_a_source_that_ranks_share_is_one_row_and_another_text_is_another(run):
    sources = open_trace(run)["sources"].set_index("source")["function"].to_dict()
    assert sources == {
        "transformers/modeling_utils.py:3900": "load",
        "user.py:1": "of_rank_0",
        "r1/user.py:1": "of_rank_1",
    }
    calls = open_trace(run)["calls"]
    assert calls.loc[calls["kind"] == "generate", "source"].tolist() == [
        "user.py:1",
        "r1/user.py:1",
    ]


def test_times_of_ranks_on_one_machine_are_brought_together_by_the_wall_clock(run):
    clock = {"wall_ns": 100 * SECOND, "monotonic_ns": 2 * SECOND, "origin_ns": SECOND}
    changed_manifest(run / "rank-00000", clock=clock)
    clock = {"wall_ns": 101 * SECOND, "monotonic_ns": 77 * SECOND, "origin_ns": 76 * SECOND}
    changed_manifest(run / "rank-00001", clock=clock)
    trace = open_trace(run)
    starts = trace["calls"].groupby("rank")["start_ns"].min()
    assert starts.to_dict() == {0: 0, 1: SECOND}
    assert trace.manifest["provenance"] == {"start_ns": "derived"}
    assert trace.manifest["time_line"] == "the wall clock"
    assert trace.manifest["duration_ns"] == 4 * SECOND
    assert "derived" in trace.summary()


@pytest.mark.parametrize(
    ("paired", "shift"), [("after a barrier", 7), ("alone", 3_600 * SECOND + 7)]
)
def test_times_of_two_machines_are_brought_together_by_the_barrier(run, paired, shift):
    """The second machine's wall clock is an hour off; the barrier was left at the same moment."""
    for number, (host, wall, origin) in enumerate([("a", 0, 10), ("b", 3_600 * SECOND, 17)]):
        clock = {"wall_ns": wall, "monotonic_ns": 20, "origin_ns": origin, "paired": paired}
        changed_manifest(run / f"rank-0000{number}", clock=clock, machine={"host": host})
    trace = open_trace(run)
    assert [rank["shift_ns"] for rank in trace.manifest["ranks"]] == [0, shift]


def test_without_clocks_each_rank_keeps_its_own_start_and_the_manifest_says_so(run):
    changed_manifest(run / "rank-00001", clock={})
    trace = open_trace(run)
    assert "own start" in trace.manifest["time_line"]
    try:
        language("zh")
        assert "对齐依据：各 rank 自己的起点" in trace.summary()
    finally:
        language("en")
    assert {rank["shift_ns"] for rank in trace.manifest["ranks"]} == {0}


@pytest.mark.parametrize(
    "where",
    [
        [("rank", "==", 1), ("step", ">", 1)],
        [("start_ns", ">=", 0), ("rank", "==", 1), ("step", ">", 1)],
        [("model", "==", "r1/m1"), ("step", ">", 1)],
        (pc.field("cache") == "r1/c1") & (pc.field("step") > 1),
    ],
)
def test_conditions_columns_and_limits_work_on_what_merging_changed(run, where):
    trace = open_trace(run)
    assert trace.read("steps", ["step", "model"], where).to_dict("list") == {
        "step": [2, 3],
        "model": ["r1/m1"] * 2,
    }
    assert trace.read("steps", ["cache"], where, limit=1)["cache"].tolist() == ["r1/c1"]
    batches = trace.store.batches("steps", ["step"], where)
    assert [step for batch in batches for step in batch["step"].to_pylist()] == [2, 3]


def test_only_what_is_asked_for_is_read(run):
    """Tables that nobody asks for may be destroyed behind the opened trace."""
    trace = open_trace(run)
    for folder in rank_folders(run).values():
        for file in folder.glob("*.parquet"):
            if file.stem != "steps":
                file.write_bytes(b"gone")
    assert len(trace.read("steps", ["step", "model", "start_ns"])) == 8


@pytest.mark.parametrize("name", ["copy", "copy.zip", "csv", "parquet"])
def test_a_copy_of_a_run_is_one_equal_trace(run, tmp_path, name):
    trace = open_trace(run)
    if name == "csv":
        copy = read_csv(trace.to_csv(tmp_path / name))
    else:
        write = trace.to_parquet if name == "parquet" else trace.save
        copy = open_trace(write(tmp_path / name))
    assert copy.equals(trace)
    assert copy.manifest["provenance"] == {"start_ns": "derived"}
    assert copy.summary() == trace.summary()
    assert copy.audit().equals(trace.audit())


def test_a_timeline_has_one_process_a_rank(run, tmp_path):
    path = write_perfetto(open_trace(run).store, tmp_path / "x.json")
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}


def test_scrubbing_a_run_scrubs_every_rank(run):
    changed_manifest(run / "rank-00001", ended="ValueError: the secret", machine={"host": "ada-pc"})
    scrubbed = open_trace(run).scrub()
    told = json.dumps(scrubbed.manifest)
    assert "secret" not in told
    assert "ada-pc" not in told
    assert scrubbed.manifest["ranks"][1]["ended"] == "ValueError"
    assert scrubbed["tokens"]["token_id"].isna().all()
    assert "2 ranks" in scrubbed.summary()
    audit = scrubbed.audit().set_index("check")
    assert audit.loc["6 ids = choices", "verdict"] == "not applicable"
    assert "broken" not in set(audit["verdict"])


def test_the_summary_says_how_many_ranks_there_are(run):
    text = open_trace(run).summary()
    assert text.startswith("Trace complete: 2 ranks.\nHow ranks 0, 1 ended: completed\n")
    assert "4 calls, 2 models" in text
    assert "r1/m1" in text


def test_each_rank_is_audited_and_one_that_breaks_is_named(run):
    audit = open_trace(run).audit().set_index("check")
    assert "broken" not in set(audit["verdict"])
    assert audit.loc["0 ranks whole", ["verdict", "found"]].tolist() == ["holds", "2 of 2 ranks"]
    assert audit.loc["6 tokens = choices", "found"] == "ranks 0, 1: 4 choices, 4 tokens"
    changed_manifest(run / "rank-00001", targets=[{**TARGETS[0], "seen": 0}])
    row = open_trace(run).audit().set_index("check").loc["8 targets seen"]
    assert row["verdict"] == "broken"
    assert row["evidence"] == '["rank 1: generate"]'
    assert "rank 1: 1 target expected, 1 never seen" in row["found"]


def test_a_rank_that_was_killed_is_named_and_the_others_are_whole(run):
    shutil.rmtree(run / "rank-00001")
    journal = Journal(run, rank=Rank(1, 2, "start"))
    journal.describe({"clock": manifest_of(1)["clock"], **Rank(1, 2, "start").fields()})
    opened = [
        {**start, "rank": 1, "seq": start["seq"] + SHIFT, "call": start["call"] + SHIFT}
        for start in STARTS
    ]
    journal.append_starts(starts(*opened))
    journal.append("steps", as_batch("steps", rows_of(1)["steps"]))
    journal.release()
    trace = open_trace(run)
    assert trace.manifest["state"] == "interrupted"
    text = trace.summary()
    assert text.startswith("Trace interrupted: 2 ranks.\nRank 1 interrupted: its recording never")
    assert "2 open spans" in text
    assert trace.rows("steps") == 8
    assert trace.read("calls", ["status"], [("rank", "==", 1)])["status"].tolist() == [
        "interrupted"
    ]
    assert set(trace["steps"]["cache"]) == {"r0/c1", "r1/c1"}
    assert "broken" not in set(trace.audit()["verdict"])
    assert open_trace(trace.save(run.parent / "x.zip")).summary() == text


def test_a_rank_whose_disk_was_full_says_so(run):
    changed_manifest(run / "rank-00001", storage_failure="[Errno 28] No space left on device")
    assert "Rank 1: the disk refused while recording: [Errno 28]" in open_trace(run).summary()


@pytest.mark.parametrize("left", [(0,), (1,)])
def test_a_missing_rank_is_named(run, left):
    (gone,) = {0, 1} - set(left)
    shutil.rmtree(run / f"rank-0000{gone}")
    with pytest.warns(IncompleteTraceWarning, match=f"nothing is there of rank {gone}"):
        trace = open_trace(run)
    assert trace.manifest["state"] == "interrupted"
    assert trace.summary().startswith("Trace interrupted: 1 rank of 2.\n")
    assert f"Not complete: nothing is there of rank {gone}\n" in trace.summary()
    row = trace.audit().set_index("check").loc["0 ranks whole"]
    assert row["verdict"] == "broken"
    assert row["evidence"] == f'["rank {gone} is missing"]'


def test_a_rank_killed_before_it_wrote_anything_is_missing(run):
    shutil.rmtree(run / "rank-00001")
    (run / "rank-00001").mkdir()
    with pytest.warns(IncompleteTraceWarning, match="rank 1"):
        open_trace(run)


def test_a_file_removed_from_one_rank_is_named_with_the_rank(run):
    (run / "rank-00001" / "tokens.parquet").unlink()
    message = "tokens of rank 1: 12 rows were written, none is there"
    with pytest.warns(IncompleteTraceWarning, match=message):
        trace = open_trace(run)
    assert message in trace.summary()
    assert len(trace["tokens"]) == 12
    audit = trace.audit().set_index("check")
    assert audit.loc["0 tables whole", "verdict"] == "broken"
    assert "rank 0: 4 choices" in audit.loc["6 tokens = choices", "found"]
    assert "rank 1: tokens no longer whole" in audit.loc["6 tokens = choices", "found"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"launch": "other"}, "rank 1 is of another start than rank 0"),
        ({"world_size": 3}, "rank 1 is of another number of ranks than rank 0"),
        (
            {"clock": {"wall_ns": 99 * SECOND, "monotonic_ns": 0, "origin_ns": 0}},
            "rank 1 began after rank 0 had ended",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::tracer.errors.IncompleteTraceWarning")
def test_ranks_of_two_runs_are_told_apart(run, changed, message):
    changed_manifest(run / "rank-00001", **changed)
    trace = open_trace(run)
    assert message in trace.summary()
    assert trace.audit().set_index("check").loc["0 ranks whole", "verdict"] == "broken"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rank": 0}, "folder of rank 1 holds a recording of rank 0"),
        ({"world_size": 10**9}, "no run has more than"),
        ({"clock": {"wall_ns": 10**30, "monotonic_ns": 0, "origin_ns": 0}}, "'clock'"),
        ({"targets": 3}, r"rank-00001.*'targets' holds 3"),
        ({"machine": {"host": []}}, None),
    ],
)
def test_an_impossible_manifest_of_a_rank_is_one_sentence(run, changed, message):
    changed_manifest(run / "rank-00001", **changed)
    if message is None:
        assert open_trace(run).summary()
        return
    with pytest.raises(TraceFormatError, match=message):
        open_trace(run)


def claims(folder, if_exists, world_size=2, launch="start"):
    """All ranks of one start claim their folders at the same time; where each records."""
    found = {}

    def claim(number):
        found[number] = Journal(
            folder, if_exists=if_exists, rank=Rank(number, world_size, launch)
        ).folder

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [str(found[number].relative_to(folder.parent)) for number in sorted(found)]


def test_ranks_of_one_start_share_a_folder_and_those_of_the_next_find_the_next(tmp_path):
    assert claims(tmp_path / "run", "number") == ["run/rank-00000", "run/rank-00001"]
    assert claims(tmp_path / "run", "number") == ["run-2/rank-00000", "run-2/rank-00001"]
    assert claims(tmp_path / "run", "number", 4, "next") == [
        f"run-3/rank-0000{number}" for number in range(4)
    ]


def test_a_smaller_run_replaces_a_larger_one(tmp_path):
    claims(tmp_path / "run", "error", 4)
    assert claims(tmp_path / "run", "replace", 2, "next") == ["run/rank-00000", "run/rank-00001"]
    assert list(rank_folders(tmp_path / "run")) == [0, 1]


@pytest.mark.parametrize("number", [0, 3])
def test_a_rank_of_another_run_is_refused_although_its_own_place_is_free(tmp_path, number):
    claims(tmp_path / "run", "error", 2)
    with pytest.raises(StorageError, match="already a trace"):
        Journal(tmp_path / "run", rank=Rank(number, 4, "next"))


def test_a_trace_of_one_process_and_a_run_of_ranks_replace_each_other(tmp_path):
    folder = tmp_path / "run"
    Journal(folder).close({})
    with pytest.raises(StorageError, match="already a trace"):
        Journal(folder, rank=Rank(1, 2, "start"))
    claims(folder, "replace")
    assert not (folder / "manifest.json").exists()
    with pytest.raises(StorageError, match="already a trace"):
        Journal(folder)
    Journal(folder, if_exists="replace").close({})
    assert {path.name for path in folder.iterdir()} == {"manifest.json"}


def test_ranks_that_make_way_at_the_same_moment_all_get_their_places(tmp_path):
    """Each may look at a folder while another one empties it, whatever lay there."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(60):
            folder = tmp_path / f"run-{number}"
            if number % 2:
                Journal(folder).close({})
            else:
                claims(folder, "error", 4, "before")
            places = claims(folder, "replace", 3)
            assert places == [f"{folder.name}/rank-0000{rank}" for rank in range(3)]
    finally:
        sys.setswitchinterval(interval)


def test_a_stranger_in_the_folder_of_a_rank_is_never_touched(tmp_path):
    own = tmp_path / "run" / "rank-00000"
    own.mkdir(parents=True)
    (own / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="no trace"):
        Journal(tmp_path / "run", if_exists="replace", rank=Rank(0, 2, "start"))
    assert (own / "notes.txt").read_text() == "mine"


def test_events_of_all_tables_are_there(run):
    trace = open_trace(run)
    rows = coherent_rows()
    assert trace.rows("events") == 2 * sum(len(rows.get(name, [])) for name in EVENT_TABLES)
