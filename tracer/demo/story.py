"""The main job: the embedded model is asked about a picture, and all of it is recorded.

Ordinary Hugging Face code inside `record()`; what comes after reads the trace alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from tracer.analysis.answer import answer_text, answer_tokens
from tracer.analysis.loading import slowest_tensors
from tracer.demo import checkpoint_folder, draw_scene
from tracer.session import record
from tracer.trace import Trace, stage_totals
from tracer.views.tables import text_table

SCENE = "red circle top left, blue star bottom right"
QUESTION = "Describe this image."


def tell_story(folder: str | Path, *, progress: bool = False) -> str:
    """Record the main job, write trace and CSV, and tell what happened.

    Args:
        folder: where the trace goes; a number is added when one is there already. The CSV folder
            stands beside it, named with `-csv`.
        progress: show a bar on stderr.

    Returns:
        The story as text, the paths of trace and CSV at its end.

    Raises:
        StorageError: the folder can't be written.
    """
    with tqdm(total=4, disable=not progress, unit="part") as bar:
        recording = record(folder, if_exists="number")
        with recording:
            bar.set_description("loading the model")
            processor, model = _load()
            bar.update()
            bar.set_description("asking it about a picture")
            _ask(processor, model)
            bar.update()
        trace = recording.trace
        bar.set_description("writing CSV")
        target = recording.path
        csv = trace.to_csv(_beside(target)) if target is not None else None
        bar.update()
        bar.set_description("checking the trace")
        story = describe(trace)
        bar.update()
    return f"{story}\n\nTrace  {target}\nCSV    {csv}"


def _load() -> tuple[Any, Any]:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    folder = checkpoint_folder()
    return (
        AutoProcessor.from_pretrained(folder),  # type: ignore[no-untyped-call]
        AutoModelForImageTextToText.from_pretrained(folder),
    )


def _ask(processor: Any, model: Any) -> None:
    from qwen_vl_utils import process_vision_info

    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {
            "role": "user",
            "content": [
                {"type": "image", "image": draw_scene(SCENE)},
                {"type": "text", "text": QUESTION},
            ],
        },
    ]
    text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    images, videos = process_vision_info(messages)
    inputs = processor(text=[text], images=images, videos=videos, return_tensors="pt")
    inputs = inputs.to(model.device)
    output = model.generate(**inputs, max_new_tokens=32, do_sample=False)
    new = output[:, inputs["input_ids"].shape[1] :]
    processor.batch_decode(new, skip_special_tokens=True)


def _beside(target: Path) -> Path:
    return target.with_name(f"{target.name}-csv")


def describe(trace: Trace) -> str:
    """The story of a trace: summary, stages, slowest tensors, the answer, the audit."""
    answers = answer_text(trace)
    audit = trace.audit()[["verdict", "check", "found"]]
    parts = [
        f"Asked about a picture of: {SCENE}\n{QUESTION}\n" + "\n".join(answers.values()),
        "Stages\n" + text_table(stage_totals(trace)),
        "The ten slowest tensors\n"
        + text_table(slowest_tensors(trace).drop(columns=["stored_dtype", "worker"])),
        "The answer, token by token\n" + text_table(answer_tokens(trace).drop(columns=["row"])),
        "Audit\n" + text_table(audit),
    ]
    return "\n\n".join(parts)
