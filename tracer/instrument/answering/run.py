"""One `generate()` as it goes on: its current step, and what is resolved between steps.

A step's own copies (chosen ids, score vectors) last until the *next* boundary: `resolving.py`.
"""

from __future__ import annotations

import sys
from typing import Any

from tracer.instrument.answering import caches, device_time, resolving, scoring
from tracer.instrument.answering.beams import Beams
from tracer.instrument.answering.feeding import (
    describe_mask,
    ends,
    first_given,
    index_ends,
    with_logits,
)
from tracer.instrument.answering.own_loops import OwnLoop
from tracer.instrument.answering.step import Step
from tracer.instrument.asking import tokens
from tracer.instrument.asking.encodings import Encoding
from tracer.instrument.asking.replaced import Features
from tracer.instrument.asking.vocabulary import TextAssembler, Vocabulary
from tracer.instrument.stages import Outcome
from tracer.places import Reached
from tracer.spans import Place, Span, ThreadState


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
        self.built_from: list[list[int]] | None = None  # ids of a cache that was passed
        self.cached_before = 0
        self.cached_after: int | None = None
        self.prompt_fed = 0  # tokens of the prompt that went through the model, a row
        self.prompt_ns: int | None = None
        self.rounds = 0  # choices made so far: until the first, every forward is prefill
        self.mode = ""
        self.prompt: list[list[int]] = []
        self.chosen: list[list[int]] = []
        self.prompt_rows: list[
            int
        ] = []  # of the prompts that the answers of another's loop go on from
        self.last_choice: dict[int, dict[str, Any]] = {}
        self.texts: list[list[str | None]] = []
        self.finished: list[bool] = []
        self.stop_ids: list[int] = []
        self.encoding: Encoding | None = None
        self.tokenizer: Any = None
        self.vocabulary: Vocabulary | None = None
        self.assemblers: list[TextAssembler] = []
        self.features: list[Features] = []
        self.replaced: list[list[bool | None]] | None = None  # row, place of the prompt
        self.first_positions: list[list[list[int]]] | None = None
        self.is_custom = False  # the decoding loop is not the library's
        self.delegates = False  # a generate() of the same model within it does the work
        self.follows = ""  # how choices are followed: rows, beams, drafts or loop
        self.drafting = ""  # class of what proposes tokens
        self.beams: Beams | None = None
        self.loop: OwnLoop | None = None  # of another making than the library's
        self.is_processing = False  # logits processors run, which may call the model
        self.ends: dict[int, str] = {}  # why a row ended
        self.watches_criteria = False
        self.is_greedy = True
        self.is_compiled = False
        self.parts: dict[str, Any] = {}  # what the set-up prepared, by the function that did
        self.max_length: int | None = None
        self.chain_length = 1
        self.own_config: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}  # the library's own, where a config object holds them
        self.stacks: dict[tuple[int, int], str] = {}
        self.places: dict[str, Place] = {}  # by the stack
        self.reached: Reached | None = None  # the loop's frame, where it stood last

    @property
    def is_past_prompt(self) -> bool:
        """Whether the prompt is through: a choice tells, but in a loop of another making."""
        if self.rounds or self.loop is None:
            return bool(self.rounds)
        return self.loop.is_scored or self.is_prompt_fed(0)

    def is_prompt_fed(self, more: int) -> bool:
        """Whether the whole prompt has been fed with so many tokens more."""
        fed = self.cached_before + self.prompt_fed + more
        return bool(self.prompt) and fed >= len(self.prompt[0])

    # Boundaries

    def end_setup(self) -> None:
        """The decoding method begins: everything before it was set-up."""
        if self.setup is not None:
            vision = self.state.counts.pop("vision_rotary_applications", 0)
            self.state.close(self.setup, summary={"vision_rotary_applications": vision})
            self.setup = None

    def begin_step(self, ids: Any = None) -> None:
        """The library prepares the inputs of the next forward, out of these ids."""
        self.resolve(goes_on=True)
        self.number += 1
        state = self.state
        stage = "decode" if self.is_past_prompt else "prefill"
        steps = self.recorder.options.steps
        state.mute(steps is not None and self.number not in steps)
        places = self.recorder.places
        span = state.open(
            "steps",
            stage,
            f"{stage} {self.number}",
            model=self.name,
            source=places.source(type(self.model).forward),
            stack=self.where_it_stands(),
        )
        state.context = self.recorder.context(self.span.seq, self.number, stage)
        self.step = Step(self.number, span, span.start, rotary_rows=len(state.rows))
        self.step.columns = {"step": self.number, "kind": stage}
        if self.follows == "drafts" and ids is not None:
            self.step.drafted = ids[0, len(self.prompt[0]) + len(self.chosen[0]) :].clone()
            self.step.columns["drafted_tokens"] = len(self.step.drafted)
            if self.rounds and len(self.step.drafted):
                self.step.columns["kind"] = "verify"

    def where_it_stands(self) -> str:
        """Key of the call path to the loop, walked anew only when the loop stands elsewhere."""
        places = self.recorder.places
        loop = places.caller(sys._getframe())
        where = (0, 0) if loop is None else (id(loop.f_code), loop.f_lasti)
        if where not in self.stacks:
            self.stacks[where] = places.stack(loop)
        stack = self.stacks[where]
        self.reached = None if loop is None else (id(loop), loop.f_lasti, stack)
        return stack

    def prepared(self, outcome: Outcome) -> None:
        """The inputs are ready: how many tokens, where, under which mask."""
        step = self.step
        if step is None or outcome.result is None:
            return
        step.columns["prepare_ns"] = self.recorder.clock() - step.start_ns
        self.given(step, outcome.result)

    def given(self, step: Step, inputs: Any) -> None:
        """What the forward of a step is given."""
        ids = first_given(inputs, "input_ids", "inputs_embeds", "decoder_input_ids")
        mask = inputs.get("attention_mask")
        cache = first_given(inputs, *caches.NAMES)
        step.columns |= {
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

    def is_between_forwards(self, model: Any) -> bool:
        """Whether a loop of the user's own may call this model past its preparation of inputs."""
        given, is_free = self.kwargs.get("custom_generate"), not self.is_processing
        if self.step is not None and self.step.columns.get("forward_ns") is None:
            is_free = False
        if isinstance(given, str):  # code of a folder, which prepares what it likes, or nothing
            is_ready = not self.delegates and (self.is_custom or not self.mode)
        else:
            is_ready = callable(given) and "_get_stopping_criteria" in self.parts
        return is_free and is_ready and model is self.model

    def forward_began(self, device: Any = None) -> None:
        """The model's forward begins, on this device."""
        step = self.step
        if step is not None:
            step.in_forward = True
            with self.recorder.guard("device time"):
                step.timer = device_time.begin(self.model, device)
            step.forward_start = self.recorder.clock()

    def forward_ended(self, outcome: Outcome) -> None:
        """The model's forward has ended; its logits are copied, the last position only."""
        step = self.step
        if step is None:
            return
        step.columns["forward_ns"] = self.recorder.clock() - step.forward_start
        if step.timer is not None:
            with self.recorder.guard("device time"):
                step.timer.end()
        result = outcome.result
        if result is None:
            return
        step.is_fed = True
        cache = first_given(result, *caches.NAMES) if hasattr(result, "get") else None
        self.last_cache = cache if cache is not None else self.last_cache
        step.seen_after = caches.counted(self.last_cache, step.fed_at)
        step.columns["logits_tokens"] = with_logits(result)
        logits = getattr(result, "logits", None)
        if self.loop is not None and logits is not None:
            self.loop.forward_ended(logits)
        elif self.follows:
            scoring.keep_logits(self, step, logits)

    def beams_selected(self, given: dict[str, Any], result: Any) -> None:
        """Beam search has selected what goes on."""
        if self.step is not None and self.beams is not None:
            self.step.selection = self.beams.selected(self.rounds - 1, given, result)

    def end_step(self, step: Step, status: str = "ok") -> None:
        """Its span ends; its row waits for what is read later."""
        if step.row is None:
            step.row = self.state.close_held(step.span, status)

    # Resolution, between steps

    def resolve(self, *, goes_on: bool = False, status: str = "ok") -> None:
        """Read what the last step left, write its rows, and free its copies.

        Args:
            goes_on: Whether another step follows.
            status: How the step ended, if it is still open.
        """
        step, self.step = self.step, None
        if step is None:
            return
        self.end_step(step, status)
        self.state.mute(False)
        resolving.resolve(self, step, goes_on=goes_on)

    def cache_unused(self) -> None:
        """A cache was handed over, and nothing put into it."""
        words = "never filled by the model"
        why = self.span.columns.get("cache_why") or ""
        if words not in why:
            self.span.columns["cache_why"] = f"{why}, {words}"

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
