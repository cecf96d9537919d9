"""A guide for the first half of training: what lies in each quarter, read off picture features.

Fixed directions stand for colours, forms and quarters. The vision tower learns to put what it sees
along them, a good part of a feature's length, so that the text model finds it there early. The
directions are thrown away afterwards. Later the text model is guided likewise: at the end of a
question its middle layers are to hold where the shapes are that the question names. Used by
`train` alone.
"""

import torch
from torch.nn import functional

from tracer.demo.batches import IGNORED, Batch
from tracer.demo.checkpoint import MERGE
from tracer.demo.drawing import COLOURS, FORMS, PLACES

NOTHING = 0  # class of an empty quarter
MOST_NAMES = 2  # shapes that one question names
# Where the text model is to have looked shapes up: after the second layer at the question's last
# word, five tokens before the answer; after the third just before the answer.
LOOKUP_LAYERS, LOOKUP_DISTANCES = (2, 3), (5, 0)


class Probe:
    """Fixed readers of colour, form and quarter."""

    def __init__(self, width: int, seed: int) -> None:
        """Take the width of the features, and a seed for the directions."""
        generator = torch.Generator().manual_seed(seed)
        random = torch.randn(width, width, generator=generator)
        directions = torch.linalg.qr(random).Q  # (width, directions), at right angles
        names = len(PLACES) * MOST_NAMES
        self._lookers = directions[:, -2 * names :].split(names, dim=1)
        classes = (len(COLOURS) + 1, len(FORMS) + 1, len(PLACES))
        self._readers = directions[:, : sum(classes)].split(classes, dim=1)

    def loss(self, batch: Batch, features: torch.Tensor) -> torch.Tensor:
        """Give how badly the features of single pictures tell what is where."""
        height, width = batch.grid[1] // MERGE, batch.grid[2] // MERGE
        cells = functional.rms_norm(features, features.shape[-1:])
        cells = cells.view(len(batch.examples), height * width, -1)
        colour, form, quarter = self._readers
        members = quarters(height, width)  # (places, cells)
        pooled = (members / members.sum(1, keepdim=True)) @ cells  # (rows, places, width)
        colours, forms = contents(batch)
        inside = members.sum(0) > 0
        wanted = members.argmax(0)[inside].expand(len(batch.examples), -1)
        return (
            functional.cross_entropy((pooled @ colour).flatten(0, 1), colours.flatten())
            + functional.cross_entropy((pooled @ form).flatten(0, 1), forms.flatten())
            + functional.cross_entropy((cells[:, inside] @ quarter).flatten(0, 1), wanted.flatten())
        )

    def lookup_loss(self, batch: Batch, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Give how badly the middle layers tell where the shapes are that a question names."""
        begins = (batch.labels != IGNORED) & (batch.labels.roll(1, dims=1) == IGNORED)
        rows, columns = torch.nonzero(begins, as_tuple=True)  # in the order of the questions
        wanted, known = meant(batch)
        loss = torch.zeros(())
        if not known.any():
            return loss
        spots = zip(LOOKUP_LAYERS, LOOKUP_DISTANCES, self._lookers, strict=True)
        for layer, distance, looker in spots:
            state = states[layer][rows, columns - distance]
            logits = functional.rms_norm(state, state.shape[-1:]) @ looker
            logits = logits.view(-1, MOST_NAMES, len(PLACES))[known]
            loss = loss + functional.binary_cross_entropy_with_logits(logits, wanted[known])
        return loss


def meant(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the places that each name of each question means, and whether there is such a name.

    Returns:
        (questions, names, places) of 0 and 1, and (questions, names) of truth.
    """
    questions = [question for example in batch.examples for question in example.questions]
    wanted = torch.zeros(len(questions), MOST_NAMES, len(PLACES))
    known = torch.zeros(len(questions), MOST_NAMES, dtype=torch.bool)
    for number, question in enumerate(questions):
        for name, places in enumerate(question.about):
            known[number, name] = True
            for place in places:
                wanted[number, name, PLACES.index(place)] = 1.0
    return wanted, known


def quarters(height: int, width: int) -> torch.Tensor:
    """Say which cells lie in which quarter: (places, cells); the middle ones lie in none."""
    rows = (torch.arange(height) + 0.5) / height - 0.5
    columns = (torch.arange(width) + 0.5) / width - 0.5
    members = [
        ((rows < 0) if place.startswith("top") else (rows > 0))[:, None]
        & ((columns < 0) if place.endswith("left") else (columns > 0))[None, :]
        for place in PLACES
    ]
    return torch.stack(members).flatten(1).float()


def contents(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the classes of colour and form of each row's quarters: (rows, places) each."""
    colours = torch.full((len(batch.examples), len(PLACES)), NOTHING)
    forms = colours.clone()
    for row, example in enumerate(batch.examples):
        for shape in example.pictures[0].shapes:
            place = PLACES.index(shape.place)
            colours[row, place] = tuple(COLOURS).index(shape.colour) + 1
            forms[row, place] = FORMS.index(shape.form) + 1
    return colours, forms
