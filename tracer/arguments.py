"""What a command line may say, and its words: read by `cli`, which runs what was asked for.

argparse asks for each of its own words by its English text; while it reads it is given those of
the language that holds (`explain/*/argparse.toml`), and then has its own way back.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import tracer
from tracer import explain
from tracer.explain.languages import ENVIRONMENT, LANGUAGES, language, words

DETAILS: Final = ("stages", "layers", "modules")


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for: `command` and its options, in the language that was asked for.

    Raises:
        UnknownNameError: The lab does not speak that language.
        SystemExit: Help or the version was asked for and printed, or something is wrong.
    """
    _speak(arguments)
    with _in_our_words():
        return _parser().parse_args(arguments)


@contextlib.contextmanager
def _in_our_words() -> Iterator[None]:
    """Have argparse find its words here; there is no other way in but the names it looks up."""
    known = words("argparse")
    ours: dict[str, Any] = {
        "_": lambda message: known.get(message, message),
        "ngettext": lambda one, many, number: known.get(one if number == 1 else many, many),
    }
    own = {name: vars(argparse)[name] for name in ours}
    vars(argparse).update(ours)
    try:
        yield
    finally:
        vars(argparse).update(own)


def _speak(arguments: Sequence[str]) -> None:
    """Choose the language that was asked for before anything is said, help included.

    Raises:
        UnknownNameError: The lab does not speak it.
    """
    code = os.environ.get(ENVIRONMENT)
    given = iter(arguments)
    for one in given:
        name, _, value = one.partition("=")
        if not one.startswith("-"):
            break  # the command: what follows is its own, and a script may have an option so called
        if name == "--lang":
            code = value or next(given, None)
    if code:
        language(code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tracer", description=_word("program"))
    parser.add_argument(
        "--version", action="version", version=tracer.__version__, help=_word("version")
    )
    parser.add_argument("--lang", choices=LANGUAGES, help=_word("lang"))
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")

    def add(name: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=_word(name), description=_word(name))

    demo = add("demo")
    demo.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="DIR")
    demo.add_argument(
        "--model",
        default="seeing",
        metavar="MODEL",
        help=_word("demo_model"),
    )
    demo.add_argument("--question", metavar="TEXT", help=_word("demo_question"))

    models = add("models")
    models.add_argument("names", nargs="*", metavar="NAME", help=_word("models_names"))

    show = add("show")
    show.add_argument("trace", metavar="TRACE", help=_word("trace"))
    show.add_argument("table", metavar="TABLE", nargs="?", help=_word("show_table"))
    show.add_argument("--columns", type=_names, metavar="A,B", help=_word("show_columns"))
    show.add_argument("--limit", type=_count, default=20, metavar="N", help=_word("show_limit"))

    play = add("play")
    play.add_argument("trace", metavar="TRACE", help=_word("trace"))
    play.add_argument("--out", type=Path, metavar="FILE", help=_word("play_out"))
    play.add_argument("--no-browser", action="store_true", help=_word("play_no_browser"))

    export = add("export")
    export.add_argument("trace", metavar="TRACE", help=_word("trace"))
    export.add_argument("folder", type=Path, metavar="FOLDER", help=_word("export_folder"))
    form = export.add_mutually_exclusive_group()
    form.add_argument("--excel", action="store_true", help=_word("export_excel"))
    form.add_argument("--parquet", action="store_true", help=_word("export_parquet"))
    form.add_argument("--html", action="store_true", help=_word("export_html"))

    record = add("record")
    record.add_argument("--out", type=Path, metavar="DIR", help=_word("record_out"))
    record.add_argument("--detail", choices=DETAILS, default="layers", help=_word("record_detail"))
    record.add_argument("script", type=_existing_file, metavar="SCRIPT")
    record.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS")

    doctor = add("doctor")
    doctor.add_argument("path", type=Path, metavar="PATH", help=_word("doctor_path"))
    doctor.add_argument("--json", action="store_true", help=_word("doctor_json"))

    lab = add("lab")
    lab.add_argument("--copy", type=Path, metavar="DIR", help=_word("lab_copy"))
    lab.add_argument("options", nargs="*", metavar="-- OPTIONS", help=_word("lab_options"))

    add("check")
    return parser


def _word(key: str) -> str:
    return explain.text(f"command.{key}")


def _count(text: str) -> int:
    """A number of rows for argparse, which names the option when this refuses."""
    try:
        count = int(text)
    except ValueError:
        raise _refused("no_number", typed=text) from None
    if count < 0:
        raise _refused("negative_rows", number=count)
    return count


def _refused(why: str, **values: Any) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(explain.text(f"errors.{why}", **values))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _existing_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise _refused("no_file", name=text)
    return path
