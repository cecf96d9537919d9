"""Rules on images and videos: placeholders and features, sizes, and the time base."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from tracer.analysis.inputs import image_chain, video_times
from tracer.diagnosis.finding import Found, rows_of
from tracer.diagnosis.generating import generations, summary
from tracer.diagnosis.rules import rule
from tracer.trace import Trace

_COUNTS: Final = ("expected_tokens", "found_tokens", "replaced_embeddings", "first_position")
_SIZES: Final = ("original_w", "original_h", "helper_w", "helper_h", "processor_w", "processor_h")
_WITHOUT_FEATURES: Final = frozenset(
    {
        "input_ids", "attention_mask", "position_ids", "cache_position", "token_type_ids",
        "mm_token_type_ids", "image_grid_thw", "video_grid_thw", "second_per_grid_ts",
    }
)  # fmt: skip
"""Tensors of a call that hold nothing of a picture but its size."""
_ENLARGED: Final = 1.5  # times the area: less is rounding to whole patches


@rule("picture_markers_differ", "fatal", "trace", "huggingface/transformers#34625")
def picture_markers_differ(trace: Trace) -> Iterator[Found]:
    """Pictures without a marker in the prompt, or markers without a picture."""
    calls = trace["calls"]
    for _, call in calls[calls["kind"] == "encode"].iterrows():
        told = summary(call)
        for kind in ("image", "video"):
            if _are_unmatched(told, kind):
                yield Found(
                    {
                        "kind": kind,
                        "pictures": told[f"{kind}s"],
                        "markers": told[f"{kind}_markers_in_text"],
                    },
                    rows_of("calls", call.to_frame().T, "name", "status", "summary"),
                )


def _are_unmatched(told: dict[str, Any], kind: str) -> bool:
    pictures, markers = told.get(f"{kind}s"), told.get(f"{kind}_markers_in_text")
    placed = told.get(f"{kind}_tokens")
    if pictures is None or markers is None or pictures == markers:
        return False
    # A family may write another marker than the id that it becomes, or have it written out before.
    is_written_otherwise = bool(placed) and pictures > 0 and (not markers or markers == placed)
    return not is_written_otherwise


@rule("placeholders_differ", "fatal", "trace", "QwenLM/Qwen3-VL#1534")
def placeholders_differ(trace: Trace) -> Iterator[Found]:
    """A picture whose features and placeholders in the prompt are not equally many."""
    images, tokens = trace["images"], trace["tokens"]
    cut = tokens[(tokens["kind"] == "cut") & tokens["image"].notna()]
    is_cut = images["call"].isin(cut["call"])
    found = images["found_tokens"]
    differs = (images["expected_tokens"] != found) & (found > 0)
    differs |= (images["replaced_embeddings"] != found).fillna(False)
    for _, image in images[differs.fillna(False) & ~is_cut].iterrows():
        yield Found(
            {
                "kind": image["kind"],
                "image": int(image["index"]),
                "expected": image["expected_tokens"],
                "found": image["found_tokens"],
            },
            rows_of("images", image.to_frame().T, *_COUNTS),
        )

    yield from _pictures_left_out(trace)


def _pictures_left_out(trace: Trace) -> Iterator[Found]:
    """Placeholders in a prompt that no tensor of the call has features for."""
    inputs = trace["inputs"]
    for call in generations(trace):
        given = inputs[inputs["call"] == call.seq]
        names = {str(one).partition("[")[0] for one in given["tensor"]}  # of a list each by place
        why = call.call["cache_why"]
        if given.empty or names - _WITHOUT_FEATURES or _is_passed(why):
            continue  # features may come as any tensor, or stand in the cache already
        for kind in ("image", "video"):
            places = call.prompt[call.prompt["kind"] == kind]
            if len(places):
                yield Found(
                    {"kind": kind, "image": 0, "expected": 0, "found": len(places)},
                    rows_of("tokens", places, "row", "position", "token_id", "kind")
                    + rows_of("inputs", given, "tensor", "shape"),
                )


def _is_passed(cache_why: Any) -> bool:
    return isinstance(cache_why, str) and cache_why.startswith("passed")


@rule("picture_resized_twice", "warning", "trace", "QwenLM/Qwen3-VL#1052")
def picture_resized_twice(trace: Trace) -> Iterator[Found]:
    """A picture that helper and processor each computed anew, with limits of their own."""
    chain = image_chain(trace)
    again = chain[chain["resampled"].astype(bool)].groupby(["call", "kind", "index"]).size() > 1
    images = trace["images"]
    for call, kind, index in again[again].index:
        own = images[(images["call"] == call) & (images["kind"] == kind)]
        own = own[own["index"] == index]
        sizes = [_size(own.iloc[0], who) for who in ("original", "helper", "processor")]
        yield Found(
            {"kind": kind, "image": int(index)}
            | dict(zip(("original", "helper", "processor"), sizes, strict=True)),
            rows_of("images", own, *_SIZES, "limit", "limit_origin"),
        )


def _size(image: Any, who: str) -> str:
    return f"{image[f'{who}_w']} x {image[f'{who}_h']}"


@rule("picture_enlarged", "note", "trace", "QwenLM/Qwen3-VL#931")
def picture_enlarged(trace: Trace) -> Iterator[Found]:
    """A small picture that a lower limit blew up: more tokens, and nothing more to see."""
    chain = image_chain(trace)
    by_limit = chain[(chain["acted"] == "min_pixels") & chain["resampled"].astype(bool)]
    images = trace["images"]
    for step in by_limit.itertuples():
        if step.scale_x * step.scale_y < _ENLARGED:
            continue
        own = images[(images["call"] == step.call) & (images["kind"] == step.kind)]
        own = own[own["index"] == step.index]
        yield Found(
            {
                "kind": step.kind,
                "image": int(own["index"].iloc[0]),
                "original": _size(own.iloc[0], "original"),
                "size": f"{step.width} x {step.height}",
                "tokens": own["expected_tokens"].iloc[0],
                "min_pixels": step.min_pixels,
                "origin": str(step.origin),
            },
            rows_of("images", own, *_SIZES, "limit", "limit_origin", "expected_tokens"),
        )


@rule("video_rate_assumed", "warning", "trace", "QwenLM/Qwen3-VL#798")
def video_rate_assumed(trace: Trace) -> Iterator[Found]:
    """A video whose frames came without their rate: the processor assumed one."""
    images = trace["images"]
    videos = images[(images["kind"] == "video") & images["fps_known"].eq(False).fillna(False)]
    for _, video in videos[videos["seconds_per_grid"].notna() & (videos["grid_t"] > 1)].iterrows():
        told = video["helper_fps"]
        yield Found(
            {
                "video": int(video["index"]),
                "fps": video["fps"],
                "seconds": video["seconds_per_grid"],
                "helper_fps": None if pd.isna(told) else told,
                "frames": video["frames"],
            },
            rows_of(
                "images", video.to_frame().T, "frames", "helper_fps", "fps", "fps_known",
                "seconds_per_grid", "grid_t",
            ),
        )  # fmt: skip


@rule("video_steps_collide", "fatal", "trace", "QwenLM/Qwen3-VL#1329")
def video_steps_collide(trace: Trace) -> Iterator[Found]:
    """Steps of a video's time that the model is told stand at one place."""
    times = video_times(trace)
    shared = times[times["shares_position"].astype(bool)]
    for (call, index), steps in shared.groupby(["call", "index"]):
        images = trace["images"]
        own = images[(images["call"] == call) & (images["kind"] == "video")]
        own = own[own["index"] == index]
        yield Found(
            {
                "video": int(index),
                "steps": len(steps),
                "places": steps["position_t"].nunique(),
                "seconds": own["seconds_per_grid"].iloc[0],
            },
            rows_of("images", own, "grid_t", "seconds_per_grid", "fps", "fps_known"),
        )
