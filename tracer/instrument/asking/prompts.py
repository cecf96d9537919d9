"""The chat template: messages rendered into one text, and who wrote which piece of it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from tracer.instrument.asking import template_sources
from tracer.instrument.asking.input_settings import argument
from tracer.instrument.stages import Call, Observer, open_call, open_span
from tracer.ledger import Guard
from tracer.spans import Span, ThreadState

Render = Callable[[list[Any]], str]
"""Renders one conversation once more, with what the call gave besides it."""

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
    span = _open(state, call)
    outcome = yield None
    state.close(span, outcome.status)


def _open(state: ThreadState, call: Call) -> Span:
    """A call; a span inside a processor's, whose own call knows where the template came from."""
    owner = call.args[0]
    name = f"{type(owner).__name__}.{call.target.attribute}"
    if any(span.stage == call.target.stage for span in state.spans):
        return open_span(state, call, name)
    span = open_call(state, call, name, call.target.stage)
    with state.own_work("origin of the template"), state.recorder.guard("template_origin"):
        given = call.argument(2, "chat_template")
        state.recorder.notes["template_origin"] = template_sources.origin(
            state.recorder, owner, given
        )
    with state.own_work("end of the prompt"), state.recorder.guard("generation_prompt"):
        span.columns["summary"] = _ending(call)
    return span


def _ending(call: Call) -> dict[str, Any]:
    """Whether the prompt is to end where an answer begins, and whether the template can do that."""
    owner = call.args[0]
    conversations = _conversations(argument(call, "conversation"))
    known = argument(call, "chat_template") or getattr(owner, "chat_template", None)
    texts = known.values() if isinstance(known, dict) else [known]
    return {
        "generation_prompt": bool(argument(call, "add_generation_prompt")),
        "offers_generation_prompt": any("add_generation_prompt" in str(one) for one in texts),
        "continues_last": bool(argument(call, "continue_final_message")),
        "last_roles": [str(messages[-1].get("role")) for messages in conversations if messages],
    }


def tokenizer_template(state: ThreadState, call: Call) -> Observer:
    """`apply_chat_template` of a tokenizer that renders in its own body, before it tokenizes.

    The text is what it gives; where it gives ids, what it gives when asked for the text first,
    since the ids are credited to their authors as they are made.
    """
    span = _open(state, call)
    conversations = _conversations(call.argument(1, "conversation"))

    def render(messages: list[Any]) -> str:
        as_text = {**call.kwargs, "tokenize": False, "return_dict": False}
        as_text.pop("conversation", None)
        as_text.pop("return_assistant_tokens_mask", None)
        text: str = call.function(call.args[0], messages, *call.args[2:7], **as_text)
        return text

    gives_ids = call.argument(7, "tokenize") is not False
    if gives_ids:
        # What the template refuses, the library's own call refuses next, with its own words.
        texts = []
        with state.own_work("prompt as text"), Guard(state.recorder, span.name, is_quiet=True):
            texts = [render(one) for one in conversations]
        _tell_own(state, call, conversations, texts, render)
    outcome = yield None
    if not gives_ids and outcome.error is None:
        texts = [outcome.result] if isinstance(outcome.result, str) else outcome.result
        _tell_own(state, call, conversations, texts, render)
    state.close(span, outcome.status)


def _tell_own(
    state: ThreadState, call: Call, conversations: list[Any], texts: list[str], render: Render
) -> None:
    if texts:
        with state.own_work("segments of the prompt"), state.recorder.guard(call.target.name):
            _tell(state, conversations, texts, render)


def _conversations(given: Any) -> list[Any]:
    """A list of conversations, of one or of many, as the library tells them apart."""
    is_batch = bool(given) and isinstance(given[0], list | tuple)
    return list(given) if is_batch else [given]


def rendered(state: ThreadState, call: Call) -> Observer:
    """`render_jinja_template`: conversations in, one text each out, before any tokenizing."""
    span = open_span(state, call)
    outcome = yield None
    state.close(span, outcome.status)
    conversations = call.argument(0, "conversations")
    if outcome.error is None and conversations is not None:
        _tell_own(state, call, conversations, outcome.result[0], _render_of(call))


def _render_of(call: Call) -> Render:
    def render(messages: list[Any]) -> str:
        arguments = {**call.kwargs, "conversations": [messages]}
        text: str = call.function(*call.args[1:], **arguments)[0][0]
        return text

    return render


def _tell(
    state: ThreadState, conversations: Sequence[Any], texts: Sequence[str], render: Render
) -> None:
    recorder = state.recorder
    for row, (messages, text) in enumerate(zip(conversations, texts, strict=True)):
        segments = _split_by_marks(render, messages, text) or split(text, messages)
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


def _split_by_marks(
    render: Render, messages: list[dict[str, Any]], text: str
) -> list[Segment] | None:
    """The template rendered once more with marks in place of the words: exact, or None.

    Words that stand elsewhere in the prompt too can't mislead it. None where the marks put back
    into words do not give the very text, as with a template that cuts or rewrites words.
    """
    words: list[tuple[int, str]] = []
    marked = [_with_marks(message, number, words) for number, message in enumerate(messages)]
    pieces = _MARK.split(render(marked))
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
