"""Checks 7 and 8: images behind their placeholders, and targets that were really met.

An image that was only encoded and never reached a model is counted and not judged further.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from tracer.auditing.source import Finding, Source, counted, is_one_of, is_true, told, tuples
from tracer.explain.sentences import then

_IMAGE: Final = ("event", "kind", "index")


def check_images(source: Source) -> Iterator[Finding]:
    """7: an image's placeholders, features and replaced embeddings are equally many."""
    images = source["images"]
    # A processor without a grid expects no number; what became of the placeholders is known.
    compared = images["expected_tokens"].notna() | images["replaced_embeddings"].notna()
    called = images[images["found_tokens"].notna() & compared]
    fed = called["replaced_embeddings"].notna()
    differs = is_true(called["expected_tokens"] != called["found_tokens"])
    differs |= is_true(called["found_tokens"] != called["replaced_embeddings"])
    bad = called[differs]
    found = counted("images", len(called), len(bad))
    if not fed.all():
        found = then(found, told("not_fed", number=int((~fed).sum())))
    names = [f"{event}: {kind} {index}" for event, kind, index in tuples(bad, *_IMAGE)]
    yield Finding("7 placeholders = features", found, names, len(called))

    tokens = source["tokens"]
    places = tokens[
        is_one_of(tokens["kind"], "image", "video") & ~is_one_of(tokens["origin"], "generated")
    ]
    empty, lost = _without_any_image(source, places), _without_their_row(source, places)
    calls = sorted({*empty["call"], *lost["call"]})
    found = counted("placeholders", len(places), len(empty))
    if len(lost):
        found = then(found, told("no_row", number=len(lost)))
    yield Finding("7 images behind placeholders", found, calls, len(places))


def _without_any_image(source: Source, places: pd.DataFrame) -> pd.DataFrame:
    """Placeholders of unknown images, in calls that were given no pixels at all."""
    calls, inputs = source["calls"], source["inputs"]
    with_pixels = inputs.loc[is_true(inputs["tensor"].str.contains("pixel_values")), "call"]
    prefixed = calls.loc[is_true(calls["cache_prefix_tokens"] > 0), "seq"]
    empty = places[places["image"].isna()]
    for supplied in (with_pixels, prefixed, source["images"]["call"]):
        empty = empty[~empty["call"].isin(supplied)]
    return empty


def _without_their_row(source: Source, places: pd.DataFrame) -> pd.DataFrame:
    """Placeholders that name an image which `images` does not have.

    A call that failed may have told its tokens and not yet its images.
    """
    calls = source["calls"]
    named = places[places["image"].notna()]
    named = named[~named["call"].isin(calls.loc[~is_one_of(calls["status"], "ok"), "seq"])]
    rows = {*tuples(source["images"], "call", "kind", "index")}
    places_named = tuples(named, "call", "kind", "image")
    return named[np.array([place not in rows for place in places_named], dtype=bool)]


def check_targets(source: Source) -> Iterator[Finding]:
    """8: every function that should have run was met; presence of a name proves nothing."""
    targets = [each for each in source.manifest.get("targets", []) if each["expected"]]
    bad = [each["target"] for each in targets if not each["seen"]]
    found = counted("targets", len(targets), len(bad))
    if "targets" not in source.manifest:
        found = told("no_targets")
    yield Finding("8 targets seen", found, bad, len(targets))
