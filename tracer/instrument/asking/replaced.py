"""Whether features stand where placeholders stood: rows compared, nothing counted or assumed.

Which feature belongs to which placeholder follows from the kind that each was made for. Where a
model does not say that, the order is the one in which the rows are found equal. Works on the device
that the embeddings are on and reads nothing from it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Features:
    """Own copy of what a vision part made, of shape (features, width), and of what: or unknown."""

    kind: str | None
    rows: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """The feature that each token's embedding is to be, in each order that may be the model's.

    Attributes:
        features: All features in the order in which they were made, of shape (features, width).
        orders: Of each token the row of its feature; there is none where it is no placeholder.
        marks: Whether a token is a placeholder, of shape (tokens,).
    """

    features: Any
    orders: list[Any]
    marks: Any

    def piece(self, rows: int, start: int, count: int) -> Expected:
        """What is expected of so many tokens of each row, from `start` on."""

        def cut(flat: Any) -> Any:
            return flat.reshape(rows, -1)[:, start : start + count].flatten()

        return Expected(self.features, [cut(one) for one in self.orders], cut(self.marks))

    def equal(self, embeddings: Any) -> Any:
        """Whether each token's embedding is its feature, in each order: shape (orders, tokens)."""
        found = []
        for places in self.orders:
            own = self.features[places.clamp(0, len(self.features) - 1)]
            is_own = (embeddings == own.to(embeddings.device, embeddings.dtype)).all(-1)
            is_there = self.marks & (places < len(self.features))
            found.append(is_own & is_there.to(is_own.device))
        return sys.modules["torch"].stack(found)


def best(equal: Any) -> Any:
    """Of several orders the one with most rows equal: shape (tokens,)."""
    return equal.index_select(0, equal.sum(-1).argmax().reshape(1))[0]


def expect(made: list[Features], image: Any, video: Any) -> Expected:
    """Which feature is to stand where; `image` and `video` mark placeholders, shape (tokens,)."""
    torch = sys.modules["torch"]
    device = made[0].rows.device
    image, video = image.to(device), video.to(device)
    features = torch.cat([one.rows for one in made])
    if all(one.kind for one in made):
        orders = [_by_kind(made, image, video)]
    else:
        orders = list(_by_place(image, video))
    return Expected(features, orders, image | video)


def _by_kind(made: list[Features], image: Any, video: Any) -> Any:
    """The n-th placeholder of a kind is the n-th feature of that kind."""
    torch = sys.modules["torch"]
    count = sum(len(one.rows) for one in made)
    starts = [sum(len(one.rows) for one in made[:place]) for place in range(len(made))]
    found = torch.full_like(image, count, dtype=torch.long)
    for kind, marks in (("image", image), ("video", video)):
        own = [
            torch.arange(start, start + len(one.rows), device=image.device)
            for start, one in zip(starts, made, strict=True)
            if one.kind == kind
        ]
        # One more at the end, for placeholders that have no feature.
        rows = torch.cat([*own, torch.full((1,), count, device=image.device)])
        places = (marks.cumsum(0) - 1).clamp(0, len(rows) - 1)
        found = torch.where(marks, rows[places], found)
    return found


def _by_place(image: Any, video: Any) -> Iterator[Any]:
    """As they stand; first those of images; first those of videos."""
    torch = sys.modules["torch"]
    images, videos = image.cumsum(0), video.cumsum(0)
    yield (image | video).cumsum(0) - 1
    yield torch.where(image, images - 1, image.sum() + videos - 1)
    yield torch.where(video, videos - 1, video.sum() + images - 1)


def features_of(result: Any) -> list[Any]:
    """Tensors of features, of shape (features, width), out of what a vision part returned."""
    found = getattr(result, "pooler_output", result)
    while isinstance(found, list | tuple) and found and isinstance(found[0], list | tuple):
        found = found[0]  # what else it returns are features for deeper layers
    parts = found if isinstance(found, list | tuple) else [found]
    return [one.reshape(-1, one.shape[-1]) for one in parts if getattr(one, "ndim", 0) >= 2]
