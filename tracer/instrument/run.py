"""One `generate()` as it goes on: its current step, and what is resolved between steps.

A step's own copies (chosen ids, score vectors) are read at the *next* boundary, after the library
itself has waited for the device, so that the lab adds no synchronisation. Then they are gone.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from tracer.instrument import caches, choices, measure, tokens
from tracer.instrument.encodings import Encoding
from tracer.instrument.stages import Outcome
from tracer.instrument.vocabulary import TextAssembler, Vocabulary
from tracer.spans import Span, ThreadState

Row = tuple[str, dict[str, Any]]


@dataclasses.dataclass(slots=True)
class Step:
    """The step that is open or waits to be resolved."""

    number: int
    span: Span
    start_ns: int
    columns: dict[str, Any] = dataclasses.field(default_factory=dict)
    own_ns: int = 0
    forward_start: int = 0
    in_forward: bool = False
    is_fed: bool = False
    processors_end: int | None = None
    row: Row | None = None
    positions: Any = None
    seen_before: Any = None
    seen_after: Any = None
    fed_at: Any = None  # first and last index in the sequence, where the library says so
    chose: bool = False
    scores: choices.Scores = dataclasses.field(default_factory=choices.Scores)
    rotary_rows: int = 0


class Run:
    """State of one generate() call in one thread."""

    def __init__(self, state: ThreadState, span: Span, model: Any, kwargs: dict[str, Any]) -> None:
        self.state = state
        self.recorder = state.recorder
        self.span = span
        self.model = model
        self.kwargs = kwargs
        self.name = self.recorder.models.of(model)
        self.setup: Span | None = None
        self.step: Step | None = None
        self.last_cache: Any = None
        self.number = -1
        self.rounds = 0  # choices made so far: until the first, every forward is prefill
        self.mode = ""
        self.prompt: list[list[int]] = []
        self.chosen: list[list[int]] = []
        self.last_choice: dict[int, dict[str, Any]] = {}
        self.texts: list[list[str | None]] = []
        self.finished: list[bool] = []
        self.stop_ids: list[int] = []
        self.encoding: Encoding | None = None
        self.tokenizer: Any = None
        self.vocabulary: Vocabulary | None = None
        self.assemblers: list[TextAssembler] = []
        self.features: list[Any] = []
        self.replaced: list[bool] = []
        self.first_positions: list[list[list[int]]] | None = None
        self.observes_choices = False
        self.is_greedy = True
        self.is_compiled = False
        self.max_length: int | None = None
        self.stop_strings: list[str] = []
        self.chain_length = 1
        self.own_config: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}  # the library's own, where a config object holds them
        self.stacks: dict[tuple[int, int | None], str] = {}

    # Boundaries

    def end_setup(self) -> None:
        """The decoding method begins: everything before it was set-up."""
        if self.setup is not None:
            vision = self.state.counts.pop("vision_rotary_applications", 0)
            self.state.close(self.setup, summary={"vision_rotary_applications": vision})
            self.setup = None

    def begin_step(self) -> None:
        """The library prepares the inputs of the next forward."""
        self.resolve()
        self.number += 1
        state = self.state
        stage = "decode" if self.rounds else "prefill"
        steps = self.recorder.options.steps
        state.mute(steps is not None and self.number not in steps)
        places = self.recorder.places
        span = state.open(
            "steps",
            stage,
            f"{stage} {self.number}",
            model=self.name,
            source=places.source(type(self.model).forward),
            stack=self._stack(),
        )
        state.context = self.recorder.context(self.span.seq, self.number, stage)
        self.step = Step(self.number, span, span.start, rotary_rows=len(state.rows))
        self.step.columns = {"step": self.number, "kind": stage}

    def _stack(self) -> str:
        """The call path to the loop, walked anew only when the loop stands elsewhere."""
        places = self.recorder.places
        loop = places.caller(sys._getframe())
        where = (id(loop), None if loop is None else loop.f_lineno)
        if where not in self.stacks:
            self.stacks[where] = places.stack(loop)
        return self.stacks[where]

    def prepared(self, outcome: Outcome) -> None:
        """The inputs are ready: how many tokens, where, under which mask."""
        step = self.step
        if step is None or outcome.result is None:
            return
        now = self.recorder.clock()
        inputs = outcome.result
        ids = first_given(inputs, "input_ids", "inputs_embeds", "decoder_input_ids")
        mask = inputs.get("attention_mask")
        cache = first_given(inputs, *caches.NAMES)
        step.columns |= {
            "prepare_ns": now - step.start_ns,
            "input_tokens": None if ids is None else int(ids.shape[1]),
            "mask": describe_mask(mask),
        }
        step.fed_at = index_ends(inputs.get("cache_position"))
        step.seen_before = 0 if cache is None else caches.counted(cache, step.fed_at)
        self.last_cache = cache
        self.note_positions(inputs.get("position_ids"))

    def note_positions(self, position_ids: Any) -> None:
        """Where the tokens of this step stand: from the library's preparation, or its forward."""
        if self.step is None or position_ids is None or self.step.positions is not None:
            return
        self.step.positions = ends(position_ids)
        if self.number != 0 or position_ids.ndim != 3:
            return
        # generation 5 puts the plain text positions before the three axes
        axes = position_ids[-3:] if position_ids.shape[0] >= 3 else None
        self.first_positions = None if axes is None else axes.tolist()

    def awaits_forward(self, model: Any) -> bool:
        """Whether this forward is the current step's own."""
        return self.step is not None and not self.step.in_forward and model is self.model

    def forward_began(self) -> None:
        """The model's forward begins."""
        if self.step is not None:
            self.step.in_forward = True
            self.step.forward_start = self.recorder.clock()

    def forward_ended(self, outcome: Outcome) -> None:
        """The model's forward has ended; its logits are copied, the last position only."""
        step = self.step
        if step is None:
            return
        step.columns["forward_ns"] = self.recorder.clock() - step.forward_start
        result = outcome.result
        if result is None:
            return
        step.is_fed = True
        cache = first_given(result, *caches.NAMES)
        self.last_cache = cache if cache is not None else self.last_cache
        step.seen_after = caches.counted(self.last_cache, step.fed_at)
        if self.observes_choices and self.recorder.options.logits:
            step.scores.logits = result.logits[:, -1].detach().clone()

    def processing_began(self, scores: Any) -> None:
        """Logits processors are about to run; their input is kept until the step is resolved."""
        step = self.step
        if step is not None and self.observes_choices:
            started = self.recorder.clock()
            step.scores.raw = scores.detach().clone()
            step.own_ns += self.recorder.clock() - started

    def processing_ended(self, start: int, own_ns: int, result: Any) -> None:
        """Logits processors have run."""
        step = self.step
        if step is None:
            return
        end = self.recorder.clock()
        step.processors_end = end
        step.own_ns += own_ns
        step.columns["processors_ns"] = end - start - own_ns
        if self.observes_choices and result is not None:
            step.scores.final = self._final_scores(step.scores, result)
            step.own_ns += self.recorder.clock() - end

    def _final_scores(self, scores: choices.Scores, result: Any) -> Any:
        """The scores chosen from, copied only where no copy of them exists yet."""
        if scores.after:
            return scores.after[-1][1]
        return result.detach().clone() if self.chain_length else scores.raw

    def stopping_began(self, input_ids: Any) -> None:
        """The choice is made and stands at the end of the ids."""
        step = self.step
        if step is None:
            return
        now = self.recorder.clock()
        if step.processors_end is not None:
            step.columns["select_ns"] = max(0, now - step.processors_end)
        if self.observes_choices:
            step.scores.chosen = input_ids[:, -1].clone()

    def stopping_ended(self, start: int, result: Any) -> None:
        """The stopping test has run: the step is over."""
        step = self.step
        if step is None:
            return
        step.columns["stop_ns"] = self.recorder.clock() - start
        if hasattr(result, "clone"):
            step.scores.stopped = result.clone()
        self.rounds += 1
        step.chose = True
        self._end_step(step)

    def _end_step(self, step: Step) -> None:
        if step.row is None:
            step.row = self.state.close_held(step.span)

    # Resolution, between steps

    def resolve(self) -> None:
        """Read what the last step left, write its rows, and free its copies."""
        step, self.step = self.step, None
        if step is None:
            return
        self._end_step(step)
        self.state.mute(False)
        with self.state.own_work("step resolved"):
            with self.recorder.guard("steps"):
                self._complete_row(step)
            if self.observes_choices and step.scores.is_complete:
                with self.recorder.guard("choices"):
                    choices.tell(self, step.number, step.scores)
            if step.row is not None:
                self.state.release(step.row)
            self.recorder.flush_if_due(self.state)

    def _complete_row(self, step: Step) -> None:
        if step.row is None:
            return
        columns = step.columns
        cache = self.last_cache
        if cache is not None and not step.in_forward:  # it ran past the model's own `__call__`
            step.seen_after, step.is_fed = caches.counted(cache, step.fed_at), True
        before = None if cache is None else caches.read(step.seen_before)
        after = caches.read(step.seen_after)
        fed_from, fed_to = read_pair(step.fed_at)
        if cache is not None and fed_from is not None and fed_to is not None:
            before = fed_from if before is None else before
            after = fed_to + 1 if after is None and step.is_fed else after
        first, last = read_ends(step.positions)
        if self.observes_choices and not step.chose:
            columns["kind"] = "chunk"
            if cache is not None and not step.in_forward:
                self.recorder.fault(
                    "steps",
                    "chunks of the prompt run past the model's own call: "
                    "their forward's time and its outermost module are not seen",
                )
        columns |= {
            "cache": None if cache is None else caches.name(self.recorder, cache, self),
            "cache_tokens_before": before,
            "cache_tokens_after": after,
            "recorder_ns": step.own_ns,
            "undone": False,
            "first_position": first,
            "last_position": last,
            "rope_index_calls": self.state.counts.pop("rope_index_calls", 0),
            "rotary_applications": self.state.counts.pop("rotary_applications", 0),
            "rotary_calls": self._rotary_calls(step),
        }
        fed = columns.get("input_tokens")
        if last is not None and fed is not None:
            index = (before or 0) + fed - 1
            columns["position_offset"] = last - index
        if cache is not None:
            columns["cache_bytes"] = caches.tell(
                self.recorder,
                self.span.seq,
                step.number,
                columns["cache"],
                cache,
                after if step.fed_at is not None and caches.is_preallocated(cache) else None,
            )
        step.row[1].update(columns)

    def _rotary_calls(self, step: Step) -> int | None:
        if self.recorder.options.detail == "stages" or self.state.muted:
            return None
        return caches.count_rotary(self.recorder, self.state.rows, step.rotary_rows)

    def end_text(self, row: int) -> str | None:
        """Text of a row's last token, with what its unfinished bytes read as."""
        texts = self.texts[row]
        if texts and texts[-1] is not None and self.assemblers:
            texts[-1] += self.assemblers[row].finish()
        return texts[-1] if texts else None

    # The prompt

    def placeholders(self) -> tokens.Placeholders:
        """Ids that stand for images and videos, as the model's configuration names them."""
        return tokens.Placeholders.of(self.model.config)


def first_given(inputs: Any, *names: str) -> Any:
    """The first of these arguments or outputs that there is."""
    for name in names:
        value = inputs.get(name)
        if value is not None:
            return value
    return None


def ends(position_ids: Any) -> Any:
    """Own copy of the first and last position of row 0, on each axis."""
    if position_ids is None or position_ids.ndim < 2 or position_ids.shape[-1] == 0:
        return None
    return position_ids[..., 0, :][..., [0, -1]].reshape(-1, 2).clone()


def read_ends(copied: Any) -> tuple[int | None, int | None]:
    """First and last position out of `ends`, on the first and on the largest axis."""
    if copied is None:
        return None, None
    pairs = copied.tolist()
    # The last axis group is what rotates; plain text positions before it only count tokens.
    rotating = pairs[-3:] if len(pairs) >= 3 else pairs
    return int(rotating[0][0]), int(max(pair[1] for pair in rotating))


def index_ends(cache_position: Any) -> Any:
    """Own copy of the first and last of the indices that generation 4 counts for a step."""
    count = 0 if cache_position is None else int(cache_position.shape[-1])
    return cache_position[:: max(1, count - 1)].clone() if count else None


def read_pair(copied: Any) -> tuple[int | None, int | None]:
    """First and last index out of `index_ends`."""
    if copied is None:
        return None, None
    pair = copied.tolist()
    return int(pair[0]), int(pair[-1])


def describe_mask(mask: Any) -> str:
    """Kind, shape and dtype of an attention mask."""
    if mask is None:
        return "none"
    if isinstance(mask, dict):
        return ", ".join(f"{name} {describe_mask(one)}" for name, one in mask.items())
    if not hasattr(mask, "shape"):
        return type(mask).__name__
    return f"{mask.ndim}D {measure.shape_of(mask)} {measure.dtype_name(mask.dtype)}"
