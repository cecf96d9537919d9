"""What a load notes on its way, until tables are made of it: names and numbers, never a tensor.

`loading.py`, `reads.py`, `steps.py` and, before release 5, `shards.py` and `shard_reads.py` write
it; `load_facts.py`, `placements.py`, `folder_facts.py`, `file_rows.py` and `read_rows.py` make rows
of it.
"""

from __future__ import annotations

import dataclasses
import os
import re
import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracer.checkpoint import Header
from tracer.errors import CheckpointError, in_english
from tracer.formats.safetensors import HeaderText, parse_header
from tracer.instrument.loads import written
from tracer.listing import Listing
from tracer.spans import ThreadState
from tracer.survey import Survey

if TYPE_CHECKING:
    from tracer.instrument.loads.named_tensors import Taken
    from tracer.instrument.loads.shard_reads import Shards

JOBS: dict[int, Load] = {}
"""Identity of what a load gives its worker threads (a slice, a tensor, a shard), to that load."""

BATCH = 512


ParamTimes = tuple[int | None, int | None, int | None]
"""What one parameter cost the loading thread: waiting, conversion, placing, in nanoseconds; None
where it did nothing. A plain tuple, which Python's collector leaves alone: objects of our own, one
a tensor, would make it walk over the whole model once more."""

NO_TIMES: Final[ParamTimes] = (None, None, None)


@dataclasses.dataclass(slots=True)
class Plan:
    """Where the library wants a checkpoint tensor to go."""

    param: str
    pattern: str | None
    rule: str
    operations: list[str]


Planned = tuple[str, str, str | None, str, list[str]]
"""Key of a tensor, and what makes its `Plan`."""


class Inner(NamedTuple):
    """A tensor of a model that was loaded within this load, and its name in there."""

    load: Load
    tensor: weakref.ref[Any]
    name: str


BY_PEFT: Final = "in no file; as PEFT made it when it added the adapter"
IN_ITS_FILE: Final = "left in its file, which is read at each use"
IN_OFFLOAD_FOLDER: Final = "written from the file to the offload folder, read at each use"


@dataclasses.dataclass(slots=True)
class Load:
    """One `PreTrainedModel.from_pretrained` as it goes on. Holds names and numbers, no tensor."""

    state: ThreadState
    call: int
    asked: str | None = None
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    by_user: frozenset[str] = frozenset()
    model: str | None = None
    about: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What the row of `models` will tell of the finished model, besides sums."""
    may_be_missing: re.Pattern[str] | None = None
    """Names that the class itself expects in no file, such as tables of sines."""
    folder: str | None = None
    listing: Listing | None = None
    survey: Survey | None = None
    unopened: dict[str, Header] = dataclasses.field(default_factory=dict)
    """Of a load that failed: headers of all that it would have read."""
    files: list[str] = dataclasses.field(default_factory=list)
    access: dict[str, str] = dataclasses.field(default_factory=dict)
    are_mapped: bool = False
    """All files are mapped into memory by the safetensors library."""
    index: str | None = None
    keys: dict[int, str] = dataclasses.field(default_factory=dict)
    texts: dict[str, HeaderText] = dataclasses.field(default_factory=dict)
    """Headers of files that were read and are not taken apart yet: nothing asks before the end."""
    known_headers: dict[str, Header] = dataclasses.field(default_factory=dict)
    known_places: dict[str, str] = dataclasses.field(default_factory=dict)
    submitted: dict[int, int] = dataclasses.field(default_factory=dict)
    planned: list[Planned] = dataclasses.field(default_factory=list)
    """What the library said of where tensors go, since `plans` was last asked for."""
    known_plans: dict[str, Plan] = dataclasses.field(default_factory=dict)
    conversions_seen: list[tuple[str, int, int]] = dataclasses.field(default_factory=list)
    placings_seen: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    """Parameters as they were converted and set, with nanoseconds: since `times` was asked for."""
    known_times: dict[str, ParamTimes] = dataclasses.field(default_factory=dict)
    placed: set[str] = dataclasses.field(default_factory=set)
    placed_since: int = 0  # rows were last written
    reads: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    weights_seq: int = -1
    build_span: Any = None
    names_span: Any = None
    """In generation 4: a model that GGUF's reader is only to ask for its names is being built."""
    built_class: Any = None
    before_fill: dict[str, written.State] = dataclasses.field(default_factory=dict)
    meta: list[Taken] = dataclasses.field(default_factory=list)
    """What the model was as built, before any weight, until `meta_params` is told."""
    of_adapter: set[str] = dataclasses.field(default_factory=set)
    """Parameters that an adapter has added to the model as it was built."""
    expected: dict[str, Taken] = dataclasses.field(default_factory=dict)
    finished: list[Taken] = dataclasses.field(default_factory=list)
    """What the model is when the load ends; what else is known of some of it then:"""
    residences: dict[str, str] = dataclasses.field(default_factory=dict)
    was_written: dict[str, bool | None] = dataclasses.field(default_factory=dict)
    brought: dict[str, Inner] = dataclasses.field(default_factory=dict)
    mismatched: set[str] = dataclasses.field(default_factory=set)
    dtype_why: str | None = None
    dtype: str | None = None
    given: dict[str, tuple[list[int], str | None, int]] = dataclasses.field(default_factory=dict)
    placement_rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    announced: dict[str, str] = dataclasses.field(default_factory=dict)
    """Names that the class means to tie, to their sources, before the file had its say."""
    device_map: dict[str, Any] | None = None
    budget: dict[str, Any] | None = None
    parts: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Parameters that one conversion made, by the one that it was planned for."""
    gguf_names: dict[str, str] = dataclasses.field(default_factory=dict)
    """Tensors of a GGUF file, to the names under which the library unpacks them."""
    packed: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """What GGUF's reader of the library made, to the tensors of the file that went into it."""
    taken: dict[str, str] = dataclasses.field(default_factory=dict)
    """Parameters, to the tensor that gives each its values; of several the one that is taken."""
    offloaded: dict[str, str] = dataclasses.field(default_factory=dict)
    replaced: dict[str, str] = dataclasses.field(default_factory=dict)
    inner: list[Inner] = dataclasses.field(default_factory=list)
    cast: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """With `values`: new infinities and new zeros of each source that was cast."""
    cut_parts: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """Shapes of what was read of each tensor that is cut between ranks (tensor parallel)."""
    of_other_ranks: set[str] = dataclasses.field(default_factory=set)
    last_sample_ns: int = 0
    samples: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    last_wait: tuple[int, int] = (-1, -1)
    workers: dict[int, str] = dataclasses.field(default_factory=dict)
    """Names of the threads that read, by their identity."""
    forms: dict[Any, Any] = dataclasses.field(default_factory=dict)
    """Cells of `tensor_loads` that many tensors have in common, put together by `read_rows`."""
    read_source: str | None = None
    read_stack: str | None = None
    conversions: list[Any] | None = None
    """The library's renamings and converters, where a quantiser has its own among them."""
    quantiser: str | None = None
    """Method of the quantiser that takes part, such as `fp8`."""
    made: set[str] = dataclasses.field(default_factory=set)
    """What a quantiser gave values to that no file has."""
    shards: Shards | None = None  # of generation 4 only, which reads shard by shard

    @property
    def headers(self) -> dict[str, Header]:
        """Headers of the load's files, by path."""
        self._take_apart()
        return self.known_headers

    @property
    def dtype_asked(self) -> Any:
        """What the user asked for, under its new or its old name; a dict has one a part."""
        return self.arguments.get("dtype", self.arguments.get("torch_dtype"))

    @property
    def header_paths(self) -> list[str]:
        """Files whose headers were read."""
        return [*self.known_headers, *self.texts]

    @property
    def file_of(self) -> dict[str, str]:
        """Each tensor of the files, to the path of the one that it is read from."""
        self._take_apart()
        return self.known_places

    def name_of(self, path: str) -> str:
        """A file as the tables name it: by its path below the folder that the index lies in."""
        root = f"{os.path.dirname(self.index)}{os.sep}" if self.index else ""
        return path[len(root) :] if root and path.startswith(root) else os.path.basename(path)

    def note_header(self, path: str, header: Header) -> None:
        """A file's header is known; of a name in two files the later one stays, as in a dict."""
        self.known_headers[path] = header
        self.known_places.update(dict.fromkeys(header.tensors, path))

    def _take_apart(self) -> None:
        while self.texts:
            path = next(iter(self.texts))
            text = self.texts.pop(path)
            try:
                self.note_header(path, parse_header(text))
            except CheckpointError as error:
                self.state.recorder.fault(text.path.name, in_english(error), call=self.call)

    def gave_way_to(self, key: str) -> str | None:
        """Of tensors renamed to one parameter, that which is taken in this one's place, if one is.

        Asked for once the load is over. Generation 5 takes the first, generation 4 the last.
        """
        plan = self.plans[key]
        if plan.operations:
            return None
        if not self.taken:
            for each, other in self.plans.items():
                self.taken.setdefault(other.param, each)
            if self.shards is not None:
                self.taken |= self.shards.key_of
        taken = self.taken[plan.param]
        return None if taken == key else taken

    @property
    def set_from(self) -> str:
        """What shows where values were read: a file, or tensors that the call was given."""
        whence = "the file" if self.files else "the state_dict that the call was given"
        return f"set from {whence}"

    def targets_of(self, param: str) -> list[str]:
        """What the tensors planned for a parameter became: itself, or the parts of a split."""
        return self.parts.get(param, [param])

    @property
    def plans(self) -> dict[str, Plan]:
        """Where the library wants each tensor to go."""
        if self.planned:
            for key, param, pattern, rule, operations in self.planned:
                self.known_plans[key] = Plan(param, pattern, rule, operations)
            self.planned.clear()
        return self.known_plans

    @property
    def times(self) -> dict[str, ParamTimes]:
        """What each parameter cost the loading thread; one in several pieces is set by several."""
        if self.conversions_seen or self.placings_seen:
            times = dict(self.known_times)
            for param, waited, converted in self.conversions_seen:
                wait, convert, place = times.get(param, NO_TIMES)
                times[param] = (wait or 0) + waited, (convert or 0) + converted, place
            for param, placed in self.placings_seen:
                wait, convert, place = times.get(param, NO_TIMES)
                times[param] = wait, convert, (place or 0) + placed
            self.known_times = times
            self.conversions_seen, self.placings_seen = [], []
        return self.known_times

    def total_times(self) -> tuple[int, int, int]:
        """The sums of `times`, which it does not take apart for that."""
        known = [tuple(one or 0 for one in times) for times in self.known_times.values()]
        waited = sum([one[0] for one in known]) + sum([one[1] for one in self.conversions_seen])
        converted = sum([one[1] for one in known]) + sum([one[2] for one in self.conversions_seen])
        placed = sum([one[2] for one in known]) + sum([one[1] for one in self.placings_seen])
        return waited, converted, placed

    def note_placing(self, param: str, took_ns: int) -> None:
        """A parameter was set by a call that took so long."""
        self.placings_seen.append((param, took_ns))


def forget_jobs(load: Load) -> None:
    """A load is over: what it handed out is nobody's job any more."""
    for identity, of in list(JOBS.items()):
        if of is load:
            JOBS.pop(identity, None)


def job_state(args: tuple[Any, ...]) -> ThreadState | None:
    """State of a worker thread that takes up a job of a load: its spans lie below the load's."""
    load = JOBS.get(id(args[0])) if args else None
    if load is None or not load.state.recorder.is_live:
        return None
    state = load.state.recorder.thread_state()
    state.load, state.call, state.top = load, load.call, load.weights_seq
    return state
