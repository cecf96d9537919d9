"""A copy that can be shared: no path, host or text is left, kinds and numbers are."""

import json
from pathlib import Path

import pytest
from synthetic import GENERATED, coherent_rows, make_trace

from tracer.rows import batch
from tracer.schema import PRIVATE_COLUMNS, TABLES


@pytest.fixture
def rows():
    """Rows of the coherent trace, to be changed."""
    return coherent_rows()


SECRETS = ["zorba", "kazan", "hunter2", "schnee", "laptop", "word5", "banned", "nas01"]


@pytest.fixture
def private(rows):
    """A trace with secrets in every corner."""
    home = "/home/zorba kazan/models"
    rows["models"][0] |= {"asked": f"{home}/tiny", "folder": "C:\\Users\\zorba\\models\\tiny"}
    rows["stacks"][0]["frames"] = [f"{home}/run.py:3 <module>", r"\\nas01\share\x.py:4 main"]
    rows["prompts"] = [{"event": 1, "row": 0, "text": "who is hunter2"}]
    rows["segments"] = [{"event": 1, "row": 0, "start": 0, "end": 3, "text": "hunter2"}]
    rows["messages"] = [{"seq": 700, "level": "warning", "text": "schnee in ~/kazan/x"}]
    rows["faults"] = [
        {"seq": 701, "target": "x", "reason": f"no file '{home}/a.py'", "traceback": "schnee"}
    ]
    rows["settings"].append(
        {"event": 1, "scope": "generate", "setting": "stop_strings", "asked": ["schnee"]}
    )
    rows["chain"].append(
        {"event": 1, "kind": "processor", "index": 0}
        | {"parameters": {"words": ["banned"], "penalty": 1.5}}
    )
    rows["logits"] = [{"event": 1, "step": 0, "row": 0, "dtype": "float32", "values": b"hunter2"}]
    manifest = {
        "machine": {"host": "laptop", "platform": "Linux laptop 6.1", "user": "kazan"},
        "options": {"path": f"{home}/run", "top_k": 2},
        "ended": "ValueError: schnee is no image",
        "argv": ["~/kazan/run.py", "--root=/srv/zorba/x"],
    }
    return make_trace(rows, manifest=manifest)


def plain_bytes(trace, folder):
    """Everything that a trace says, uncompressed, in lower case."""
    trace.to_csv(folder)
    return b"".join(path.read_bytes() for path in Path(folder).iterdir()).lower()


def test_a_scrubbed_trace_holds_no_secret(private, tmp_path):
    before = plain_bytes(private, tmp_path / "before")
    after = plain_bytes(private.scrub(), tmp_path / "after")
    assert [secret for secret in SECRETS if secret.encode() not in before] == []
    assert [secret for secret in SECRETS if secret.encode() in after] == []


def test_a_scrubbed_zip_holds_no_secret_in_its_raw_bytes(private, tmp_path):
    raw = private.scrub().save(tmp_path / "shared.zip").read_bytes().lower()
    assert [secret for secret in SECRETS if secret.encode() in raw] == []


def test_scrubbing_keeps_kinds_counts_and_numbers(private):
    shared = private.scrub()
    assert shared.tables == private.tables
    for table, columns in [
        ("tokens", ["kind", "origin", "position", "attended"]),
        ("choices", ["probability", "raw_rank", "finish"]),
        ("steps", None),
    ]:
        assert shared.arrow(table, columns).equals(private.arrow(table, columns))
    assert shared["tokens"][["token_id", "vocab", "bytes_hex", "text"]].isna().all(axis=None)
    assert json.loads(shared["chain"]["parameters"].iloc[-1]) == {"penalty": 1.5}
    assert shared.manifest["scrubbed"] == ["paths", "host", "text"]
    assert shared.manifest["ended"] == "ValueError"
    assert shared.manifest["options"] == {"path": "<path1>/run", "top_k": 2}
    assert list(private["choices"]["token_id"]) == GENERATED


def test_a_folder_has_one_placeholder_and_names_stay_apart(rows):
    rows["sources"] += [
        {"source": "/home/x/a/model.py:1"},
        {"source": "/home/x/b/model.py:1"},
        {"source": "/home/x/a/other.py:1"},
    ]
    keys = list(make_trace(rows).scrub()["sources"]["source"])
    assert keys[0] == "transformers/modeling_utils.py:3900"
    assert len(set(keys)) == len(keys)
    first, second, third = (key.split("/")[0] for key in keys[2:])
    assert first == third != second


@pytest.mark.parametrize("kept", ["paths", "host", "text"])
def test_what_need_not_be_scrubbed_stays(private, tmp_path, kept):
    said = plain_bytes(private.scrub(**{kept: False}), tmp_path / "csv")
    secret = {"paths": b"/home/zorba kazan", "host": b"laptop", "text": b"who is hunter2"}
    assert {name for name, text in secret.items() if text in said} == {kept}


def test_an_interrupted_trace_stays_interrupted_when_scrubbed(private):
    private.manifest["state"] = "interrupted"
    assert private.scrub().manifest["state"] == "interrupted"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("/home/ada/models/tiny", "<path1>/tiny"),
        ("/home/ada", "<path1>/home"),
        ("C:\\Users\\ada", "<path1>/home"),
        ("open /home/A B/my models/x.py:12 main", "open <path1>/x.py:12 main"),
        ("at '/p/q/z' and '/p/q/y'", "at '<path1>/z' and '<path1>/y'"),
        ("file:///home/x/y.txt", "file:/<path1>/y.txt"),
        ("d:/data/模型/x", "<path1>/x"),
        ("root=/a/b", "root=<path1>/b"),
        ("https://hub.example/org/name", "https://hub.example/org/name"),
        ("org/name", "org/name"),
        ("transformers/models/x.py:3", "transformers/models/x.py:3"),
        ("./run/x/y", "./run/x/y"),
        ("</b></i> 1/2/3", "</b></i> 1/2/3"),
    ],
)
def test_absolute_paths_are_hidden_and_nothing_else(text, hidden):
    trace = make_trace({"faults": [{"seq": 1, "reason": text}]}, manifest={"note": text})
    shared = trace.scrub(host=False, text=False)
    assert shared["faults"]["reason"][0] == hidden
    assert shared.manifest["note"] == hidden


SAMPLES = {"integer": 7, "text": "hunter2", "json": ["hunter2"], "bytes": b"hunter2"}


@pytest.mark.parametrize("table", PRIVATE_COLUMNS)
def test_a_redacted_recording_keeps_the_row_and_empties_its_private_columns(table):
    private = PRIVATE_COLUMNS[table]
    columns = [column for column in TABLES[table].columns if column.kind in SAMPLES]
    row = {column.name: SAMPLES[column.kind] for column in columns}
    redacted, plain = (batch(table, [row], redact).to_pylist()[0] for redact in (True, False))
    assert {name for name in row if redacted[name] is None} == private
    assert {name: plain[name] for name in private} == {name: row[name] for name in private}


def test_raw_logits_are_private():
    row = {"call": 1, "step": 0, "row": 0, "dtype": "float32", "values": b"hunter2"}
    assert "values" in PRIVATE_COLUMNS["logits"]
    redacted = batch("logits", [row], True).to_pylist()[0]
    assert redacted["values"] is None
    assert redacted["dtype"] == "float32"
