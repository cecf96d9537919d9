"""The command line: what each command prints, its exit codes, and what it leaves alone."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import coherent_rows, make_trace

import tracer
from tracer import cli, explain
from tracer.explain import languages


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Give a small trace on disk."""
    path = tmp_path_factory.mktemp("cli") / "trace"
    make_trace(coherent_rows(), path)
    return path


# Processes of their own import this checkout, from whatever folder they run in.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(tracer.__file__).parent.parent)}


def run(*arguments, cwd=None, **options):
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "tracer", *map(str, arguments)]
    options = {"capture_output": True, "text": True, **options}
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, **options)


def test_show_prints_summary_and_every_verdict_of_the_audit(folder, capsys):
    assert cli.main(["show", str(folder)]) == 0
    shown = capsys.readouterr().out
    trace = tracer.open_trace(folder)
    assert shown.startswith(trace.summary())
    verdicts = trace.audit()
    for row in verdicts.itertuples():
        assert f"  {row.verdict:14}  {row.check}: {row.found}\n" in shown
    assert shown.count("expected: ") == list(verdicts.verdict).count("broken")


def test_play_writes_a_page_and_opens_it(folder, tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    page = tmp_path / "pages" / "run.html"
    assert cli.main(["play", str(folder), "--out", str(page)]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    assert opened == [page.resolve().as_uri()]
    assert 'id="tracer-replay"' in page.read_text("utf-8")


def test_play_without_a_place_writes_to_a_temporary_one(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert cli.main(["play", str(folder)]) == 0
    page, hint = capsys.readouterr().out.splitlines()
    assert Path(page).is_relative_to(tmp_path)
    assert "no browser" in hint
    assert cli.main(["play", str(folder), "--no-browser"]) == 0
    assert "no browser" not in capsys.readouterr().out


def test_play_and_pages_load_no_torch(folder, tmp_path):
    page = str(tmp_path / "run.html")
    code = (
        "import sys; from tracer import cli; "
        f"cli.main(['play', {str(folder)!r}, '--no-browser', '--out', {page!r}])"
        "; assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT)


def test_export_writes_a_page_where_html_is_asked_for(folder, tmp_path, capsys):
    page = tmp_path / "run.html"
    assert cli.main(["export", str(folder), str(page), "--html"]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    assert page.is_file()
    (tmp_path / "mine.html").write_text("mine")
    assert cli.main(["export", str(folder), str(tmp_path / "mine.html"), "--html"]) == 2
    assert "no page of the lab" in capsys.readouterr().err


def test_show_prints_the_first_rows_by_start_and_says_how_many_there_are(folder, capsys):
    table = tracer.open_trace(folder)["modules"]
    assert (
        cli.main(["show", str(folder), "modules", "--columns", "seq, class_name", "--limit", "2"])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["seq", "class_name"],
        *([str(seq), name] for seq, name in zip(table.seq[:2], table.class_name[:2], strict=True)),
    ]
    assert lines[3] == f"... 2 of {len(table)} rows; --limit shows more"


@pytest.fixture
def english_again():
    yield
    tracer.language("en")


@pytest.mark.parametrize("asked", [["--lang", "zh"], ["--lang=zh"]])
def test_show_speaks_chinese_when_asked_to(asked, folder, capsys, english_again):
    assert cli.main([*asked, "show", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(tracer.open_trace(folder).summary())
    assert "\n审计\n" in shown
    assert re.search(r"\n  成立    3 文件的字节数：", shown)
    assert not re.search("Trace|Audit|holds|not applicable", shown)


def test_a_table_in_chinese_has_words_over_its_names(folder, capsys, english_again):
    arguments = ["--lang", "zh", "show", str(folder), "modules", "--columns", "seq,class_name"]
    assert cli.main([*arguments, "--limit", "1"]) == 0
    words, names, *_, last = capsys.readouterr().out.splitlines()
    assert (words.split(), names.split()) == (["编号", "类"], ["seq", "class_name"])
    count = tracer.open_trace(folder).rows("modules")
    assert last == f"……共 {count} 行，显示 1 行；用 --limit 显示更多"


def test_help_speaks_chinese_too(capsys, monkeypatch, english_again):
    monkeypatch.setenv("TRACER_LANG", "zh")
    with pytest.raises(SystemExit):
        cli.main(["show", "--help"])
    assert "打印一份记录的摘要和审计" in capsys.readouterr().out


def test_a_language_that_the_lab_does_not_speak_is_one_line(capsys, monkeypatch):
    monkeypatch.setenv("TRACER_LANG", "xx")
    assert cli.main(["show", "anything"]) == 2
    assert "does not speak 'xx'" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "spoken"), [("zh", "zh"), ("xx", "en"), ("", "en")])
def test_the_environment_chooses_the_language_at_first(code, spoken):
    told = subprocess.run(
        [sys.executable, "-c", "import tracer; print(tracer.language())"],
        env=ENVIRONMENT | {"TRACER_LANG": code}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == spoken


def test_an_option_of_a_recorded_script_is_the_scripts(tmp_path, capsys):
    script = tmp_path / "own.py"
    script.write_text("import sys; print(sys.argv[1:])")
    out = str(tmp_path / "out")
    assert run("record", "--out", out, script, "--lang", "zh").stdout == "['--lang', 'zh']\n"


def test_every_check_of_the_audit_has_words(folder):
    named = {*tracer.open_trace(folder).audit()["check"], "holds", "broken", "not applicable"}
    for code in explain.LANGUAGES:
        assert named <= set(languages.words("audit", code)["audit"])


def test_show_of_a_whole_table_says_nothing_more(folder, capsys):
    assert cli.main(["show", str(folder), "modules", "--limit", "1000000"]) == 0
    assert "rows; --limit" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "no/such/folder"],
        ["show", "{trace}", "no_such_table"],
        ["show", "{trace}", "modules", "--columns", "no_such_column"],
        ["export", "no/such/folder", "{trace}-out"],
    ],
)
def test_what_the_lab_refuses_is_one_line_and_exit_code_2(arguments, folder, capsys):
    assert cli.main([text.replace("{trace}", str(folder)) for text in arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("tracer: ")
    assert shown.err.count("\n") == 1


def test_export_writes_csv_that_reads_back_equal(folder, tmp_path, capsys):
    assert cli.main(["export", str(folder), str(tmp_path / "csv")]) == 0
    assert str(tmp_path / "csv") in capsys.readouterr().out
    back, trace = tracer.read_csv(tmp_path / "csv"), tracer.open_trace(folder)
    assert back.tables == trace.tables
    assert back["modules"].equals(trace["modules"])


def test_export_for_people_writes_a_mark_that_spreadsheets_know(folder, tmp_path):
    assert cli.main(["export", str(folder), str(tmp_path / "csv"), "--excel"]) == 0
    assert (tmp_path / "csv" / "modules.csv").read_bytes().startswith(b"\xef\xbb\xbf")


def test_export_writes_parquet_files(folder, tmp_path):
    import pyarrow.parquet

    assert cli.main(["export", str(folder), str(tmp_path / "out"), "--parquet"]) == 0
    rows = pyarrow.parquet.read_metadata(tmp_path / "out" / "modules.parquet").num_rows
    assert rows == len(tracer.open_trace(folder)["modules"])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-command"],
        ["show"],
        ["record", "no_such_script.py"],
        ["export", "a", "b", "--excel", "--parquet"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert "usage: python -m tracer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain 你好 é\n", "plain 你好 é\n"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("a\rb", r"a\rb"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\x9b1m", r"\x9b1m"),
        ("half \ud83d", r"half \ud83d"),
    ],
)
def test_cells_can_not_repaint_the_terminal(text, shown, capsys):
    cli._say(text)
    assert capsys.readouterr().out == f"{shown}\n"


def test_a_reader_that_went_away_is_no_traceback(folder):
    reading, writing = os.pipe()
    os.close(reading)
    shown = run("show", folder, capture_output=False, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert shown.returncode == 1
    assert shown.stderr == ""


def test_replay_commands_load_no_torch(folder, tmp_path):
    code = (
        "import sys; from tracer.cli import main\n"
        f"main(['show', {str(folder)!r}]); main(['export', {str(folder)!r}, 'csv'])\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
    )


def test_check_prints_each_item_once(capsys):
    assert cli.main(["check"]) == 0
    assert capsys.readouterr().out.count("front end") == 1


SCRIPT = """\
import sys
import neighbour
if __name__ == "__main__":
    print(sys.argv[1:], neighbour.WORD)
    {last}
"""


@pytest.fixture
def script(tmp_path):
    """Write a script with a module beside it; the test says how it ends."""

    def write(last):
        (tmp_path / "neighbour.py").write_text("WORD = 'beside'\n")
        path = tmp_path / "walk.py"
        path.write_text(SCRIPT.format(last=last))
        return path

    return write


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('no')", 1),
        ("raise ValueError('its own')", 1),
        ("import tracer; raise tracer.StorageError('its own')", 1),
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_a_recorded_script_sees_its_arguments_and_keeps_its_exit_code(last, code, script, tmp_path):
    shown = run("record", script(last), "--limit", "1", "-x", cwd=tmp_path)
    assert shown.stdout == "['--limit', '1', '-x'] beside\n"
    assert shown.returncode == code
    assert f"tracer: the trace is in {Path('runs') / 'walk'}" in shown.stderr
    assert tracer.open_trace(tmp_path / "runs" / "walk").manifest


def test_a_recorded_script_fails_with_the_traceback_that_python_would_print(script, tmp_path):
    path = script("raise ValueError('its own')")
    alone = subprocess.run(
        [sys.executable, path, "a"], cwd=tmp_path, capture_output=True, text=True
    )
    recorded = run("record", path, "a", cwd=tmp_path)
    assert recorded.stderr.partition("\n")[2] == alone.stderr


def test_a_second_recording_of_a_script_takes_the_next_number(script, tmp_path):
    path = script("pass")
    for _ in range(2):
        run("record", "--out", "here", "--detail", "stages", path, cwd=tmp_path, check=True)
    assert (tmp_path / "here").is_dir()
    assert (tmp_path / "here-2").is_dir()


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    """Give a current folder with one executed notebook, for a checkout that has none."""
    code = {"cell_type": "code", "source": "1", "outputs": [{"a": 1}], "execution_count": 7}
    content = {"cells": [code, {"cell_type": "markdown", "source": "缓存"}], "metadata": {}}
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01.ipynb").write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)
    return cli._notebooks_folder()


def test_lab_copies_the_notebooks_without_outputs(notebooks, tmp_path, capsys):
    assert cli.main(["lab", "--copy", str(tmp_path / "mine")]) == 0
    copies = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [copy.name for copy in copies] == sorted(path.name for path in notebooks.glob("*.ipynb"))
    cells = [cell for copy in copies for cell in json.loads(copy.read_text("utf-8"))["cells"]]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_lab_never_overwrites_a_notebook(notebooks, tmp_path, capsys):
    cli.main(["lab", "--copy", str(tmp_path / "mine")])
    first = Path(capsys.readouterr().out.splitlines()[0])
    first.write_text("my work")
    assert cli.main(["lab", "--copy", str(tmp_path / "mine")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert first.read_text() == "my work"


@pytest.mark.slow
def test_lab_registers_its_kernel_in_this_environment_and_starts_jupyterlab(notebooks):
    shown = run("lab", "--", "--version")
    assert shown.stdout.strip() == importlib.metadata.version("jupyterlab")
    kernel = Path(sys.prefix) / "share" / "jupyter" / "kernels" / "tracer-lab" / "kernel.json"
    content = json.loads(kernel.read_text("utf-8"))
    assert content["display_name"] == "Tracer Lab"
    assert content["argv"][0] == sys.executable
