"""A notebook's traces: recorded now, or opened from the committed ones, under the same names.

A lesson records several small runs, each with a name. With `replay` nothing runs and the same
names open `traces/LESSON/NAME.zip`, so the cells that read a trace need not know which it is.
No torch here.
"""

from __future__ import annotations

import datetime
import functools
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tracer.errors import SessionStateError, UnknownNameError
from tracer.explain import text
from tracer.explain.sentences import phrase
from tracer.journal import Journal
from tracer.session import Recording, badge, record
from tracer.trace import Trace, open_trace

_PACKAGES: Final = ("tracer-lab", "torch", "transformers", "tokenizers", "safetensors")


class Lesson:
    """The runs of one notebook.

    Attributes:
        name: The notebook's, which folders are named after.
        replay: Whether committed traces stand in for runs.
    """

    def __init__(
        self,
        name: str,
        *,
        replay: bool = False,
        runs: str | Path = "runs",
        traces: str | Path = "traces",
    ) -> None:
        """A lesson; its folders are looked up in the working folder, as notebooks have them.

        Args:
            name: Name of the notebook.
            replay: Open committed traces, run nothing.
            runs: Where new traces go.
            traces: Where committed ones lie.

        Raises:
            UnknownNameError: There is nothing to replay.
        """
        self.name = name
        self.replay = replay
        self._runs = Path(runs) / name
        self._traces = Path(traces) / name
        self._recorded: dict[str, Recording] = {}
        if replay and not self.committed_names:
            raise UnknownNameError(phrase("errors.nothing_to_replay", folder=self._traces))

    @property
    def committed_names(self) -> list[str]:
        """Names of the traces that came with the notebook."""
        return sorted(path.stem for path in self._traces.glob("*.zip"))

    def record(self, run: str, **options: Any) -> Recording:
        """Record a run under a name; takes the options of `tracer.record`.

        A second run of a name lies beside the first, numbered, and takes its place here.

        Raises:
            SessionStateError: The lesson is a replay.
        """
        if self.replay:
            raise SessionStateError(phrase("errors.is_replayed", lesson=self.name, run=run))
        recording = record(self._runs / run, if_exists="number", **options)
        self._recorded[run] = recording
        return recording

    def start(self, run: str, **options: Any) -> Recording | Replayed:
        """Begin a recording that goes on across cells, until its `stop()`, as `tracer.start` does.

        In a replay nothing begins: `stop()` then gives the committed trace.

        Raises:
            UnknownNameError: The lesson is a replay, and no run of this name is committed.
        """
        if self.replay:
            return Replayed(self._committed_path(run))
        return self.record(run, **options).begin()

    def trace(self, run: str) -> Trace:
        """The trace of a run: the one recorded in this session, or in a replay the committed one.

        Raises:
            UnknownNameError: No run of this name was recorded, or none is committed.
        """
        if self.replay:
            return self.committed(run)
        if run not in self._recorded:
            known = ", ".join(self._recorded) or phrase("errors.none")
            raise UnknownNameError(phrase("errors.not_recorded", run=run, known=known))
        return self._recorded[run].trace

    def committed(self, run: str) -> Trace:
        """A trace that came with the notebook, in a live session too.

        Raises:
            UnknownNameError: There is none of this name.
        """
        return open_trace(self._committed_path(run))

    def _committed_path(self, run: str) -> Path:
        path = self._traces / f"{run}.zip"
        if not path.is_file():
            known = ", ".join(self.committed_names) or phrase("errors.none")
            raise UnknownNameError(phrase("errors.not_committed", path=path, known=known))
        return path

    def __repr__(self) -> str:
        """Live or replayed, where the traces are, and which versions made those replayed."""
        if not self.replay:
            return f"<Lesson {self.name}: live, traces go to {self._runs.as_posix()}>"
        names = self.committed_names
        made_with = self.committed(names[0]).manifest.get("versions", {})
        told = ", ".join(f"{name} {made_with.get(name)}" for name in ("torch", "transformers"))
        return f"<Lesson {self.name}: replay of {', '.join(names)}, recorded with {told}>"


class Replayed:
    """A committed trace in the place of a recording: it shows itself, and `stop()` opens it.

    Attributes:
        path: Where the trace lies.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @functools.cached_property
    def trace(self) -> Trace:
        """The committed trace."""
        return open_trace(self.path)

    def stop(self) -> Trace:
        """The committed trace; there is nothing to stop."""
        return self.trace

    def __repr__(self) -> str:
        began = datetime.datetime.fromisoformat(self.trace.manifest["started"])
        return f"<recording of {began:%Y-%m-%d}, replayed>"

    def _repr_html_(self) -> str:
        began = datetime.datetime.fromisoformat(self.trace.manifest["started"])
        return badge(text("recording.replayed", day=f"{began:%Y-%m-%d}"), is_on=False)


def versions(*packages: str) -> str:
    """Versions of packages as lines of text, by default those that what is seen depends on."""
    lines = []
    for package in packages or _PACKAGES:
        try:
            told = metadata.version(package)
        except metadata.PackageNotFoundError:
            told = "not installed"
        lines.append(f"{package:14} {told}")
    return "\n".join(lines)


def keep_traces(runs: str | Path, traces: str | Path) -> list[Path]:
    """Make the traces of a lesson's folder the committed ones, zipped.

    Paths, host and the library's code are taken out. Texts stay, since they are what a lesson
    shows; so no run of a lesson may hold private ones.

    Args:
        runs: Folder of one lesson below `runs`, after a single run of its notebook.
        traces: Folder of the same lesson below `traces`; traces of the same names are replaced.
    """
    kept = []
    Path(traces).mkdir(parents=True, exist_ok=True)
    for folder in sorted(path for path in Path(runs).iterdir() if path.is_dir()):
        target = Path(traces) / f"{folder.name}.zip"
        trace = _without_code(open_trace(folder).scrub(text=False))
        kept.append(trace.save(target, if_exists="replace"))
    return kept


def _without_code(trace: Trace) -> Trace:
    """A copy without the text of the library's functions, which is others' work and half the size.

    Names and lines stay.
    """
    journal = Journal(None)
    for table in trace.store.tables():
        for batch in trace.store.batches(table):
            if table == "sources":
                place = batch.schema.get_field_index("text")
                nothing = pa.nulls(len(batch), batch.schema.field(place).type)
                batch = batch.set_column(place, batch.schema.field(place), nothing)
            journal.append(table, batch)
    copy = journal.close(trace.manifest)
    copy.manifest["state"] = trace.manifest.get("state")
    return Trace(copy)
