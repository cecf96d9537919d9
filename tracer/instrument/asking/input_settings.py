"""Settings of an encoding call in force, each with where it came from and whether it acted.

Told of the outermost call: scope `tokenizer` for what the text went through, `processor` for what
pictures did, with `images_kwargs.` or `videos_kwargs.` before a name that is one kind's own.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tracer.instrument.asking import resizes
from tracer.instrument.asking.known_arguments import read_by
from tracer.instrument.stages import Call, Observer, open_span
from tracer.recorder import Recorder
from tracer.spans import ThreadState

if TYPE_CHECKING:
    from tracer.instrument.asking.encodings import Pieces
    from tracer.instrument.asking.images import Image
    from tracer.instrument.asking.inputs import Work

_GROUPS: Final = ("text_kwargs", "images_kwargs", "videos_kwargs", "audio_kwargs", "common_kwargs")
_NO_SETTINGS: Final = frozenset(
    {"self", "text", "text_pair", "text_target", "text_pair_target", "images", "videos", "audio"}
    | {"kwargs", "args", "tokenizer_kwargs", "verbose", "conversation"}
)
# Settings of a picture's way, in the order in which they act.
_OF_PICTURES: Final = (
    "do_convert_rgb", "do_resize", "resample", "do_center_crop", "crop_size", "do_rescale",
    "rescale_factor", "do_normalize", "image_mean", "image_std", "patch_size",
    "temporal_patch_size", "merge_size", "do_sample_frames",
)  # fmt: skip
_NO_EFFECT: Final[dict[str, tuple[str, ...]]] = {
    "do_resize": ("resample", "min_pixels", "max_pixels"),
    "do_rescale": ("rescale_factor",),
    "do_normalize": ("image_mean", "image_std"),
    "do_center_crop": ("crop_size",),
}
"""A step of a picture's way, and the settings that say nothing where it is left out."""


def argument(call: Call, name: str) -> Any:
    """An argument by the function's own signature; None when it was not given."""
    if name in call.kwargs:
        return call.kwargs[name]
    names = list(inspect.signature(call.function).parameters)
    place = names.index(name) if name in names else len(call.args)
    return call.args[place] if place < len(call.args) else None


def asked_of(call: Call) -> dict[str, Any]:
    """The settings that the user gave to a call, those of a group among them."""
    names = list(inspect.signature(call.function).parameters)
    given = dict(zip(names, call.args, strict=False)) | call.kwargs
    asked = {name: value for name, value in given.items() if name not in _NO_SETTINGS}
    for group in _GROUPS:
        asked |= dict(asked.pop(group, None) or {})
    return asked


@dataclasses.dataclass(slots=True)
class InForce:
    """What an encoding call worked with, as far as the library has said so."""

    merged: dict[str, Any] | None = None
    strategies: tuple[str, str, int | None] | None = None
    tokenizer: Call | None = None
    parts: dict[str, tuple[Any, dict[str, Any]]] = dataclasses.field(default_factory=dict)
    cut: int = 0
    padded: int = 0
    rows: int = 0

    def note_tokenizer(
        self,
        call: Call,
        pieces: Sequence[Pieces | None],
        ids: Sequence[Sequence[int]],
        mask: Sequence[Sequence[int]] | None,
    ) -> None:
        """How the tokenizer was called, and whether it cut or padded."""
        self.tokenizer = call
        self.cut = sum(one.cut for one in pieces if one is not None)
        self.padded = sum(row.count(0) for row in mask or ())
        self.rows = len(ids)

    def note_part(self, part: Any, kind: str, arguments: dict[str, Any]) -> None:
        """How an image or video processor was called."""
        self.parts[kind] = (part, dict(arguments))


def strategies(state: ThreadState, call: Call) -> Observer:
    """`_get_padding_truncation_strategies`: what the arguments of a tokenizer come to."""
    outcome = yield None
    work: Work | None = state.notes.get("encoding")
    if work is not None and outcome.error is None:
        padding, truncation, length, *_ = outcome.result
        work.settings.strategies = (_word(padding), _word(truncation), length)


def merged(state: ThreadState, call: Call) -> Observer:
    """`_merge_kwargs`: what a processor gives to its parts, the user's arguments and its own."""
    span = open_span(state, call)
    outcome = yield None
    state.close(span, outcome.status)
    work: Work | None = state.notes.get("encoding")
    if work is not None and outcome.error is None:
        work.settings.merged = {
            group: dict(values) if isinstance(values, dict) else values
            for group, values in outcome.result.items()
        }


def _word(value: Any) -> str:
    return str(getattr(value, "value", value))


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A row of `settings`, but for the event."""

    scope: str
    setting: str
    asked: Any
    effective: Any
    origin: str
    used: bool | None = True
    why: str | None = None


def tell(recorder: Recorder, event: int, work: Work) -> None:
    """Write the settings of an encoding call."""
    rows = [*_of_tokenizer(recorder, work), *_of_parts(recorder, work)]
    said = {row.setting.rpartition(".")[2] for row in rows}
    rows += [
        _of_unknown(work, name, value) for name, value in work.asked.items() if name not in said
    ]
    tell_rows(recorder, event, rows)


def tell_rows(recorder: Recorder, event: int, rows: Sequence[Row]) -> None:
    """Write rows of `settings`, the last one where two say the same."""
    for row in {(one.scope, one.setting): one for one in rows}.values():
        recorder.add_fact("settings", event, event, **dataclasses.asdict(row))


def _of_unknown(work: Work, name: str, value: Any) -> Row:
    """An argument that came to none of the settings that are known to act."""
    scope = "tokenizer" if work.owner is _tokenizer_of(work) else "processor"
    merged = work.settings.merged
    if merged is None:
        return Row(scope, name, plain(value), plain(value), "call", None, "not followed")
    for group, values in merged.items():
        if group == name:
            return Row(scope, name, plain(value), plain(values), "call")
        if isinstance(values, dict) and name in values:
            return Row(scope, f"{group}.{name}", plain(value), plain(values[name]), "call")
    why = "accepted and dropped: no part of this processor knows it"
    return Row(scope, name, plain(value), None, "call", False, why)


def _tokenizer_of(work: Work) -> Any:
    call = work.settings.tokenizer
    return None if call is None else call.args[0]


def _of_tokenizer(recorder: Recorder, work: Work) -> Iterator[Row]:
    call = work.settings.tokenizer
    if call is None:
        return
    tokenizer = call.args[0]
    signature = inspect.signature(call.function)
    given = dict(zip(signature.parameters, call.args, strict=False)) | call.kwargs
    effective = {
        name: given.get(name, each.default)
        for name, each in signature.parameters.items()
        if name not in _NO_SETTINGS
    }
    effective |= {name: one for name, one in given.items() if name not in _NO_SETTINGS}
    if work.settings.strategies is not None:
        names = ("padding", "truncation", "max_length")
        effective |= dict(zip(names, work.settings.strategies, strict=True))
    effective["truncation_side"] = getattr(tokenizer, "truncation_side", None)
    if effective.get("padding_side") is None:
        effective["padding_side"] = getattr(tokenizer, "padding_side", None)
    swallowed = frozenset(work.asked) - read_by(tokenizer, signature, work.asked)
    for name, value in effective.items():
        if value is None and name not in work.asked:
            continue
        origin = _tokenizer_origin(recorder, work, given, name, value)
        used, why = _use(work.settings, name, effective)
        if name in swallowed:
            used, why = False, "accepted and dropped: this tokenizer has no such setting"
        asked = plain(work.asked.get(name))
        yield Row("tokenizer", name, asked, plain(value), origin, used, why)


def _tokenizer_origin(
    recorder: Recorder, work: Work, given: dict[str, Any], name: str, value: Any
) -> str:
    if name in work.asked:
        return "call"
    if name in given and given[name] is not None:
        return "processor"  # its own defaults, or what its tokenizer was loaded with
    if name in ("padding_side", "truncation_side"):
        return attribute_origin(recorder, _tokenizer_of(work), name, value)
    if name == "max_length":
        return "tokenizer"  # the longest that the model can take
    return "library"


def attribute_origin(recorder: Recorder, tokenizer: Any, name: str, value: Any) -> str:
    """Who set an attribute of a tokenizer that its file, its load or its class may set too."""
    loaded = getattr(tokenizer, "init_kwargs", {})
    configuration = resizes.configuration_of(recorder, tokenizer)
    if name in loaded and loaded[name] == value:
        if configuration is None:
            return "tokenizer as loaded"
        return "from_pretrained" if name in configuration[1] else "tokenizer_config.json"
    if name not in loaded and getattr(type(tokenizer), name, None) == value:
        return "library"
    return "tokenizer after load"


def _use(known: InForce, name: str, effective: dict[str, Any]) -> tuple[bool | None, str | None]:
    """Whether a tokenizer's setting acted in this call."""
    padding, truncation = str(effective.get("padding")), str(effective.get("truncation"))
    truncates = truncation not in {"False", "None", "do_not_truncate"}
    if name == "truncation" and truncates and not known.cut:
        return False, "every row fits: nothing was cut"
    if name == "truncation" and truncates:
        return True, f"{known.cut} {'tokens were' if known.cut > 1 else 'token was'} cut"
    if name in ("truncation_side", "stride") and not known.cut:
        return False, "nothing was cut"
    if name == "max_length" and not truncates and padding != "max_length":
        return False, "neither truncation nor padding to a length is on"
    if name in ("padding", "padding_side", "pad_to_multiple_of") and not known.padded:
        one = "one row: " if known.rows == 1 else ""
        return False, f"{one}nothing was padded"
    return True, None


def _of_parts(recorder: Recorder, work: Work) -> Iterator[Row]:
    for kind, (part, arguments) in work.settings.parts.items():
        group = f"{kind}s_kwargs."
        limits = _limits(work.images, kind)
        values = {name: _in_force(part, arguments, name) for name in _OF_PICTURES} | limits
        values |= {
            name: value
            for name, value in arguments.items()
            if name not in values and name not in {"size", "images", "videos"}
        }
        for name, value in values.items():
            if value is None and name not in work.asked:
                continue
            asked = work.asked.get(name)
            origin = resizes.origin_of(recorder, part, work.asked, name, value)
            left_out = [step for step, ruled in _NO_EFFECT.items() if name in ruled]
            off = next((step for step in left_out if values.get(step) is False), None)
            yield Row(
                "processor",
                group + name,
                plain(asked),
                plain(value),
                origin,
                off is None,
                None if off is None else f"{off} is off",
            )


def _in_force(part: Any, arguments: dict[str, Any], name: str) -> Any:
    given = arguments.get(name)
    return getattr(part, name, None) if given is None else given


def _limits(pictures: Sequence[Image], kind: str) -> dict[str, int | None]:
    """Pixel limits as the size function was handed them; no field of the processor is asked."""
    for image in pictures:
        for one in image.resizes:
            if image.kind == kind and one.by == "processor":
                return {"min_pixels": one.min_pixels, "max_pixels": one.max_pixels}
    return {}


def plain(value: Any) -> Any:
    """A setting's value as JSON can hold it."""
    if value is None or isinstance(value, bool | int | float | str):
        return getattr(value, "value", value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    return str(getattr(value, "value", value))
