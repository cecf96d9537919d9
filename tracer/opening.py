"""A model in memory by its name: loaded once, however often it is asked for.

What cannot work (no chat template, too little memory, a hub that hides the model) is said in one
sentence before a weight is read. `lab` asks what was opened.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import weakref
from pathlib import Path
from typing import Any, Final

from tracer.conversation import require_template
from tracer.environment import require
from tracer.errors import CheckpointError, TracerError
from tracer.explain import text
from tracer.explain.sentences import phrase
from tracer.machine import memory_left
from tracer.survey import survey_folder

_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.gguf")
_opened: weakref.WeakValueDictionary[tuple[Any, ...], Opened] = weakref.WeakValueDictionary()
_opening: dict[tuple[Any, ...], threading.Lock] = {}
_lock = threading.Lock()


@dataclasses.dataclass(slots=True, weakref_slot=True)
class Opened:
    """A model and what prepares its inputs.

    Attributes:
        name: What it was asked for by, for people; empty for the embedded model.
        front: Its processor, or its tokenizer where it takes text only.
        answering: Held while it generates: one answer at a time.
    """

    name: str
    model: Any
    front: Any
    answering: threading.Lock = dataclasses.field(default_factory=threading.Lock)


def _renew_locks() -> None:
    """In a forked child: who held them in the parent is not here to let go of them."""
    global _lock
    _lock = threading.Lock()
    _opening.clear()
    for opened in list(_opened.values()):
        opened.answering = threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=_renew_locks)


def open_model(model: Any = None, front: Any = None, *, device: str | None = None) -> Opened:
    """A model with its processor: the embedded one, one in memory, or one by folder or hub id.

    Args:
        model: None for the embedded model; a folder, GGUF file, hub id or name of a demo model; or
            a model in memory.
        front: The processor or tokenizer of a model in memory.
        device: Where a model is loaded to; by default to a GPU where there is one.

    Raises:
        CheckpointError: It has no chat template, is no chat model, or does not fit into memory.
        DownloadError: The hub does not show it, or it is gated.
        TracerError: A model in memory came without its processor.
    """
    require("torch", "transformers", extra="live", purpose="asking")
    if model is not None and not isinstance(model, str | Path):
        return _in_memory(model, front)
    key = (_identity(model), device)
    with _lock:
        turn = _opening.setdefault(key, threading.Lock())
    with turn:  # who asks for the same model at the same time waits, and shares it
        found = _opened.get(key)
        if found is None:
            found = _opened[key] = _load(model, device)
        return found


def _in_memory(model: Any, front: Any) -> Opened:
    if not hasattr(model, "generate"):
        raise TracerError(text("opening.no_generate", kind=type(model).__name__))
    if getattr(model.config, "is_encoder_decoder", False):
        raise _no_chat_model(type(model).__name__, model.config)
    key = ("in memory", id(model))
    found = _opened.get(key)
    if found is not None and found.model is model and front in (None, found.front):
        return found
    if front is None:
        raise TracerError(text("opening.no_front"))
    require_template(front, type(model).__name__)
    found = _opened[key] = Opened(type(model).__name__, model, front)
    return found


def _identity(model: str | Path | None) -> str:
    if model is None:
        return ""
    path = Path(model).expanduser()
    return str(path.resolve()) if path.exists() else str(model)


def _load(model: str | Path | None, device: str | None) -> Opened:
    from tracer.demo.models import SEEING, source_of

    source = source_of(SEEING if model is None else str(model))
    if source.gguf_file is None and Path(source.place).is_dir():
        _require_whole(Path(source.place))
    elif source.gguf_file is None:
        from tracer.demo.hub import tell_download

        tell_download(source.place)  # what it costs, and whether the hub shows it at all
    kind, front = chat_parts(source)
    require_template(front, source.place)
    _require_memory(Path(source.place), source.gguf_file)
    loaded = kind.from_pretrained(source.place, **source.options, **placement(device))
    if model is None:
        # In float32 a step out of the cache equals one that encodes everything, so that branches
        # need no second prefill.
        return Opened("", loaded.float().eval(), front)
    return Opened(Path(str(model)).name, loaded.eval(), front)


def chat_parts(source: Any) -> tuple[Any, Any]:
    """The Auto class that loads a chat model, and its processor or tokenizer.

    Raises:
        CheckpointError: It is no chat model.
    """
    import transformers as hf

    if source.gguf_file is not None:
        # The library reads text models alone out of GGUF, and parses the whole file anew for the
        # configuration, ten seconds for a vocabulary of 49,152: with the model is often enough.
        require("gguf", "accelerate", extra="live", purpose="gguf")
        return hf.AutoModelForCausalLM, hf.AutoTokenizer.from_pretrained(
            source.place, **source.options
        )
    config = hf.AutoConfig.from_pretrained(source.place)
    if type(config) in hf.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        front = hf.AutoProcessor.from_pretrained(source.place)  # type: ignore[no-untyped-call]
        return hf.AutoModelForImageTextToText, front
    if type(config) in hf.MODEL_FOR_CAUSAL_LM_MAPPING:
        return hf.AutoModelForCausalLM, hf.AutoTokenizer.from_pretrained(source.place)
    raise _no_chat_model(source.place, config)


def _no_chat_model(place: str, config: Any) -> CheckpointError:
    return CheckpointError(text("opening.no_chat_model", place=place, kind=config.model_type))


def _require_whole(folder: Path) -> None:
    """Refuse a folder whose files can't make a model that answers, and say what is wrong with it.

    The library would load some of them all the same: a tokenizer that is not there knows no word.
    """
    survey = survey_folder(folder)
    wrong = [one.told for one in survey.problems if one.level == "error"]
    if not any(file.kind == "tokenizer" for file in survey.files):
        wrong.append(phrase("folders.no_tokenizer"))
    if wrong:
        raise CheckpointError(phrase("opening.not_whole", folder=folder, why=wrong[0]))


def _require_memory(folder: Path, gguf_file: str | None) -> None:
    """Refuse weights that are larger than what this machine has left."""
    room = memory_left()
    files = [folder / gguf_file] if gguf_file else _weight_files(folder)
    needed = sum(file.stat().st_size for file in files)
    if room is not None and needed > room.left_bytes:
        sizes = {"needed": f"{needed / 1e9:.1f}", "free": f"{room.left_bytes / 1e9:.1f}"}
        raise CheckpointError(text("opening.no_room", folder=folder, **sizes))


def _weight_files(folder: Path) -> list[Path]:
    return next((found for one in _WEIGHTS if (found := sorted(folder.glob(one)))), [])


def placement(device: str | None = None) -> dict[str, Any]:
    """Where a model is loaded to: as asked, else to GPUs where there are any."""
    import torch

    if device is not None:
        return {"device_map": device}
    return {"device_map": "auto"} if torch.cuda.is_available() else {}
