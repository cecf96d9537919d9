"""`python -m tracer ...`: the lab from a shell, and the only place that prints and exits.

Each command is one function that calls the rooms below and gives an exit code, or nothing for 0.
What the lab refuses (a TracerError) becomes one line and exit code 2; any other error is shown as
Python shows it. Rooms are imported inside the commands: `show` and `export` never load torch.
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
from typing import TYPE_CHECKING, Final

import tracer
from tracer import explain
from tracer.arguments import parsed
from tracer.environment import check, require
from tracer.errors import StorageError, TracerError
from tracer.explain.sentences import either, phrase
from tracer.schema import EVENT_TABLES
from tracer.views.labels import aligned, display_width

if TYPE_CHECKING:
    import pandas

    from tracer.demo.models import Source

KERNEL_NAME: Final = "tracer-lab"
KERNEL_TITLE: Final = "Tracer Lab"
SORTED_ROWS: Final = 1_000_000  # more rows than this are shown in the order on disk
_VERDICTS: Final = ("holds", "broken", "not applicable")

# A trace may be a stranger's: control characters and direction overrides in its cells must not
# reach the terminal, where they could repaint what the reader sees.
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; only here is an error turned into a line.

    Args:
        arguments: What follows `python -m tracer`; by default what the process was given.
    """
    script: Path | None = None
    try:
        options = parsed(sys.argv[1:] if arguments is None else arguments)
        script = getattr(options, "script", None)
        code = _COMMANDS[options.command](options)
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
    return int(code or 0)


def _word(key: str) -> str:
    return explain.text(f"command.{key}")


def _say(text: str) -> None:
    """Print for a terminal: what could repaint it or can't be encoded is shown as an escape."""
    text = _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def _demo(options: argparse.Namespace) -> None:
    require("torch", "transformers", "qwen_vl_utils", extra="live", purpose="demo")
    if options.model == "seeing" and options.question is None:
        from tracer.demo.story import tell_story

        _say(tell_story(options.out, progress=True))
        return
    from tracer.demo.asking import tell_model_story

    source = _obtain(options.model)
    _say(tell_model_story(options.out, source, question=options.question, progress=True))


def _models(options: argparse.Namespace) -> None:
    require("platformdirs", "filelock", extra="live", purpose="models")
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
        _say_audit(trace.audit())
        return
    rows = trace.read(options.table, columns=options.columns, limit=options.limit)
    count = trace.rows(options.table)
    if options.table in EVENT_TABLES and count <= SORTED_ROWS:
        # On disk a span stands where it ended; people read by start.
        rows = trace[options.table].head(options.limit)[list(rows.columns)]
    names = list(rows.columns)
    if explain.language() == "en":
        _say(rows.to_string(index=False, max_colwidth=80))
    else:
        # Names stay, since code asks for them; words of the language stand over them.
        words = [explain.label(name) for name in names]
        cells = [[str(value)[:80] for value in row] for row in rows.itertuples(index=False)]
        _say(aligned([words, names, *cells], right=range(len(names)), indent=""))
    if len(rows) < count:
        _say(explain.text("command.more_rows", shown=f"{len(rows):,}", total=f"{count:,}"))


def _say_audit(verdicts: pandas.DataFrame) -> None:
    """Print each check with its verdict, and of a broken one what was expected."""
    widest = max(display_width(explain.audit_word(verdict)) for verdict in _VERDICTS)
    _say(explain.text("audit.title"))
    for row in verdicts.itertuples():
        verdict, check = explain.audit_word(row.verdict), explain.audit_word(row.check)
        verdict += " " * (widest + 1 - display_width(verdict))
        _say("  " + explain.text("audit.row", verdict=verdict, check=check, found=row.found))
        if row.verdict == "broken":
            _say(" " * (widest + 4) + explain.text("audit.expected", expected=row.expected))


def _export(options: argparse.Namespace) -> None:
    trace = tracer.open_trace(options.trace)
    if options.html:
        _say(str(tracer.to_html(trace, options.folder)))
    elif options.parquet:
        _say(str(trace.to_parquet(options.folder)))
    else:
        _say(str(trace.to_csv(options.folder, excel=options.excel)))


def _doctor(options: argparse.Namespace) -> int:
    """Print findings; 0 where there are none, 1 where there are, 2 where nothing could be told."""
    try:
        findings = tracer.doctor(options.path)
    except (TracerError, BrokenPipeError):
        raise
    except Exception as error:  # Python's own status for it is 1, which would say: findings
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise TracerError(phrase("errors.doctor_failed", path=options.path, why=text)) from error
    if options.json:
        _say(json.dumps(findings.content(), ensure_ascii=False, indent=1, allow_nan=False))
    else:
        _say(str(findings))
    if findings:
        return 1
    return 2 if any(one.needs == "rule_failed" for one in findings.undecided) else 0


def _play(options: argparse.Namespace) -> None:
    """Write the page that plays a trace, and have the browser show it."""
    trace = tracer.open_trace(options.trace)
    # The browser reads the page after we have ended, so nothing of it is cleared away.
    place = options.out or Path(tempfile.mkdtemp(prefix="tracer-play-")) / "run.html"
    page = tracer.to_html(trace, place)
    _say(str(page))
    if not options.no_browser and not webbrowser.open(page.resolve().as_uri()):
        _say(_word("no_browser"))


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
            print(explain.text("command.trace_in", place=recording.path), file=sys.stderr)


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
    require("jupyterlab", "ipykernel", extra="lab", purpose="lab")
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
    looked = either(*dict.fromkeys(candidates))
    raise StorageError(phrase("errors.no_notebooks", places=looked))


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
        raise StorageError(phrase("errors.copy_exists", path=taken[0]))
    try:
        for source, copy in zip(sources, copies, strict=True):
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.suffix == ".ipynb":
                copy.write_text(_cleared(source.read_text("utf-8")), "utf-8", newline="\n")
            else:
                shutil.copyfile(source, copy)
    except OSError as error:
        raise StorageError(phrase("errors.copy_failed", folder=target, why=error)) from error
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


_COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int | None]]] = {
    "demo": _demo,
    "models": _models,
    "show": _show,
    "play": _play,
    "export": _export,
    "record": _record,
    "doctor": _doctor,
    "lab": _lab,
    "check": _check,
}
