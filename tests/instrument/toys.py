"""Toy models, questions to them, and a picture of everything that a recording must give back."""

import dataclasses
import hashlib
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import torch
from transformers.generation.utils import GenerationMixin

import tracer
from tracer import Trace
from tracer.demo import draw_scene
from tracer.instrument import patching
from tracer.instrument.installer import INSTALLER
from tracer.instrument.loads import load_notes
from tracer.instrument.modules import is_stand_in
from tracer.instrument.targets import STAND_IN, TARGETS
from tracer.spans import ACTIVE

MODELS: list[Any] = []
"""Models that fixtures built: their hooks are counted around every test."""

# Written by copying, by warning, and by the library's own memory of what a class can do.
_NOT_OURS = ("__slotnames__", "__warningregistry__", "_cached_value", "_hf_api")
_FAMILY_FILES = (".modeling_", ".image_processing_", ".video_processing_")
_TARGETED = {target.attribute for target in TARGETS}
_OUR_FOLDER = str(Path(patching.__file__).parent)
MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant."},
    {
        "role": "user",
        "content": [
            {"type": "image", "image": draw_scene("red circle top left")},
            {"type": "text", "text": "What is at the top left?"},
        ],
    },
]
GENERATE_ALL = {"output_logits": True, "output_scores": True, "return_dict_in_generate": True}


def is_ours(value: Any) -> bool:
    """Whether a raw attribute is a wrapper of the lab."""
    # By type: torch keeps old names that warn whoever asks them for anything.
    function = value.__func__ if type(value) in (classmethod, staticmethod, MethodType) else value
    is_function = type(function) is FunctionType
    return is_function and function.__code__.co_filename.startswith(_OUR_FOLDER)


def _is_lazy(owner: Any, name: str, before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether a package has meanwhile got a module of its own, or a lazy one a name of its own."""
    was_absent = name not in before and not is_ours(now[name])
    is_module = now.get(name) is sys.modules.get(f"{owner.__name__}.{name}", owner)
    return was_absent and (is_module or type(owner).__name__ == "_LazyModule")


def _classes_below(owner: type) -> Iterator[type]:
    for heir in owner.__subclasses__():
        yield heir
        yield from _classes_below(heir)


def owners() -> dict[int, Any]:
    """Every imported owner of a target, its subclasses, and the files of model families."""
    found: dict[int, Any] = {}
    for target in TARGETS:
        module = sys.modules.get(target.module)
        name = target.owner.partition(":")[2]
        owner = getattr(module, name, None) if module and name else module
        below = _classes_below(owner) if isinstance(owner, type) else ()
        found |= {id(one): one for one in (owner, *below) if one is not None}
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.models.") and any(kind in name for kind in _FAMILY_FILES):
            found[id(module)] = module
    return found


def hook_count(model: Any) -> int:
    """Hooks and stand-ins on a model's modules, of every kind that the lab could place."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_state_dict_hooks")
    hooks = sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)
    return hooks + sum(is_stand_in(vars(one).get(STAND_IN)) for one in model.modules())


def _handlers() -> list[str]:
    """Loggers that hand their lines to the lab."""
    loggers = logging.root.manager.loggerDict.items()
    return [
        name
        for name, one in loggers
        if isinstance(one, logging.Logger)
        and any(type(handler).__module__.startswith("tracer") for handler in one.handlers)
    ]


@dataclasses.dataclass
class World:
    """What a recording may change while it is on and must leave as it was."""

    attributes: dict[int, tuple[Any, dict[str, Any]]]
    hooks: list[int]
    global_hooks: int
    meta_path: list[Any]
    showwarning: Any
    handlers: list[str]

    @classmethod
    def now(cls) -> "World":
        """The world as it is."""
        module = torch.nn.modules.module
        return cls(
            {key: (owner, dict(vars(owner))) for key, owner in owners().items()},
            [hook_count(model) for model in MODELS],
            len(module._global_forward_hooks) + len(module._global_forward_pre_hooks),
            list(sys.meta_path),
            warnings.showwarning,
            _handlers(),
        )

    def differences(self) -> list[str]:
        """What is not as it was; wrappers left on owners imported meanwhile count too."""
        after = World.now()
        found = [
            f"{getattr(owner, '__qualname__', owner.__name__)}.{name}"
            for key, (owner, now) in after.attributes.items()
            for name in now.keys() | self.attributes.get(key, (owner, now))[1].keys()
            if not name.endswith(_NOT_OURS)
            and not (owner is torch.nn.Module and name not in _TARGETED)  # others write there too
            and not _is_lazy(owner, name, self.attributes.get(key, (owner, now))[1], now)
            and (
                is_ours(now.get(name))
                or now.get(name) is not self.attributes.get(key, (owner, now))[1].get(name)
            )
        ]
        for name in ("hooks", "global_hooks", "meta_path", "showwarning", "handlers"):
            mine, theirs = getattr(self, name), getattr(after, name)
            if mine != (theirs[: len(mine)] if name == "hooks" else theirs):
                found.append(f"{name}: {mine} became {theirs}")
        if ACTIVE or INSTALLER.recorders or INSTALLER.inside or load_notes.JOBS:
            found.append("the lab still holds recordings, threads or jobs")
        return found


def recorded_alike(
    model: Any, ids: torch.Tensor, given: dict[str, Any], **options: Any
) -> tuple[torch.Tensor, Trace]:
    """What generate() gives recorded, as it does unrecorded, and its trace, of which all holds.

    But for explained time, since other work may take the processor away.
    """
    plain = model.generate(ids, **given)
    with tracer.record(strict=True, **options) as recording:
        output = model.generate(ids, **given)
    assert torch.equal(plain, output)
    verdicts = recording.trace.audit()
    broken = verdicts[(verdicts["verdict"] == "broken") & (verdicts["check"] != "5 explained time")]
    assert broken.to_dict("records") == []
    return output, recording.trace


def fingerprint(model: Any) -> str:
    """Digest of every parameter's and buffer's bytes."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def ask(processor: Any, messages: list[dict[str, Any]] | None = None) -> tuple[str, Any]:
    """The rendered prompt and the tensors for the demo model, through the usual helper."""
    from qwen_vl_utils import process_vision_info

    messages = MESSAGES if messages is None else messages
    text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    images, videos = process_vision_info(messages)
    return text, processor(text=[text], images=images, videos=videos, return_tensors="pt")


def generate(model: GenerationMixin, inputs: Any, **settings: Any) -> Any:
    """Five tokens with all that generate() can return, always from the same random state."""
    torch.manual_seed(7)
    return model.generate(**inputs, **({"max_new_tokens": 5} | GENERATE_ALL | settings))


def text_inputs(rows: int = 1) -> dict[str, Any]:
    """Ids for a language model; the second row is shorter and padded on the left."""
    ids = torch.tensor([[11, 12, 13, 14, 15, 16], [0, 0, 21, 22, 23, 24]])[:rows]
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}
