"""The notebooks run from top to bottom, twice in a row, and what is committed is fit to be read.

Those with a REPLAY parameter are run a second way: from the committed traces, without torch. With
TRACER_WRITE_NOTEBOOKS=1 in the environment outputs and traces of the live run replace the committed
ones (`-k 02_loading` for one notebook):

    TRACER_WRITE_NOTEBOOKS=1 python -m pytest tests/test_notebooks.py -m slow
"""

import ast
import os
import re
import shutil
import statistics
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from tracer.explain import LANGUAGES
from tracer.explain.languages import words
from tracer.lessons import keep_traces
from tracer.trace import open_trace

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST_BYTES = 500_000
LARGEST_TRACE_BYTES = 300_000
WIDGET = "application/vnd.jupyter.widget-view+json"
CHINESE = re.compile("[\u4e00-\u9fff]")
# The hover text over a column that the schema does not have.
COMPUTED = re.compile('title="([^":]+): computed for this table')
# What a path of somebody's machine looks like, on any system.
ABSOLUTE = re.compile(r"(?<![\w.:/<])/(?:home|root|tmp|Users|usr|opt|work|var|mnt)/|[A-Z]:\\\\")
# A package that is None here can't be imported: what runs after this cell needs none of them.
NO_TORCH = """import sys
for name in ("torch", "torchvision", "transformers", "accelerate", "safetensors", "tokenizers"):
    sys.modules[name] = None"""
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def is_replayable(path: Path) -> bool:
    """Whether a notebook has the parameter, and so must run from its committed traces."""
    return "REPLAY = False" in parameters(read(path)).source.splitlines()


def parameters(notebook: NotebookNode) -> NotebookNode:
    (cell,) = [cell for cell in code_cells(notebook) if cell.metadata.get("tags") == ["parameters"]]
    return cell


def as_replay(notebook: NotebookNode) -> NotebookNode:
    """The notebook with REPLAY set, where nothing can import torch."""
    cell = parameters(notebook)
    cell.source = cell.source.replace("REPLAY = False", "REPLAY = True")
    notebook.cells.insert(0, nbformat.v4.new_code_cell(NO_TORCH))
    return notebook


def traces_of(path: Path) -> Path:
    return FOLDER / "traces" / path.stem


def lay_out(path: Path, folder: Path) -> None:
    """What lies beside a notebook, in the folder that it runs in."""
    if traces_of(path).is_dir():
        shutil.copytree(traces_of(path), folder / "traces" / path.stem)


def execute(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Run a notebook in a folder, in a new kernel of this interpreter."""
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
    )
    named = dict(notebook.metadata.kernelspec)
    client.execute()
    for _, output in outputs(notebook):
        # A widget without its kernel is a dead box; what stands beside it stays.
        output.get("data", {}).pop(WIDGET, None)
    notebook.metadata = {"kernelspec": named, "language_info": {"name": "python"}}
    return notebook


def outputs(notebook: NotebookNode) -> list[tuple[int, NotebookNode]]:
    return [
        (number, output)
        for number, cell in enumerate(notebook.cells)
        for output in cell.get("outputs", [])
    ]


def kinds_shown(notebook: NotebookNode) -> list[list[set[str]]]:
    """Of each code cell the kinds of its outputs; a kernel may hand on printed text in pieces."""
    return [
        _joined([set(one.get("data", {})) for one in cell.outputs]) for cell in code_cells(notebook)
    ]


def _joined(kinds: list[set[str]]) -> list[set[str]]:
    before = [{"none"}, *kinds]
    return [now for last, now in zip(before, kinds, strict=False) if now or last]


def noise(notebook: NotebookNode) -> list[str]:
    """What nobody wants to read: errors, warnings on stderr, bars, widgets, paths."""
    found = []
    for number, output in outputs(notebook):
        if output.output_type == "error" or output.get("name") == "stderr":
            found.append(f"cell {number}: {output.get('text') or output.get('evalue')}")
        found += [f"cell {number}: {kind}" for kind in output.get("data", {}) if "widget" in kind]
        texts = [output.get("text", ""), *output.get("data", {}).values()]
        found += [f"cell {number}: {text[:80]}" for text in texts if ABSOLUTE.search(str(text))]
    return found


def test_there_is_a_first_notebook():
    assert NOTEBOOKS[0].name == "01_first_trace.ipynb"


@pytest.mark.slow
@each_notebook
# Said by ipykernel and zmq about the loopback that a kernel is reached by; nothing of ours.
@pytest.mark.filterwarnings("ignore:.*encryption.*", "ignore::ResourceWarning")
def test_it_runs_twice_in_a_row_and_leaves_no_noise(path, tmp_path):
    lay_out(path, tmp_path)
    first = execute(read(path), tmp_path)
    runs = tmp_path / "runs" / path.stem
    if os.environ.get("TRACER_WRITE_NOTEBOOKS") == "1" and is_replayable(path):
        keep_traces(runs, traces_of(path))
    execute(read(path), tmp_path)
    assert noise(first) == []
    counts = [cell.execution_count for cell in code_cells(first)]
    assert counts == list(range(1, len(counts) + 1))
    if os.environ.get("TRACER_WRITE_NOTEBOOKS") == "1":
        nbformat.write(first, path)


@pytest.mark.parametrize(
    "path", [path for path in NOTEBOOKS if is_replayable(path)], ids=lambda path: path.stem
)
@pytest.mark.filterwarnings("ignore:.*encryption.*", "ignore::ResourceWarning")
def test_it_replays_its_committed_traces_without_torch(path, tmp_path):
    lay_out(path, tmp_path)
    replayed = execute(as_replay(read(path)), tmp_path)
    assert noise(replayed) == []
    assert not (tmp_path / "runs").exists()
    # What is shown live is shown again: tables where tables were, charts where charts were.
    assert kinds_shown(replayed)[1:] == kinds_shown(read(path))


def test_its_traces_are_small_and_tell_no_path():
    for path in sorted((FOLDER / "traces").rglob("*.zip")):
        assert path.stat().st_size <= LARGEST_TRACE_BYTES, path.name
        assert open_trace(path).manifest["scrubbed"] == ["paths", "host"]


@each_notebook
def test_its_outputs_are_committed_counted_and_quiet(path):
    notebook = read(path)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert noise(notebook) == []
    assert "widgets" not in notebook.metadata
    assert path.stat().st_size <= LARGEST_BYTES


@each_notebook
def test_its_tables_and_charts_are_there(path):
    kinds = {kind for _, output in outputs(read(path)) for kind in output.get("data", {})}
    assert {"text/html", "image/png"} <= kinds


@each_notebook
@pytest.mark.parametrize("code", LANGUAGES)
def test_each_head_of_its_tables_has_words_in_either_language(path, code):
    labels = words("labels", code)
    tables = [output.get("data", {}).get("text/html", "") for _, output in outputs(read(path))]
    computed = {name for table in tables for name in COMPUTED.findall(table)}
    assert computed - {*labels["columns"], *labels["computed"]} == set()


@each_notebook
def test_each_chart_is_described_in_words(path):
    for number, output in outputs(read(path)):
        shown = output.get("metadata", {}).get("image/png", {})
        if "alt" in shown:
            assert output.data["text/plain"] == shown["alt"], f"cell {number}"
            assert len(shown["alt"]) > 40


@each_notebook
def test_it_is_a_text_with_short_cells(path):
    notebook = read(path)
    lengths = [len(cell.source.splitlines()) for cell in code_cells(notebook)]
    assert len(notebook.cells) >= 2 * len(lengths)
    assert statistics.median(lengths) <= 5
    assert max(lengths) <= 15


@each_notebook
def test_its_cells_define_nothing(path):
    """What a cell would define belongs into the package, where it is tested."""
    for cell in code_cells(read(path)):
        kinds = {type(node) for node in ast.walk(ast.parse(cell.source))}
        assert kinds.isdisjoint({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda})


@each_notebook
def test_it_has_parameters_and_names_versions_first(path):
    cells = code_cells(read(path))
    assert "version" in cells[0].source
    assert [cell.metadata.get("tags") for cell in cells].count(["parameters"]) == 1


@each_notebook
def test_its_title_and_sections_stand_in_two_languages(path):
    heads = [
        line
        for cell in read(path).cells
        if cell.cell_type == "markdown"
        for line in cell.source.splitlines()
        if line.startswith(("# ", "## "))
    ]
    assert [head for head in heads if not CHINESE.search(head) and head != "## CSV"] == []


@each_notebook
def test_it_writes_only_into_its_runs(path):
    source = "\n".join(cell.source for cell in code_cells(read(path)))
    assert 'if_exists="number"' in source or "lesson.record(" in source
    assert not ABSOLUTE.search(source)


@pytest.mark.parametrize("text", ["/home/ada/x", "from /tmp/a", '"/work/b"', "C:\\\\Users"])
def test_the_guard_knows_a_path_when_it_sees_one(text):
    assert ABSOLUTE.search(text)


@pytest.mark.parametrize("text", ["runs/first", "https://a.org/home/x", "</tmp>", "a/tmp/b"])
def test_the_guard_lets_other_slashes_pass(text):
    assert not ABSOLUTE.search(text)
