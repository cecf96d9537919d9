"""The chat template: messages rendered into one text, and who wrote which piece of it."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

from tracer.instrument.stages import Call, Observer, open_call, open_span
from tracer.spans import ThreadState

_MARK: Final = re.compile("\ue000(\\d+)\ue001")


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
    """`apply_chat_template` of a processor or tokenizer; prompts are told as they are rendered."""
    owner = call.args[0]
    span = open_call(state, call, f"{type(owner).__name__}.{call.target.attribute}", "template")
    state.recorder.notes["template_origin"] = _template_origin(owner, call.kwargs)
    outcome = yield None
    state.close(span, outcome.status)


def rendered(state: ThreadState, call: Call) -> Observer:
    """`render_jinja_template`: conversations in, one text each out, before any tokenizing."""
    span = open_span(state, call)
    outcome = yield None
    state.close(span, outcome.status)
    conversations = call.argument(0, "conversations")
    if outcome.error is None and conversations is not None:
        with state.own_work("segments of the prompt"), state.recorder.guard(call.target.name):
            _tell(state, call, conversations, outcome.result[0])


def _tell(state: ThreadState, call: Call, conversations: list[Any], texts: list[str]) -> None:
    recorder = state.recorder
    for row, (messages, text) in enumerate(zip(conversations, texts, strict=True)):
        segments = _split_by_marks(call, messages, text) or split(text, messages)
        prompt = Prompt(text, segments)
        recorder.notes.setdefault("prompts", {})[text] = prompt
        recorder.add_fact(
            "prompts",
            state.top,
            state.call,
            row=row,
            text=text,
            template_origin=recorder.notes.get("template_origin"),
        )
        for segment in prompt.segments:
            recorder.add_fact(
                "segments",
                state.top,
                state.call,
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
        role = str(message.get("role"))
        for words in _own_words(message):
            start = _find(text, words, role, cursor)
            if start < 0:
                continue
            if start > cursor:
                segments.append(Segment(cursor, start, None, "template", None))
            cursor = start + len(words)
            segments.append(Segment(start, cursor, role, _origin(role), number))
    if cursor < len(text):
        segments.append(Segment(cursor, len(text), None, "template", None))
    return segments


def _split_by_marks(call: Call, messages: list[dict[str, Any]], text: str) -> list[Segment] | None:
    """The template rendered once more with marks in place of the words: exact, or None.

    Words that stand elsewhere in the prompt too can't mislead it. None where the marks put back
    into words do not give the very text, as with a template that cuts or rewrites words.
    """
    words: list[tuple[int, str]] = []
    marked = [_with_marks(message, number, words) for number, message in enumerate(messages)]
    arguments = {**call.kwargs, "conversations": [marked]}
    pieces = _MARK.split(call.function(*call.args[1:], **arguments)[0][0])
    segments: list[Segment] = []
    cursor = 0
    for place, piece in enumerate(pieces):
        is_words = place % 2 == 1
        number, content = words[int(piece)] if is_words else (-1, piece)
        if is_words and not text.startswith(content, cursor):
            content = content.strip()  # templates trim
        if not text.startswith(content, cursor):
            return None
        if content:
            role = str(messages[number].get("role")) if is_words else None
            origin = _origin(role) if is_words else "template"
            end = cursor + len(content)
            segments.append(Segment(cursor, end, role, origin, number if is_words else None))
            cursor = end
    return segments if cursor == len(text) else None


def _with_marks(
    message: dict[str, Any], number: int, words: list[tuple[int, str]]
) -> dict[str, Any]:
    def mark(text: str) -> str:
        words.append((number, text))
        return f"\ue000{len(words) - 1}\ue001"

    content = message.get("content")
    if isinstance(content, str) and content.strip():
        return {**message, "content": mark(content)}
    if not isinstance(content, list):
        return message
    parts = [
        {**part, "text": mark(part["text"])}
        if isinstance(part, dict) and isinstance(part.get("text"), str) and part["text"]
        else part
        for part in content
    ]
    return {**message, "content": parts}


def _origin(role: str | None) -> str:
    return role if role in {"system", "user", "assistant", "tool"} else "unknown"


def _find(text: str, words: str, role: str, cursor: int) -> int:
    """Where a message's words begin; not inside the name of its role, which templates write."""
    start = text.find(words, cursor)
    named = text.find(role, cursor)
    if 0 <= named <= start < named + len(role):
        return text.find(words, named + len(role))
    return start


def _own_words(message: dict[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content.strip()] if content.strip() else []
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str) and text]
