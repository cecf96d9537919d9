"""Questions about the way in: which tokens came from whom, and what the processor did.

Each function takes a trace and gives a frame; nothing here judges or draws.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from tracer.analysis.generation import call_or_last
from tracer.trace import Trace

_WHO = ["row", "origin", "kind", "image"]
_AXES = ["position_t", "position_h", "position_w"]
_CHAIN = ["call", "kind", "index", "step", "width", "height", "resampled", "acted"]
_CHAIN += ["min_pixels", "max_pixels", "origin", "scale_x", "scale_y"]
_LIMITS = ["min_pixels", "max_pixels"]
_TIMES = ["call", "index", "grid_step", "seconds", "fps_known", "position_t", "shares_position"]
_SPECIAL = ["call", "row", "index", "vocab", "origin", "repeated"]


def token_runs(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """The sequence with neighbours of one origin and kind folded into one row each.

    Args:
        trace: A trace with tokens.
        call: seq of the call that consumed them; the last generate without.

    Returns:
        Columns row, first (index of the first token), tokens, origin, kind, image, text (put
        together, placeholders once; missing where no token has one), position_t, position_h,
        position_w (`3` or `3-9`; missing where the model was never given any).
    """
    columns = [*_WHO, "index", "text", *_AXES]
    tokens = trace.read("tokens", columns, [("call", "==", call_or_last(trace, call))])
    return folded_tokens(tokens.sort_values(["row", "index"]))


def folded_tokens(tokens: pd.DataFrame) -> pd.DataFrame:
    """As `token_runs`, of tokens in the order of rows and indices."""
    # Missing is a value here: an image's number changes from none to 0 and back.
    who = tokens[_WHO].astype("string").fillna("")
    run = (who != who.shift()).any(axis=1).to_numpy(dtype=bool).cumsum()
    folded = tokens.groupby(run)
    runs = folded[_WHO].first()
    runs.insert(1, "first", folded["index"].first())
    runs.insert(2, "tokens", folded.size())
    runs["text"] = folded["text"].agg(_joined).astype("string")
    is_placeholder = runs["kind"].isin(["image", "video", "pad"])
    runs["text"] = runs["text"].mask(is_placeholder, folded["text"].first())
    for axis in _AXES:
        runs[axis] = folded[axis].agg(_span).astype("string")
    return runs.reset_index(drop=True)


def sequence_tokens(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """Every token that a call consumed and generated, as the table `tokens` has it, in order."""
    tokens = trace.read("tokens", where=[("call", "==", call_or_last(trace, call))])
    return tokens.sort_values(["row", "index"]).reset_index(drop=True)


def call_images(trace: Trace, call: int | None = None) -> pd.DataFrame:
    """The images and videos that a call consumed, as the table `images` has them, in order."""
    images = trace.read("images", where=[("call", "==", call_or_last(trace, call))])
    return images.sort_values(["kind", "index"]).reset_index(drop=True)


def processor_work(trace: Trace) -> pd.DataFrame:
    """What ran while text and pictures became tensors, and how many modules of a network in it.

    Returns:
        Columns stage, name, duration_ns, modules (missing where it was not counted), in order.
    """
    columns = ["seq", "stage", "name", "duration_ns", "summary"]
    spans = trace.read("spans", columns)
    work = spans[spans["stage"].isin(["template", "vision", "encode"])].sort_values("seq")
    counts = [_summary(text).get("modules") for text in work["summary"]]
    work["modules"] = pd.array(counts, dtype="Int64")
    return work[["stage", "name", "duration_ns", "modules"]].reset_index(drop=True)


def marker_counts(trace: Trace) -> pd.DataFrame:
    """What the processor did to the text: markers of pictures before it, their tokens after.

    Returns:
        A row a call of a processor: call, name, images, videos, image_markers_in_text,
        image_tokens, video_markers_in_text, video_tokens (missing where it was given none of
        that kind), modules (of a network that ran).
    """
    wanted = ["images", "videos", "image_markers_in_text", "image_tokens"]
    wanted += ["video_markers_in_text", "video_tokens", "modules"]
    calls = trace.read("calls", ["seq", "name", "summary"], [("kind", "==", "encode")])
    told = [_summary(text) for text in calls["summary"]]
    found = pd.DataFrame({"call": calls["seq"], "name": calls["name"]})
    for name in wanted:
        found[name] = pd.array([one.get(name) for one in told], dtype="Int64")
    return found.reset_index(drop=True)


def image_chain(trace: Trace) -> pd.DataFrame:
    """Every size that each picture had on its way in.

    Returns:
        Columns call, kind, index, step (original, helper, processor), width, height (pixels),
        resampled (its pixels were computed anew), acted (the limit that acted: min_pixels,
        max_pixels or none; missing where no resize was seen), min_pixels, max_pixels, origin (who
        set the limit), scale_x, scale_y (against the original).
    """
    rows = []
    for image in trace["images"].itertuples():
        name = {"call": image.call, "kind": image.kind, "index": image.index}
        seen = {each["by"]: each for each in _listed(image.resizes)}
        before = None
        for step in ("original", "helper", "processor"):
            size = getattr(image, f"{step}_w"), getattr(image, f"{step}_h")
            if pd.isna(size[0]):
                continue
            resize = seen.get(step, {})
            rows.append(
                {**name, "step": step, "width": size[0], "height": size[1]}
                | {"resampled": before is not None and size != before}
                | {"acted": (resize.get("acted") or "none") if resize else None}
                | {each: resize.get(each) for each in ("min_pixels", "max_pixels", "origin")}
                | {
                    f"scale_{axis}": now / first
                    for axis, now, first in zip(
                        "xy", size, (image.original_w, image.original_h), strict=True
                    )
                }
            )
            before = size
    return pd.DataFrame(rows, columns=_CHAIN).astype(dict.fromkeys(_LIMITS, "Int64"))


def video_times(trace: Trace) -> pd.DataFrame:
    """When each step of a video's grid is, as the processor and the model take it.

    Returns:
        Columns call, index, grid_step, seconds (missing where nobody told seconds), fps_known,
        position_t (missing before a model has taken the video), shares_position (another step of
        the same video stands at the same place in time).
    """
    tokens = trace.read("tokens", ["call", "kind", "image", "index", "position_t"])
    rows = []
    for video in trace["images"].query("kind == 'video'").itertuples():
        if pd.isna(video.grid_t) or not video.grid_t:
            continue
        own = tokens[(tokens["call"] == video.call) & (tokens["image"] == video.index)]
        own = own[own["kind"] == "video"].sort_values("index")["position_t"]
        each = len(own) // int(video.grid_t)
        places = [own.iloc[step * each] if each else None for step in range(int(video.grid_t))]
        for step, place in enumerate(places):
            row = {"call": video.call, "index": video.index, "grid_step": step}
            row |= {"seconds": step * video.seconds_per_grid, "fps_known": video.fps_known}
            is_known = place is not None and not pd.isna(place)
            row |= {"position_t": place if is_known else None}
            rows.append(row | {"shares_position": is_known and places.count(place) > 1})
    return pd.DataFrame(rows, columns=_TIMES)


def special_tokens(trace: Trace) -> pd.DataFrame:
    """Special ids of each prompt, and which step wrote them.

    Two begin-of-sequence markers with different origins are the usual accident: the template wrote
    one and the tokenizer added another. One whose origin is the user's was typed.

    Returns:
        Columns call, row, index, vocab, origin, repeated (it stands next to the same id).
    """
    columns = ["call", "row", "index", "token_id", "vocab", "kind", "origin"]
    tokens = trace.read("tokens", columns).sort_values(["call", "row", "index"])
    same_row = tokens.groupby(["call", "row"])["token_id"]
    beside = (same_row.shift() == tokens["token_id"]) | (same_row.shift(-1) == tokens["token_id"])
    tokens["repeated"] = beside.fillna(False).astype(bool)
    found = tokens[(tokens["kind"] == "special") & (tokens["origin"] != "generated")]
    return found[_SPECIAL].reset_index(drop=True)


def _listed(text: object) -> list[dict[str, Any]]:
    return list(json.loads(text)) if isinstance(text, str) else []


def _joined(texts: pd.Series[Any]) -> str | None:
    known = texts.dropna()
    return None if known.empty else "".join(known)


def _span(numbers: pd.Series[Any]) -> str | None:
    known = numbers.dropna()
    if known.empty:
        return None
    low, high = int(known.min()), int(known.max())
    return str(low) if low == high else f"{low}-{high}"


def _summary(text: object) -> dict[str, Any]:
    return dict(json.loads(text)) if isinstance(text, str) else {}
