"""What faults are made of: toy models of every family, built and saved once a process."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from diagnosis import others
from instrument.families import FAMILIES, saved
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
)

import tracer
from tracer.demo import checkpoint_folder
from tracer.lessons.text_model import text_model


class Bench:
    """Folders and models that cases share. A case that changes one asks for a copy of its own.

    `family` is a key of `instrument.families.FAMILIES` (gpt2, llama, qwen2, qwen2_5_vl, mistral,
    mixtral, t5, gemma, phi, bert): random weights, no tokenizer. `chat` is the text half of the
    embedded model, with tokenizer and chat template; `seeing` the embedded model itself.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.last: Any = None  # the newest recording: of a run that raised, all there is
        torch.set_num_threads(1)

    def new(self) -> Path:
        """A fresh, empty folder."""
        return Path(tempfile.mkdtemp(dir=self.place))

    @functools.cache  # noqa: B019  (one bench a process)
    def folder(self, family: str, **settings: Any) -> Path:
        """A family's toy as `save_pretrained` writes it; not to be changed."""
        folder = self.new()
        saved(family, folder, **settings)
        return folder

    @functools.cache  # noqa: B019
    def other(self, family: str) -> Path:
        """A family of `diagnosis.others` as `save_pretrained` writes it; not to be changed."""
        folder = self.new()
        others.saved(family, folder)
        return folder

    def other_auto(self, family: str) -> Any:
        """The Auto class of such a family."""
        return getattr(transformers, others.OTHERS[family][0])

    @functools.cache  # noqa: B019
    def model(self, family: str) -> Any:
        """A family's toy in memory, made before any recording; not to be changed."""
        return self.fresh(family)

    def fresh(self, family: str) -> Any:
        """The same as a model of its own, to be changed; of either kind of family."""
        if family in others.OTHERS:
            return self.other_auto(family).from_pretrained(self.other(family)).eval()
        auto, _ = FAMILIES[family]()
        return auto.from_pretrained(self.folder(family)).eval()

    @functools.cache  # noqa: B019
    def seeing_model(self) -> tuple[Any, Any]:
        """The embedded vision-language model and its processor, loaded once."""
        folder = self.seeing()
        model = AutoModelForImageTextToText.from_pretrained(folder)
        return model, AutoProcessor.from_pretrained(folder)

    @functools.cache  # noqa: B019
    def chat(self) -> Path:
        """The chat model's folder, with tokenizer and template, in bf16; not to be changed."""
        return text_model(self.new() / "chat")

    def seeing(self) -> Path:
        """The embedded vision-language model's folder; not to be changed."""
        return checkpoint_folder()

    def copy(self, folder: Path) -> Path:
        """A copy of a folder that a case may break."""
        copy = self.new() / "model"
        shutil.copytree(folder, copy)
        return copy

    @functools.cache  # noqa: B019
    def chat_model(self) -> tuple[Any, Any]:
        """The chat model and its tokenizer, loaded once; a case that changes them undoes it."""
        folder = self.chat()
        return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)

    def changed_chat(self, file: str, change: Callable[[Any], Any]) -> Path:
        """A copy of the chat model's folder in which one JSON file was changed."""
        folder = self.copy(self.chat())
        rewritten(folder / file, change)
        return folder

    def answered(self, ask: Callable[[Any], Any], *, tokenizer: Any = None, **settings: Any) -> Any:
        """The trace of the chat model's greedy answer to what a function makes with its tokenizer.

        Args:
            ask: Takes the tokenizer, gives what `generate` takes.
            tokenizer: Another one than the chat model's.
            **settings: Of `generate`, beside two new tokens and no sampling.
        """
        model, own = self.chat_model()
        with self.recorded() as recording:
            inputs = ask(tokenizer or own)
            model.generate(**inputs, **({"max_new_tokens": 2, "do_sample": False} | settings))
        return recording.trace

    @contextlib.contextmanager
    def recorded(self, **options: Any) -> Iterator[Any]:
        """A recording in memory; its `.trace` is there after the block."""
        with tracer.record(None, strict=True, **options) as recording:
            self.last = recording
            yield recording


def rewritten(path: Path, change: Callable[[Any], Any]) -> None:
    """Change what a JSON file holds in place; what is then None is left out."""
    content = json.loads(path.read_text("utf-8"))
    change(content)
    kept = {name: value for name, value in content.items() if value is not None}
    path.write_text(json.dumps(kept), "utf-8")


MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Which shapes do you know?"},
]


def rendered(tokenizer: Any, messages: Any = MESSAGES, **settings: Any) -> str:
    """Messages as a prompt that ends where the answer begins."""
    settings = {"add_generation_prompt": True} | settings
    return str(tokenizer.apply_chat_template(messages, tokenize=False, **settings))


def encoded(tokenizer: Any, messages: Any = MESSAGES, **settings: Any) -> Any:
    """The same as ids and mask."""
    return tokenizer(rendered(tokenizer, messages), return_tensors="pt", **settings)
