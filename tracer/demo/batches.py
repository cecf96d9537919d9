"""Training batches: the processor's work done for many pictures at once, and shared prefixes.

One row of a batch is a message's beginning (system prompt, pictures) followed by several
questions with their answers, side by side: each sees the beginning and itself, none of the
others. So a picture is seen once for six questions. Pixels equal the real processor's exactly
(a test compares them). Used by `train` alone.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as pictures

from tracer.demo.checkpoint import IMAGE_MEAN, IMAGE_STD, MERGE, PATCH, TEMPORAL
from tracer.demo.drawing import Scene
from tracer.demo.examples import FRAMES, Example, draw
from tracer.demo.questions import (
    LANGUAGES,
    PAIR_FORMS,
    SCENE_KINDS,
    Question,
    ask,
    ask_movie,
    ask_pair,
    small_talk,
)
from tracer.demo.scenes import (
    GRIDS,
    MOVIE_GRIDS,
    PAIR_SHARES,
    SHAPE_SHARES,
    UNIT,
    random_movie,
    random_scene,
    random_size,
    random_twin,
)
from tracer.demo.tokenizer import SYSTEM_PROMPT
from tracer.demo.words import Language

IGNORED = -100  # a label that the loss leaves out
PAD_BRANCH = -1
# Longer answers teach more; the last kind is the hardest.
KIND_SHARES = dict(zip(SCENE_KINDS, (2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.5), strict=True))


@dataclass
class Batch:
    """Rows that share one layout of pictures.

    `patches` is (frames, height x width, values), frames of all rows in order; `grid` is
    (t, h, w) of one picture in patches; `branches` is 0 for the beginning, n for the n-th
    question, -1 for padding; `offsets` counts tokens within the branch.
    """

    patches: torch.Tensor | None
    grid: tuple[int, int, int]
    pictures: int  # a row
    is_video: bool
    beginning: list[int]
    pad: int  # the token that stands for a part of a picture or video
    tokens: torch.Tensor  # (rows, length)
    branches: torch.Tensor
    offsets: torch.Tensor
    labels: torch.Tensor
    examples: tuple[Example, ...]  # the rows


class Maker:
    """Makes batches of scenes of the training set, or of the held-out ones."""

    def __init__(self, seed: int, tokenizer: Tokenizer, held_out: bool = False) -> None:
        """Start at a seed; the same seed gives the same batches."""
        self._chance = random.Random(seed)
        self._tokenizer = tokenizer
        self._held_out = held_out

    def pictures(
        self,
        rows: int,
        questions: int,
        shares: tuple[float, ...] = SHAPE_SHARES,
        kinds: Mapping[str, float] = KIND_SHARES,
        languages: Sequence[Language] = LANGUAGES,
    ) -> Batch:
        """Make messages with one picture.

        Args:
            rows: how many.
            questions: about each of them.
            shares: how often a picture has 0, 1, 2 and 3 shapes.
            kinds: how often a question is of each kind.
            languages: to ask in.
        """
        grid = self._chance.choice(GRIDS)
        examples = []
        for _ in range(rows):
            scene = random_scene(self._chance, self._held_out, shares)
            chosen = self._chance.choices(tuple(kinds), tuple(kinds.values()), k=questions)
            asked = [
                ask(scene, kind, self._chance.choice(languages), self._chance) for kind in chosen
            ]
            examples.append(self._example((scene,), grid, asked))
        return assemble(examples, grid, self._tokenizer)

    def pairs(
        self,
        rows: int,
        questions: int,
        forms: Sequence[str] = PAIR_FORMS,
        twins: float = 0.0,
    ) -> Batch:
        """Make messages with two pictures.

        Args:
            rows: how many.
            questions: about each of them.
            forms: of the questions.
            twins: how often both pictures have shapes in the same places.
        """
        grid = self._chance.choice(GRIDS)
        examples = []
        for _ in range(rows):
            first = random_scene(self._chance, self._held_out, PAIR_SHARES)
            second = random_scene(self._chance, self._held_out, PAIR_SHARES)
            if twins and self._chance.random() < twins:
                second = random_twin(self._chance, self._held_out, first)
            asked = [
                ask_pair(first, second, self._language(), self._chance, forms)
                for _ in range(questions)
            ]
            examples.append(self._example((first, second), grid, asked))
        return assemble(examples, grid, self._tokenizer)

    def movies(self, rows: int, questions: int) -> Batch:
        """Make messages with a short video."""
        grid = self._chance.choice(MOVIE_GRIDS)
        examples = []
        for _ in range(rows):
            movie = random_movie(self._chance, self._held_out)
            asked = [ask_movie(movie, self._language(), self._chance) for _ in range(questions)]
            size, seed = random_size(self._chance, grid), self._chance.getrandbits(32)
            examples.append(Example((), movie, size, seed, tuple(asked)))
        return assemble(examples, grid, self._tokenizer)

    def texts(self, rows: int, questions: int) -> Batch:
        """Make messages without pictures."""
        examples = []
        for _ in range(rows):
            scene = random_scene(self._chance, self._held_out)
            asked = [small_talk(scene, self._language(), self._chance) for _ in range(questions)]
            examples.append(self._example((), (0, 0), asked))
        return assemble(examples, (0, 0), self._tokenizer)

    def state(self) -> tuple[Any, ...]:
        """Give the state of chance, to be restored later."""
        return self._chance.getstate()

    def restore(self, state: tuple[Any, ...]) -> None:
        """Take a state that `state` gave."""
        self._chance.setstate(state)

    def _language(self) -> Language:
        return self._chance.choice(LANGUAGES)

    def _example(
        self, scenes: tuple[Scene, ...], grid: tuple[int, int], asked: Sequence[Question]
    ) -> Example:
        size = random_size(self._chance, grid) if scenes else (0, 0)
        return Example(scenes, None, size, self._chance.getrandbits(32), tuple(asked))


def assemble(examples: Sequence[Example], grid: tuple[int, int], tokenizer: Tokenizer) -> Batch:
    """Draw the pictures and lay out the tokens of a batch."""
    is_video = examples[0].movie is not None
    width, height = grid
    frames = FRAMES // TEMPORAL if is_video else 1
    count = 1 if is_video else len(examples[0].pictures)
    patches = None
    if count:
        drawn = [frame for example in examples for picture in draw(example) for frame in picture]
        patches = to_patches(drawn, (width * UNIT, height * UNIT), 1 if not is_video else TEMPORAL)
    pad = "<|video_pad|>" if is_video else "<|image_pad|>"
    picture = f"<|vision_start|>{pad * (frames * width * height)}<|vision_end|>"
    start = f"<|im_start|>system\n{SYSTEM_PROMPT}<|im_end|>\n<|im_start|>user\n{picture * count}"
    beginning = tokenizer.encode(start).ids
    tokens, branches, offsets, labels = _lay_out(examples, beginning, tokenizer)
    return Batch(
        patches=patches,
        grid=(frames, height * MERGE, width * MERGE),
        pictures=count,
        is_video=is_video,
        beginning=beginning,
        pad=tokenizer.encode(pad).ids[0],
        tokens=tokens,
        branches=branches,
        offsets=offsets,
        labels=labels,
        examples=tuple(examples),
    )


def to_patches(
    images: Sequence[Image.Image], size: tuple[int, int], distinct_frames: int
) -> torch.Tensor:
    """Resize, normalise and cut frames as the processor does: (groups, patches, values).

    Args:
        images: all frames in order.
        size: width and height that the processor resizes to.
        distinct_frames: frames that fill one temporal patch: 2 of a video; 1 of a picture,
            which is repeated.
    """
    width, height = size
    pixels = torch.stack([_resized(image, (height, width)) for image in images]).float()
    mean = torch.tensor(IMAGE_MEAN).view(3, 1, 1) * 255
    std = torch.tensor(IMAGE_STD).view(3, 1, 1) * 255
    pixels = (pixels - mean) / std
    pixels = pixels.view(
        -1, distinct_frames, 3, height // UNIT, MERGE, PATCH, width // UNIT, MERGE, PATCH
    )
    if distinct_frames == 1:
        pixels = pixels.expand(-1, TEMPORAL, *[-1] * 7)
    # (group, time, channel, row, row in block, y, column, column in block, x)
    pixels = pixels.permute(0, 3, 6, 4, 7, 2, 1, 5, 8)
    patches = (height // PATCH) * (width // PATCH)
    return pixels.reshape(pixels.shape[0], patches, 3 * TEMPORAL * PATCH * PATCH)


def _resized(image: Image.Image, size: tuple[int, int]) -> torch.Tensor:
    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
    if tuple(tensor.shape[1:]) == size:
        return tensor
    resized: torch.Tensor = pictures.resize(
        tensor, list(size), InterpolationMode.BICUBIC, antialias=True
    )
    return resized


def _lay_out(
    examples: Sequence[Example], beginning: list[int], tokenizer: Tokenizer
) -> tuple[torch.Tensor, ...]:
    rows = []
    for example in examples:
        row = [(token, 0, index, IGNORED) for index, token in enumerate(beginning)]
        for branch, question in enumerate(example.questions, start=1):
            row += _branch(question, branch, tokenizer)
        rows.append(row)
    length = max(map(len, rows))
    filler = (0, PAD_BRANCH, 0, IGNORED)
    padded = [row + [filler] * (length - len(row)) for row in rows]
    return torch.tensor(padded).permute(2, 0, 1).contiguous().unbind(0)


def _branch(
    question: Question, branch: int, tokenizer: Tokenizer
) -> list[tuple[int, int, int, int]]:
    asked = _encoded(tokenizer, f"{question.text}<|im_end|>\n<|im_start|>assistant\n")
    answer = _encoded(tokenizer, f"{question.answer}<|im_end|>")
    tokens = asked + answer
    # The label of a position is the next token; only the answer counts.
    labels = [IGNORED] * (len(asked) - 1) + list(answer) + [IGNORED]
    return [
        (token, branch, index, label)
        for index, (token, label) in enumerate(zip(tokens, labels, strict=True))
    ]


@lru_cache(maxsize=100_000)
def _encoded(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text).ids)
