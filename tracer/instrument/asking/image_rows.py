"""Rows of `images`: each picture with its placeholders in the ids that a model was given."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from tracer.instrument.asking import tokens
from tracer.instrument.asking.encodings import Encoding
from tracer.instrument.asking.images import Image
from tracer.recorder import Recorder


def placed(
    encoding: Encoding,
    rows: Sequence[Sequence[int]],
    marks: tokens.Placeholders,
    replaced: Sequence[bool] = (),
) -> list[Image]:
    """The images of an encoding, each with its placeholders in the rows that were made of it.

    `rows` are ids, with each row of the encoding `encoding.times` times in succession; `replaced`
    says of each placeholder in them whether features took its place, and is empty if nobody knows.
    """
    shown = tokens.pictures(rows, marks, encoding.images, encoding.times)
    fed = iter(replaced)
    found: dict[tuple[str, int], list[tuple[int, int, bool]]] = {}
    for row, ids in enumerate(rows):
        for place, token_id in enumerate(ids):
            kind = marks.kind(token_id)
            is_fed = next(fed, False) if kind else False
            number = shown[row][place]
            if kind and number is not None and row % encoding.times == 0:
                found.setdefault((kind, number), []).append((row, place, is_fed))
    numbers = {"image": itertools.count(), "video": itertools.count()}
    placed = []
    for image in encoding.images:
        own = found.get((image.kind, next(numbers[image.kind])), [])
        placed.append(
            dataclasses.replace(
                image,
                row=own[0][0] // encoding.times if own else image.row,
                found_tokens=len(own) if rows else None,
                first_position=own[0][1] if own else None,
                replaced_embeddings=sum(each[2] for each in own) if replaced else None,
            )
        )
    return placed


def tell(recorder: Recorder, image: Image, event: int, call: int) -> None:
    """Write the row of an image."""
    columns = {each.name: getattr(image, each.name) for each in dataclasses.fields(image)}
    chain = image.resizes
    columns["resizes"] = [one.as_json() for one in chain]
    columns["limit"] = ". ".join(one.limits() for one in chain) or None
    columns["limit_origin"] = ". ".join(f"{one.by}: {one.origin}" for one in chain) or None
    for name in ("value_min", "value_max"):  # of values on an accelerator, read only now
        columns[name] = None if columns[name] is None else float(columns[name])
    recorder.add_fact("images", event, call, **columns)
