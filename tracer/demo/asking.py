"""Any chat model is asked a question, and all of it is recorded: the main job on a model of choice.

For a folder, a GGUF file or a hub id, of a text model or one that takes pictures too. Ordinary
Hugging Face code inside `record()`; what comes after reads the trace alone. `story` does the same
for the embedded model, with the code that its users write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tqdm.auto import tqdm

from tracer.demo import draw_scene
from tracer.demo.models import Source
from tracer.demo.story import SCENE, describe
from tracer.environment import require
from tracer.errors import CheckpointError
from tracer.session import record

QUESTION: Final = "What is the capital of France?"
PICTURE_QUESTION: Final = "Describe this image."

NEW_TOKENS: Final = 64


def tell_model_story(
    folder: str | Path, source: Source, *, question: str | None = None, progress: bool = False
) -> str:
    """Record a model being loaded and asked, write trace and CSV, and tell what happened.

    Args:
        folder: where the trace goes; a number is added when one is there already. The CSV folder
            stands beside it, named with `-csv`.
        source: the model.
        question: what it is asked; by default for the capital of France, or about a picture if it
            takes pictures.
        progress: show a bar on stderr.

    Returns:
        The story as text, the paths of trace and CSV at its end.

    Raises:
        CheckpointError: the model has no chat template or is no chat model; the trace is kept.
        StorageError: the folder can't be written.
    """
    with tqdm(total=3, disable=not progress, unit="part") as bar:
        bar.set_description("loading and asking the model")
        recording = record(folder, if_exists="number")
        with recording:
            asked = _ask(source, question)
        bar.update()
        bar.set_description("writing CSV")
        target = recording.path
        csv = (
            None
            if target is None
            else recording.trace.to_csv(target.with_name(f"{target.name}-csv"))
        )
        bar.update()
        bar.set_description("checking the trace")
        story = describe(recording.trace, asked)
        bar.update()
    return f"{story}\n\nTrace  {target}\nCSV    {csv}"


def _ask(source: Source, question: str | None) -> str:
    """Load a model and ask it; give back what it was asked."""
    if _takes_pictures(source):
        question = PICTURE_QUESTION if question is None else question
        _ask_about_picture(source, question)
        return f"Picture   {SCENE}\nQuestion  {question}"
    question = QUESTION if question is None else question
    _ask_text(source, question)
    return f"Question  {question}"


def _takes_pictures(source: Source) -> bool:
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        AutoConfig,
    )

    if source.gguf_file is not None:
        # The library reads text models alone out of GGUF, and parses the whole file anew for the
        # configuration, ten seconds for a vocabulary of 49,152: with the model is often enough.
        return False
    config = AutoConfig.from_pretrained(source.place)
    if type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        return True
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return False
    raise CheckpointError(
        f"{source.place} is a {config.model_type} model, which is no chat model; to record what it "
        "does, use it in a script: python -m tracer record SCRIPT"
    )


def _ask_text(source: Source, question: str) -> None:
    if source.gguf_file is not None:
        require("gguf", "accelerate", extra="live", purpose="reading GGUF")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source.place, **source.options)
    _require_template(tokenizer, source)
    model = AutoModelForCausalLM.from_pretrained(source.place, **source.options, **_placement())
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
    )
    _generate(model, inputs, tokenizer)


def _ask_about_picture(source: Source, question: str) -> None:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor: Any = AutoProcessor.from_pretrained(source.place)  # type: ignore[no-untyped-call]
    _require_template(processor, source)
    model = AutoModelForImageTextToText.from_pretrained(source.place, **_placement())
    content = [{"type": "image"}, {"type": "text", "text": question}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    inputs = processor(text=[text], images=[draw_scene(SCENE)], return_tensors="pt")
    _generate(model, inputs, processor)


def _require_template(front: Any, source: Source) -> None:
    tokenizer = getattr(front, "tokenizer", front)
    if not (getattr(front, "chat_template", None) or getattr(tokenizer, "chat_template", None)):
        raise CheckpointError(
            f"{source.place} has no chat template, so there is no way to put a question to it; "
            "take the chat (often: instruct) variant of the model"
        )


def _placement() -> dict[str, str]:
    import torch

    return {"device_map": "auto"} if torch.cuda.is_available() else {}


def _generate(model: Any, inputs: Any, front: Any) -> None:
    inputs = inputs.to(model.device)
    output = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False)
    new = output[:, inputs["input_ids"].shape[1] :]
    front.batch_decode(new, skip_special_tokens=True)
