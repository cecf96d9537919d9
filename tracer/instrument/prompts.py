"""The chat template: messages rendered into one text, and who wrote which piece of it."""

from __future__ import annotations

import dataclasses
from typing import Any

from tracer.instrument.stages import Call, Observer, open_call
from tracer.recorder import ThreadState


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a rendered prompt: characters `start` to `end`."""

    start: int
    end: int
    role: str | None
    origin: str
    message: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt that an encoding may use later."""

    text: str
    segments: list[Segment]


def template(state: ThreadState, call: Call) -> Observer:
    """`apply_chat_template` of a processor or tokenizer."""
    owner = call.args[0]
    recorder = state.recorder
    span = open_call(state, call, f"{type(owner).__name__}.{call.target.attribute}", "template")
    outcome = yield None
    if outcome.error is None:
        with state.own_work("segments of the prompt"), recorder.guard(call.target.name):
            conversation = call.argument(1, "conversation")
            _tell(state, span.seq, owner, conversation, call.kwargs, outcome.result)
    state.close(span, outcome.status)


def _tell(
    state: ThreadState,
    event: int,
    owner: Any,
    conversation: Any,
    kwargs: dict[str, Any],
    result: Any,
) -> None:
    texts = [result] if isinstance(result, str) else result
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return  # tokenized in the same call: the encoding inside it tells the tokens
    conversations = [conversation] if isinstance(conversation[0], dict) else conversation
    recorder = state.recorder
    for row, (messages, text) in enumerate(zip(conversations, texts, strict=True)):
        prompt = Prompt(text, split(text, messages))
        recorder.notes.setdefault("prompts", {})[text] = prompt
        recorder.add_fact(
            "prompts",
            event,
            event,
            row=row,
            text=text,
            template_origin=_template_origin(owner, kwargs),
        )
        for segment in prompt.segments:
            recorder.add_fact(
                "segments",
                event,
                event,
                row=row,
                text=text[segment.start : segment.end],
                **dataclasses.asdict(segment),
            )


def _template_origin(owner: Any, kwargs: dict[str, Any]) -> str:
    if kwargs.get("chat_template") is not None:
        return "argument of the call"
    return f"chat_template of the {type(owner).__name__}"


def split(text: str, messages: list[dict[str, Any]]) -> list[Segment]:
    """Find each message's own words in the rendered text; the rest is the template's.

    Words are looked for in order, so a template that reorders or rewrites them leaves them as
    template text rather than crediting the wrong message.
    """
    segments: list[Segment] = []
    cursor = 0
    for number, message in enumerate(messages):
        for words in _own_words(message):
            start = text.find(words, cursor)
            if start < 0:
                continue
            if start > cursor:
                segments.append(Segment(cursor, start, None, "template", None))
            cursor = start + len(words)
            role = str(message.get("role"))
            origin = role if role in {"system", "user", "assistant", "tool"} else "unknown"
            segments.append(Segment(start, cursor, role, origin, number))
    if cursor < len(text):
        segments.append(Segment(cursor, len(text), None, "template", None))
    return segments


def _own_words(message: dict[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content.strip()] if content.strip() else []
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str) and text]
