"""`record()` and `start()`: a recording from the user's side.

Checks the options and the place to write before the user's code runs, attaches, and in the end
detaches and hands over the trace.
"""

from __future__ import annotations

import datetime
import functools
import os
import platform
import sys
import threading
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

from tracer.errors import SessionStateError, TracerError, in_english
from tracer.explain import text
from tracer.explain.sentences import phrase
from tracer.instrument import calibration
from tracer.instrument.installer import INSTALLER, release
from tracer.instrument.targets import TARGETS
from tracer.journal import Journal
from tracer.ledger import Options
from tracer.ranks import clock_pair, current_rank, meet
from tracer.recorder import Recorder
from tracer.schema import SCHEMA_VERSION
from tracer.storage import Store
from tracer.trace import Trace

_DETAILS: Final = ("stages", "layers", "modules")
_PACKAGES: Final = (
    "tracer-lab", "torch", "transformers", "accelerate", "tokenizers", "safetensors",
    "qwen-vl-utils", "huggingface-hub",
)  # fmt: skip


class Recording:
    """One recording: a context manager, or begun by `start()` and ended by `stop()`."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        options: Options,
        *,
        if_exists: Literal["error", "replace", "number"] = "error",
        strict: bool = False,
    ) -> None:
        _check(options)
        self._rank = current_rank()
        self._place = str(path)
        self._journal = Journal(
            None if path is None else Path(path),
            if_exists=if_exists,
            rank=self._rank if self._rank.world_size > 1 else None,
        )
        self._options = options
        self._strict = strict
        self._recorder: Recorder | None = None
        self._process = os.getpid()
        self._trace: Trace | None = None
        self._followers: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._began: datetime.datetime | None = None
        self._clock: dict[str, Any] = {}

    @property
    def path(self) -> Path | None:
        """The trace's folder, with its number where one was added; None when kept in memory.

        Of a run of several ranks it is this rank's folder; the run's is its parent.
        """
        return self._journal.folder

    @property
    def trace(self) -> Trace:
        """The finished trace.

        Raises:
            SessionStateError: the recording is still on.
        """
        if self._trace is None:
            raise SessionStateError(phrase("errors.trace_too_early"))
        return self._trace

    def follow(self, table: str, told: Callable[[dict[str, Any]], None]) -> None:
        """Have each row of a table told while the recording goes on, in the thread that makes it.

        Only rows that come one by one are told (choices, steps, calls, messages, faults); what is
        told must be quick, and its failure is a `faults` row.

        Raises:
            SessionStateError: the recording was begun before.
        """
        if self._began is not None:
            raise SessionStateError(phrase("errors.follow_too_late"))
        self._followers[table] = told

    def begin(self) -> Recording:
        """Attach and record.

        Raises:
            SessionStateError: it was begun before; a recording is used once.
        """
        if self._began is not None:
            raise SessionStateError(phrase("errors.begun_before"))
        self._began = datetime.datetime.now(datetime.UTC)
        self._process = os.getpid()
        has_met = meet(self._rank, self._place)
        number = self._rank.number
        with INSTALLER.boundary("calibration"):
            calibration.prepare()
        recorder = Recorder(self._journal, self._options, strict=self._strict, rank=number)
        recorder.followers = self._followers
        self._clock = clock_pair(recorder.clock, recorder.origin, has_met)
        recorder.notes["thread"] = threading.get_ident()
        self._recorder = recorder
        try:
            INSTALLER.subscribe(recorder)
            self._journal.describe(self._known_from_start(recorder))
        except BaseException:
            self._detach()
            self._recorder = None
            raise
        return self

    def stop(self) -> Trace:
        """End the recording: detach, write the trace, give it back. Again gives the same trace."""
        return self._end("completed")

    def _end(self, how: str) -> Trace:
        if self._trace is not None:
            return self._trace
        recorder = self._recorder
        if recorder is None or self._began is None:
            raise SessionStateError(phrase("errors.never_begun"))
        if os.getpid() != self._process:
            raise SessionStateError(phrase("errors.other_process", process=self._process))
        try:
            wall_ns = recorder.clock() - recorder.origin
            with recorder.guard("end of the recording"):
                recorder.finish()
        finally:
            INSTALLER.unsubscribe(recorder)
        with recorder.guard("end of the recording"):
            recorder.end()
        manifest = self._known_from_start(recorder) | {"ended": how}
        with recorder.guard("manifest"):
            manifest = self._manifest(recorder, how, wall_ns)
        with recorder.guard("journal"):
            recorder.flush()  # what making the manifest had to say
        self._trace = Trace(self._close(manifest))
        return self._trace

    def _close(self, manifest: dict[str, Any]) -> Store:
        """Close the journal; what fails by a fault of the lab is tried again, the trace kept."""
        try:
            return self._journal.close(manifest)
        except Exception as error:
            if self._strict:
                raise
            return self._journal.close(manifest | {"closing_failure": repr(error)})

    def _known_from_start(self, recorder: Recorder) -> dict[str, Any]:
        """The manifest's first half: what a killed recording leaves too."""
        return {
            "schema_version": SCHEMA_VERSION,
            "versions": _versions(),
            "machine": _machine(),
            "started": self._began.isoformat() if self._began else None,
            "clock": self._clock,
            "options": {name: getattr(self._options, name) for name in Options.__slots__},
            **self._rank.fields(),
        }

    def _manifest(self, recorder: Recorder, how: str, wall_ns: int) -> dict[str, Any]:
        return self._known_from_start(recorder) | {
            "state": "complete",
            "ended": how,
            "duration_ns": wall_ns,
            "targets": _targets(recorder),
            "index_only": recorder.notes.get("index_only", {}),
            "dropped": recorder.dropped,
            "recorder": calibration.cost(recorder, wall_ns),
        }

    def __enter__(self) -> Recording:
        try:
            return self.begin()
        except BaseException:
            self._detach()
            raise

    def _detach(self) -> None:
        """Nobody will end this recording any more: at least nothing of it stays attached."""
        if self._recorder is not None:
            INSTALLER.unsubscribe(self._recorder)
            self._recorder.leave_threads()
        self._journal.release()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if os.getpid() != self._process:
            return  # a forked child has come out of its parent's block
        try:
            self._end(self._how(kind, error))
        except BaseException:
            self._detach()
            raise

    def _how(self, kind: type[BaseException] | None, error: BaseException | None) -> str:
        if kind is None:
            return "completed"
        if error is None or self._options.redact_text:  # its words may quote the prompt
            return kind.__name__
        return f"{kind.__name__}: {in_english(error)}"

    def __repr__(self) -> str:
        if self._trace is not None:
            return f"<recording, ended: {self._trace!r}>"
        if self._began is None:
            return "<recording, not begun>"
        return f"<recording since {self._began.astimezone():%H:%M:%S}; stop() ends it>"

    def _repr_html_(self) -> str:
        return badge(self._told(), is_on=self._trace is None)

    def _told(self) -> str:
        """The badge's words, in the language that holds; `repr` is for code and stays English."""
        if self._trace is not None:
            return text("recording.ended", trace=repr(self._trace).strip("<>"))
        if self._began is None:
            return text("recording.not_begun")
        return text("recording.since", time=f"{self._began.astimezone():%H:%M:%S}")


def badge(told: str, *, is_on: bool) -> str:
    """A recording's own words, in their pointed brackets, as a badge for a notebook."""
    colour = "#d55e00" if is_on else "#0072b2"
    told = told.strip("<>").replace("<", "&lt;").replace(">", "&gt;")
    return (
        f'<span style="border:1px solid {colour};color:{colour};border-radius:4px;'
        f'padding:1px 8px">&#9679; {told}</span>'
    )


def record(
    path: str | os.PathLike[str] | None = None,
    *,
    detail: Literal["stages", "layers", "modules"] = "layers",
    effects: bool = True,
    top_k: int = 10,
    values: bool = False,
    logits: bool = False,
    verify_weights: bool = False,
    layers: tuple[int, ...] | list[int] | None = None,
    steps: tuple[int, ...] | list[int] | None = None,
    redact_text: bool = False,
    max_bytes: int | None = None,
    if_exists: Literal["error", "replace", "number"] = "error",
    strict: bool = False,
) -> Recording:
    """Record what the Hugging Face code in a `with` block does.

    Args:
        path: folder to write while recording; None keeps the trace in memory. Under torchrun each
            rank writes a folder of its own inside, and `open_trace(path)` reads all as one; where
            torch.distributed is up, ranks wait up to two seconds for each other before they begin.
        detail: `stages` no module hooks; `layers` the model, its sub-models, embeddings, layers
            with attention and MLP, norm and head; `modules` every module.
        effects: what each logits processor did at each step; not at detail `stages`.
        top_k: candidates kept for each choice.
        values: statistics of module outputs, read at once (on a GPU each is a synchronisation).
        logits: the full raw logits of each step, in the model's dtype.
        verify_weights: compare weights with their sources at the end of each load.
        layers: numbers of the layers to hook; None for all.
        steps: numbers of the steps whose modules are recorded; None for all.
        redact_text: drop text, bytes, vocabulary strings and token ids; kinds and counts stay.
        max_bytes: over it detail is given up, in the order logits, modules, candidates and
            effects, cache layers.
        if_exists: what to do when `path` holds a trace: error, replace it, or number this one.
        strict: re-raise the lab's own failures instead of writing them as `faults` (for tests).

    Raises:
        StorageError: `path` can't be written; raised before the block runs.
        TracerError: an option has a value that it can't have.
    """
    options = Options(
        detail=detail,
        effects=effects and detail != "stages",
        top_k=top_k,
        values=values,
        logits=logits,
        verify_weights=verify_weights,
        layers=None if layers is None else tuple(layers),
        steps=None if steps is None else tuple(steps),
        redact_text=redact_text,
        max_bytes=max_bytes,
    )
    return Recording(path, options, if_exists=if_exists, strict=strict)


def start(path: str | os.PathLike[str] | None = None, **options: Any) -> Recording:
    """Begin a recording that goes on across notebook cells, until its `stop()`.

    Takes the options of `record()`.
    """
    return record(path, **options).__enter__()


def _check(options: Options) -> None:
    if options.detail not in _DETAILS:
        raise TracerError(
            phrase("errors.no_detail", detail=options.detail, known=", ".join(_DETAILS))
        )
    if options.top_k < 0:
        raise TracerError(phrase("errors.negative_top_k", number=options.top_k))
    if options.max_bytes is not None and options.max_bytes <= 0:
        raise TracerError(phrase("errors.no_max_bytes", number=options.max_bytes))


def _targets(recorder: Recorder) -> list[dict[str, Any]]:
    """For the audit: which targets had to be seen, and how often each was."""
    return [
        {
            "target": target.name,
            "expected": bool(target.follows and recorder.targets_done.get(target.follows, 0)),
            "seen": recorder.targets_seen.get(target.name, 0),
        }
        for target in TARGETS
        if target.is_for(release()) or release() == (0, 0)
    ]


def _versions() -> dict[str, str | None]:
    found = {"python": platform.python_version()} | _installed()
    loaded = sys.modules.get("transformers")
    if loaded is not None:  # what ran, should another copy stand first on the path
        found["transformers"] = loaded.__version__
    return found


@functools.cache
def _installed() -> dict[str, str | None]:
    """Versions by package; reading them takes as long as a small recording, so it is done once."""
    found: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _machine() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    return {
        "system": platform.system(),
        "release": platform.release(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "host": platform.node(),
        "torch_threads": torch.get_num_threads() if torch else None,
        "cuda": bool(torch and torch.cuda.is_available()),
    }
