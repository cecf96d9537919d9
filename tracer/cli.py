"""`python -m tracer ...`: the lab from a shell, and the only place that prints and exits.

Each command is one function that calls the rooms below and returns nothing. What the lab refuses
(a TracerError) becomes one line and exit code 2; any other error is shown as Python shows it. Rooms
are imported inside the commands, so that `show` and `export` never load torch.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import runpy
import shutil
import sys
import tempfile
import traceback
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import tracer
from tracer.environment import check, require
from tracer.errors import StorageError, TracerError
from tracer.schema import EVENT_TABLES

if TYPE_CHECKING:
    from tracer.demo.models import Source

KERNEL_NAME: Final = "tracer-lab"
KERNEL_TITLE: Final = "Tracer Lab"
SORTED_ROWS: Final = 1_000_000  # more rows than this are shown in the order on disk
DETAILS: Final = ("stages", "layers", "modules")

# A trace may be a stranger's: control characters and direction overrides in its cells must not
# reach the terminal, where they could repaint what the reader sees.
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; only here is an error turned into a line.

    Args:
        arguments: What follows `python -m tracer`; by default what the process was given.
    """
    options = _parser().parse_args(arguments)
    script: Path | None = getattr(options, "script", None)
    try:
        options.command(options)
        sys.stdout.flush()
    except TracerError as error:
        if _frames_from(script, error.__traceback__):
            raise  # the recorded script's own error passes through
        print(f"tracer: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone: what is left to flush at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _count(text: str) -> int:
    """A number of rows for argparse, which names the option when this refuses."""
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError(f"{count} is negative; 0 shows none")
    return count


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tracer",
        description="Record what a Hugging Face model does; replay it without the model.",
    )
    parser.add_argument("--version", action="version", version=tracer.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], None], text: str) -> Any:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(command=run)
        return command

    demo = add("demo", _demo, "record the main job on the embedded model and print its story")
    demo.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="DIR")
    demo.add_argument(
        "--model",
        default="seeing",
        metavar="MODEL",
        help="smollm2 or smollm2-gguf (a small real one: English, little Chinese), or a folder, "
        "GGUF file or hub id of yours (default: seeing, the embedded one)",
    )
    demo.add_argument("--question", metavar="TEXT", help="what the model is asked")

    models = add("models", _models, "list the demo models, or obtain those that are named")
    models.add_argument("names", nargs="*", metavar="NAME", help="such as smollm2")

    show = add("show", _show, "print a trace's summary and audit, or the rows of one table")
    show.add_argument("trace", metavar="TRACE", help="trace folder or zip")
    show.add_argument("table", metavar="TABLE", nargs="?", help="such as tensor_loads or events")
    show.add_argument("--columns", type=_names, metavar="A,B", help="only these columns")
    show.add_argument("--limit", type=_count, default=20, metavar="N", help="first N rows (20)")

    play = add("play", _play, "play a trace in the browser, as a page that needs nothing else")
    play.add_argument("trace", metavar="TRACE", help="trace folder or zip")
    play.add_argument("--out", type=Path, metavar="FILE", help="where the page is kept")
    play.add_argument("--no-browser", action="store_true", help="only write the page")

    export = add("export", _export, "write a trace as CSV, one file a table, or in another form")
    export.add_argument("trace", metavar="TRACE", help="trace folder or zip")
    export.add_argument("folder", type=Path, metavar="FOLDER", help="of --html a file: run.html")
    form = export.add_mutually_exclusive_group()
    form.add_argument("--excel", action="store_true", help="CSV for people: plain text cells")
    form.add_argument("--parquet", action="store_true", help="Parquet files instead of CSV")
    form.add_argument("--html", action="store_true", help="one page that plays the run")

    record = add("record", _record, "run a Python script as a recording")
    record.add_argument("--out", type=Path, metavar="DIR", help="trace folder (runs/SCRIPT)")
    record.add_argument("--detail", choices=DETAILS, default="layers", help="default: layers")
    record.add_argument("script", type=_existing_file, metavar="SCRIPT")
    record.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS")

    lab = add("lab", _lab, "open JupyterLab on the notebooks")
    lab.add_argument("--copy", type=Path, metavar="DIR", help="only copy the notebooks, cleared")
    lab.add_argument("options", nargs="*", metavar="-- OPTIONS", help="handed to JupyterLab")

    add("check", _check, "say what works on this machine")
    return parser


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _existing_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text!r}")
    return path


def _say(text: str) -> None:
    """Print for a terminal: what could repaint it or can't be encoded is shown as an escape."""
    text = _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def _demo(options: argparse.Namespace) -> None:
    require("torch", "transformers", "qwen_vl_utils", extra="live", purpose="the demo")
    if options.model == "seeing" and options.question is None:
        from tracer.demo.story import tell_story

        _say(tell_story(options.out, progress=True))
        return
    from tracer.demo.asking import tell_model_story

    source = _obtain(options.model)
    _say(tell_model_story(options.out, source, question=options.question, progress=True))


def _models(options: argparse.Namespace) -> None:
    require("platformdirs", "filelock", extra="live", purpose="obtaining models")
    from tracer.demo.models import listing

    if not options.names:
        _say(listing())
    for name in options.names:
        _say(f"{name}: {_obtain(name).place}")


def _obtain(name: str) -> Source:
    """Give a model for `from_pretrained`; what a download costs is said before it begins."""
    from tracer.demo.hub import announce
    from tracer.demo.models import obtain_named

    if text := announce(name):
        _say(text)
    return obtain_named(name, progress=True)


def _show(options: argparse.Namespace) -> None:
    trace = tracer.open_trace(options.trace)
    if options.table is None:
        _say(trace.summary())
        _say("Audit")
        for row in trace.audit().itertuples():
            _say(f"  {row.verdict:14}  {row.check}: {row.found}")
            if row.verdict == "broken":
                _say(f"{'':18}expected: {row.expected}")
        return
    rows = trace.read(options.table, columns=options.columns, limit=options.limit)
    count = trace.rows(options.table)
    if options.table in EVENT_TABLES and count <= SORTED_ROWS:
        # On disk a span stands where it ended; people read by start.
        rows = trace[options.table].head(options.limit)[list(rows.columns)]
    _say(rows.to_string(index=False, max_colwidth=80))
    if len(rows) < count:
        _say(f"... {len(rows):,} of {count:,} rows; --limit shows more")


def _export(options: argparse.Namespace) -> None:
    trace = tracer.open_trace(options.trace)
    if options.html:
        _say(str(tracer.to_html(trace, options.folder)))
    elif options.parquet:
        _say(str(trace.to_parquet(options.folder)))
    else:
        _say(str(trace.to_csv(options.folder, excel=options.excel)))


def _play(options: argparse.Namespace) -> None:
    """Write the page that plays a trace, and have the browser show it."""
    trace = tracer.open_trace(options.trace)
    # The browser reads the page after we have ended, so nothing of it is cleared away.
    place = options.out or Path(tempfile.mkdtemp(prefix="tracer-play-")) / "run.html"
    page = tracer.to_html(trace, place)
    _say(str(page))
    if not options.no_browser and not webbrowser.open(page.resolve().as_uri()):
        _say("no browser could be opened: open that file in one")


def _record(options: argparse.Namespace) -> None:
    """Run a script as `python SCRIPT ARGS` would, inside a recording."""
    require("torch", "transformers", extra="live", purpose="recording")
    script: Path = options.script
    sys.excepthook = functools.partial(_print_from_script, script)
    sys.argv = [str(script), *options.arguments]
    sys.path.insert(0, str(script.resolve().parent))
    folder = options.out or Path("runs") / script.stem
    with tracer.record(folder, detail=options.detail, if_exists="number") as recording:
        try:
            runpy.run_path(str(script), run_name="__main__")
        finally:
            # On stderr: what the script writes to stdout stays what it would be without us.
            print(f"tracer: the trace is in {recording.path}", file=sys.stderr)


def _frames_from(script: Path | None, frames: TracebackType | None) -> TracebackType | None:
    """Cut a traceback down to what begins in the script; None when the script isn't in it."""
    while frames is not None and frames.tb_frame.f_code.co_filename != str(script):
        frames = frames.tb_next
    return frames


def _print_from_script(
    script: Path,
    kind: type[BaseException],
    error: BaseException,
    frames: TracebackType | None,
) -> None:
    """Print an uncaught error of the script as if the script had run alone."""
    its_own = _frames_from(script, frames)
    unparsable = isinstance(error, SyntaxError) and error.filename == str(script)
    traceback.print_exception(kind, error, its_own if its_own or unparsable else frames)


def _lab(options: argparse.Namespace) -> None:
    notebooks = _notebooks_folder()
    if options.copy is not None:
        for copy in _copy_notebooks(notebooks, options.copy):
            _say(str(copy))
        return
    require("jupyterlab", "ipykernel", extra="lab", purpose="the lab")
    from ipykernel.kernelspec import install
    from jupyterlab.labapp import LabApp

    # Into this environment's own prefix: JupyterLab started from here finds it, nobody else does.
    install(prefix=sys.prefix, kernel_name=KERNEL_NAME, display_name=KERNEL_TITLE)
    LabApp.launch_instance([f"--ServerApp.root_dir={notebooks}", *options.options])


def _notebooks_folder() -> Path:
    """Find the notebooks: beside the package in a clone, else in the current folder."""
    candidates = [Path(__file__).resolve().parent.parent / "notebooks", Path.cwd() / "notebooks"]
    for folder in candidates:
        if any(folder.glob("*.ipynb")):
            return folder
    looked = " or ".join(dict.fromkeys(map(str, candidates)))
    raise StorageError(f"no notebooks in {looked}: run this inside a clone of the repository")


def _copy_notebooks(notebooks: Path, target: Path) -> list[Path]:
    """Copy the notebooks without outputs, and what they read beside them; never overwrite.

    Raises:
        StorageError: the target holds one of the files already, or can't be written.
    """
    sources = [
        path
        for path in sorted(notebooks.rglob("*"))
        if path.is_file() and not {"runs", ".ipynb_checkpoints"} & set(path.parts)
    ]
    copies = [target / path.relative_to(notebooks) for path in sources]
    taken = [copy for copy in copies if copy.exists()]
    if taken:
        raise StorageError(f"{taken[0]} exists already: give --copy a folder without notebooks")
    try:
        for source, copy in zip(sources, copies, strict=True):
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.suffix == ".ipynb":
                copy.write_text(_cleared(source.read_text("utf-8")), "utf-8", newline="\n")
            else:
                shutil.copyfile(source, copy)
    except OSError as error:
        raise StorageError(f"can't copy the notebooks to {target}: {error}") from error
    return [copy for copy in copies if copy.suffix == ".ipynb"]


def _cleared(notebook: str) -> str:
    """Take outputs and execution counts out of a notebook's text."""
    content = json.loads(notebook)
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
            cell["execution_count"] = None
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _check(options: argparse.Namespace) -> None:
    check()
