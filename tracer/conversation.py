"""What a model is asked: messages, where its answer begins, and how it is to generate.

Plain data, and the library's own functions that turn it into a prompt and into tensors. Knows no
recording; `lab` asks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, Literal

from tracer.errors import CheckpointError, TracerError
from tracer.explain import text as say

Role = Literal["system", "user", "assistant"]
_NOT_FOR_GENERATE: Final = ("seed", "stop_strings")


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: Who speaks.
        text: What is said.
        images: PIL images that come before the text.
        videos: Videos that come before the text, each a list of PIL images.
    """

    role: Role
    text: str
    images: tuple[Any, ...] = ()
    videos: tuple[Any, ...] = ()

    def for_template(self, *, in_parts: bool) -> dict[str, Any]:
        """The message as chat templates take it: in parts where a model takes pictures."""
        if not in_parts:
            return {"role": self.role, "content": self.text}
        parts: list[dict[str, Any]] = [{"type": "image"} for _ in self.images]
        parts += [{"type": "video"} for _ in self.videos]
        if self.text or not parts:
            parts.append({"type": "text", "text": self.text})
        return {"role": self.role, "content": parts}


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How to generate. None leaves a setting to the model's own defaults.

    Attributes:
        seed: Seeds torch before generating; None leaves the generator where it is.
        stop_strings: Texts at which the answer ends.
        others: named as in `generate()`.
    """

    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_new_tokens: int | None = None
    use_cache: bool | None = None
    seed: int | None = None
    stop_strings: tuple[str, ...] = ()

    def arguments(self) -> dict[str, Any]:
        """What `generate()` is given: the settings that were made, and no other."""
        fields = dataclasses.asdict(self)
        given = {
            name: value
            for name, value in fields.items()
            if value is not None and name not in _NOT_FOR_GENERATE
        }
        if self.stop_strings:
            given["stop_strings"] = list(self.stop_strings)
        return given


def tokenizer_of(front: Any) -> Any:
    """The tokenizer of a processor; a tokenizer is its own."""
    return getattr(front, "tokenizer", front)


def takes_pictures(front: Any) -> bool:
    """Whether a processor handles images, not text alone."""
    return getattr(front, "image_processor", None) is not None


def has_template(front: Any) -> bool:
    """Whether there is a chat template, in the processor or its tokenizer."""
    return bool(
        getattr(front, "chat_template", None) or getattr(tokenizer_of(front), "chat_template", None)
    )


def require_template(front: Any, place: str = "") -> None:
    """Refuse a model that can't be asked.

    Raises:
        CheckpointError: It has no chat template.
    """
    if not has_template(front):
        named = place or say("asking.this_model")
        raise CheckpointError(say("asking.no_template", place=named))


def render(front: Any, messages: Sequence[Message], answer_begins: str = "") -> str:
    """The conversation as the chat template writes it, up to where the answer goes on.

    Raises:
        CheckpointError: There is no chat template, or pictures for a model that takes none.
        TracerError: There is nothing to answer, or a character that is none.
    """
    require_template(front)
    if not any(message.role == "user" for message in messages):
        raise TracerError(say("asking.no_question"))
    in_parts = takes_pictures(front)
    if not in_parts and any(message.images or message.videos for message in messages):
        raise CheckpointError(say("asking.text_only"))
    told = [message.for_template(in_parts=in_parts) for message in messages]
    text: str = front.apply_chat_template(told, tokenize=False, add_generation_prompt=True)
    return _encodable(text + answer_begins)


def _encodable(text: str) -> str:
    """The text itself; a tokenizer refuses half a pair of surrogates, in words of its own."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"{ord(text[error.start]):04X}"
        raise TracerError(say("asking.half_character", place=error.start, half=half)) from None
    return text


def encode(front: Any, text: str, messages: Sequence[Message]) -> Any:
    """The tensors of one rendered conversation: ids of shape (1, tokens), and picture features."""
    if not takes_pictures(front):
        # The template has written every special token already.
        return front(text, add_special_tokens=False, return_tensors="pt")
    images = [image for message in messages for image in message.images]
    videos = [video for message in messages for video in message.videos]
    given: dict[str, Any] = {"images": images} if images else {}
    if videos:
        given["videos"] = videos
    return front(text=[text], **given, return_tensors="pt")
