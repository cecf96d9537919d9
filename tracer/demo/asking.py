"""Any chat model is asked a question, and all of it is recorded: the main job on a model of choice.

For a folder, a GGUF file or a hub id, of a text model or one that takes pictures too. Ordinary
Hugging Face code inside `record()`; what comes after reads the trace alone. `story` does the same
for the embedded model, with the code that its users write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tqdm.auto import tqdm

from tracer.conversation import require_template, takes_pictures
from tracer.demo import draw_scene
from tracer.demo.models import Source
from tracer.demo.story import SCENE, describe, picture_lines, question_line, with_places
from tracer.explain import text
from tracer.opening import chat_parts, placement
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
        bar.set_description(text("story.loading_and_asking"))
        recording = record(folder, if_exists="number")
        with recording:
            asked = _ask(source, question)
        bar.update()
        bar.set_description(text("story.writing"))
        target = recording.path
        csv = (
            None
            if target is None
            else recording.trace.to_csv(target.with_name(f"{target.name}-csv"))
        )
        bar.update()
        bar.set_description(text("story.checking"))
        story = describe(recording.trace, asked)
        bar.update()
    return with_places(story, target, csv)


def _ask(source: Source, question: str | None) -> str:
    """Load a model and ask it; give back what it was asked."""
    kind, front = chat_parts(source)
    require_template(front, source.place)
    model = kind.from_pretrained(source.place, **source.options, **placement())
    if takes_pictures(front):
        question = PICTURE_QUESTION if question is None else question
        _generate(model, _with_picture(front, question), front)
        return picture_lines(question)
    question = QUESTION if question is None else question
    inputs = front.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
    )
    _generate(model, inputs, front)
    return question_line(question)


def _with_picture(processor: Any, question: str) -> Any:
    content = [{"type": "image"}, {"type": "text", "text": question}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    return processor(text=[text], images=[draw_scene(SCENE)], return_tensors="pt")


def _generate(model: Any, inputs: Any, front: Any) -> None:
    inputs = inputs.to(model.device)
    output = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False)
    new = output[:, inputs["input_ids"].shape[1] :]
    front.batch_decode(new, skip_special_tokens=True)
