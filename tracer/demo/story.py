"""The main job: the embedded model is asked about a picture, and all of it is recorded.

Ordinary Hugging Face code inside `record()`; what comes after reads the trace alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tqdm.auto import tqdm

from tracer import explain
from tracer.analysis.answer import answer_text, answer_tokens
from tracer.analysis.loading import slowest_tensors
from tracer.demo import checkpoint_folder, draw_scene
from tracer.export.text import visible_text
from tracer.session import record
from tracer.summary import stage_totals
from tracer.trace import Trace
from tracer.views.labels import aligned, display_width
from tracer.views.tables import text_table

SCENE = "red circle top left, blue star bottom right"
QUESTION = "Describe this image."

_TENSOR: Final = ["key", "shape", "size_bytes", "mapped", "read_ns", "cast_ns", "duration_ns"]
_TOKEN: Final = [
    "step", "token_id", "text", "probability", "raw_rank", "entropy", "cache_tokens", "forward_ns",
    "step_ns", "finish",
]  # fmt: skip


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
        recording = record(folder, if_exists="number", verify_weights=True)
        with recording:
            bar.set_description(_say("loading"))
            processor, model = _load()
            bar.update()
            bar.set_description(_say("asking"))
            _ask(processor, model)
            bar.update()
        trace = recording.trace
        bar.set_description(_say("writing"))
        target = recording.path
        csv = trace.to_csv(_beside(target)) if target is not None else None
        bar.update()
        bar.set_description(_say("checking"))
        story = describe(trace, picture_lines(QUESTION))
        bar.update()
    return with_places(story, target, csv)


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


def picture_lines(question: str) -> str:
    """What a model that takes pictures was asked, as the first lines of a story."""
    return f"{_line('picture', SCENE)}\n{question_line(question)}"


def question_line(question: str) -> str:
    """What a model was asked, as the first line of a story."""
    return _line("question", question)


def with_places(story: str, trace: Path | None, csv: Path | None) -> str:
    """A story with where trace and CSV lie at its end."""
    places = [[_say("trace"), str(trace)], [_say("csv"), str(csv)]]
    return f"{story}\n\n{aligned(places, indent='')}"


def _line(label: str, words: str) -> str:
    """A label with what belongs to it, as far in as what stands behind the other labels."""
    width = max(display_width(_say(one)) for one in ("picture", "question", "answer"))
    return _say(label) + " " * (width + 2 - display_width(_say(label))) + words


def _say(phrase: str, **values: Any) -> str:
    return explain.text(f"story.{phrase}", **values)


def describe(trace: Trace, asked: str) -> str:
    """The story of a trace: what was asked and answered, stages, slowest tensors, tokens, audit."""
    tensors = slowest_tensors(trace)[_TENSOR]
    tokens = answer_tokens(trace)[_TOKEN]
    audit = trace.audit()
    broken = int((audit["verdict"] == "broken").sum())
    parts = [
        asked,
        *[_line("answer", visible_text(text)) for text in answer_text(trace).values()],
        explain.text("summary.stages") + "\n" + text_table(stage_totals(trace.read)),
        _say("tensors") + "\n" + text_table(tensors),
        _say("tokens") + "\n" + text_table(tokens),
        _say("audit", checks=explain.count("check", len(audit)), broken=broken)
        + "\n"
        + text_table(audit[["verdict", "check", "found"]]),
    ]
    return "\n\n".join(parts)
