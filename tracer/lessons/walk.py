"""Two functions of a published walk through serving, run as they were printed, then repaired.

The text lies in `demo/service_walk.txt`, word for word. Each attempt runs it in a recording of its
own; what fails is repaired in that one place, and the next attempt goes on from there. So each
error is a row, and the rows of another release are read in its traces. No torch here: the text
imports it when it runs.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

import pandas as pd

from tracer.lessons.attempts import attempt, error_of
from tracer.session import Recording
from tracer.storage import Store
from tracer.trace import Trace

_PATH: Final = "/data/models/llama-2-7b-chat"
_KEPT: Final = ("calls", "models", "choices", "messages", "faults")


@dataclasses.dataclass(frozen=True, slots=True)
class Repair:
    """One place that fails, known by its error (a pattern), and what stands there instead."""

    says: str
    replace: Mapping[str, str]
    why: str

    def apply(self, text: str) -> str:
        """The text with this one place repaired."""
        for old, new in self.replace.items():
            text = text.replace(old, new)
        return text


REPAIRS: Final = (
    Repair(
        r"attribute '?pad_'?$",
        {
            "tokenizer.pad_ ": "tokenizer.pad_token ",
            "= tokenizer.eos_\n": "= tokenizer.eos_token\n",
        },
        "a name lost its end in print: tokenizers have pad_token and eos_token",
    ),
    Repair(
        "attribute 'hf_device_map'",
        {"model.hf_device_map": "model.device"},
        "only a model that was dispatched has a map; each has a device",
    ),
    Repair(
        r"attribute '?pad__id",
        {"=tokenizer.pad__id": "=tokenizer.pad_token_id"},
        "the same lost word, in the value",
    ),
    Repair(
        r"attribute '?eos__id",
        {"=tokenizer.eos__id": "=tokenizer.eos_token_id"},
        "the same lost word, in the value",
    ),
    Repair(
        "'pad__id'",
        {" pad__id=": " pad_token_id=", " eos__id=": " eos_token_id="},
        "and in the names: generate() refuses settings that it does not know",
    ),
)


def as_printed() -> str:
    """The two functions as the walk prints them, with the lines around them."""
    return (resources.files("tracer.demo") / "service_walk.txt").read_text("utf-8")


def repaired(repairs: Iterable[Repair] = REPAIRS) -> str:
    """The walk's text with these places repaired, by default all."""
    text = as_printed()
    for repair in repairs:
        text = repair.apply(text)
    return text


def run_walk(
    record: Callable[[str], Recording],
    folder: str | Path,
    *,
    prompt: str = "Hello!",
    new_tokens: int = 12,
) -> list[str]:
    """Run the printed code again and again, each error repaired, until it answers.

    Args:
        record: Makes a recording out of a name: `printed-0`, then one more for each repair.
        folder: A causal language model, in place of the path that the walk names.
        prompt: What `generate_response` is asked.
        new_tokens: Largest length of its answer.

    Returns:
        Names of the attempts; the last one has run through, or has an error without a repair.
    """
    text, names = as_printed(), []
    for number in range(len(REPAIRS) + 1):
        names.append(f"printed-{number}")
        recording = record(names[-1])
        attempt(recording, _run, text, str(folder), prompt, new_tokens)
        repair = _repair_for(error_of(recording.trace))
        if repair is None:
            break
        text = repair.apply(text)
    return names


def _run(text: str, folder: str, prompt: str, new_tokens: int) -> None:
    import contextlib
    import io

    code = compile(text.replace(_PATH, folder), "service_walk.txt", "exec")
    space: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):  # it tells where it is; the rows do that
        exec(code, space)
        space["generate_response"](prompt, new_tokens)


def _repair_for(error: str | None) -> Repair | None:
    return next((repair for repair in REPAIRS if error and re.search(repair.says, error)), None)


def attempts(open_attempt: Callable[[str], Trace], prefix: str = "") -> Iterator[Trace]:
    """The traces of all attempts of one release, in order.

    Args:
        open_attempt: Gives a trace by its name, as `Lesson.trace` and `Lesson.committed` do.
        prefix: What stands before the names of `run_walk`, such as `4.57.6-`.
    """
    for number in range(len(REPAIRS) + 1):
        trace = open_attempt(f"{prefix}printed-{number}")
        yield trace
        if _repair_for(error_of(trace)) is None:
            return


def keep_attempts(traces: Iterable[Trace], folder: str | Path, prefix: str) -> list[Path]:
    """Write of each attempt what its row and a look at its calls need, scrubbed, as zip files."""
    kept = []
    for number, trace in enumerate(traces):
        tables = {name: trace.arrow(name) for name in _KEPT if trace.rows(name)}
        small = Trace(Store.from_tables(trace.manifest, tables)).scrub(text=False)
        path = Path(folder) / f"{prefix}printed-{number}.zip"
        kept.append(small.save(path, if_exists="replace"))
    return kept


def failures(traces: Iterable[Trace]) -> pd.DataFrame:
    """What each attempt ended with, by release.

    Returns:
        A row an attempt: release, attempt, line (of the text; missing where it ran through),
        code (that line as it was run), error, repaired_to, why.
    """
    rows: list[list[Any]] = []
    text = as_printed()
    for trace in traces:
        release = trace.manifest["versions"]["transformers"]
        number = sum(row[0] == release for row in rows)
        text = text if number else as_printed()
        error = error_of(trace)
        repair = _repair_for(error)
        if repair is None:
            rows.append([release, number, None, None, error or "none: it answers", None, None])
            continue
        before, text = text, repair.apply(text)
        pairs = zip(before.splitlines(), text.splitlines(), strict=True)
        line, (code, instead) = next(
            (number, pair) for number, pair in enumerate(pairs, start=1) if pair[0] != pair[1]
        )
        rows.append([release, number, line, code.strip(), error, instead.strip(), repair.why])
    names = ["release", "attempt", "line", "code", "error", "repaired_to", "why"]
    return pd.DataFrame(rows, columns=names).astype({"line": "Int64"})
