"""A guide for the first half of training: what lies in each quarter, read off picture features.

Linear readers on the vision tower's output, trained with it and thrown away: colour and form of
each quarter, and the quarter that a feature belongs to. They teach the tower to see, and where,
long before the text model asks. Used by `train` alone.
"""

import torch
from torch.nn import functional

from tracer.demo.batches import Batch
from tracer.demo.checkpoint import MERGE
from tracer.demo.drawing import COLOURS, FORMS, PLACES

NOTHING = 0  # class of an empty quarter


class Probe(torch.nn.Module):
    """Linear readers of colour, form and quarter."""

    def __init__(self, width: int) -> None:
        """Take the width of the features."""
        super().__init__()
        self.colour = torch.nn.Linear(width, len(COLOURS) + 1)
        self.form = torch.nn.Linear(width, len(FORMS) + 1)
        self.quarter = torch.nn.Linear(width, len(PLACES))

    def loss(self, batch: Batch, features: torch.Tensor) -> torch.Tensor:
        """Give how badly the features of single pictures tell what is where."""
        height, width = batch.grid[1] // MERGE, batch.grid[2] // MERGE
        cells = features.view(len(batch.examples), height * width, -1)
        members = quarters(height, width)  # (places, cells)
        pooled = (members / members.sum(1, keepdim=True)) @ cells  # (rows, places, width)
        colours, forms = contents(batch)
        inside = members.sum(0) > 0
        wanted = members.argmax(0)[inside].expand(len(batch.examples), -1)
        return (
            functional.cross_entropy(self.colour(pooled).flatten(0, 1), colours.flatten())
            + functional.cross_entropy(self.form(pooled).flatten(0, 1), forms.flatten())
            + functional.cross_entropy(
                self.quarter(cells[:, inside]).flatten(0, 1), wanted.flatten()
            )
        )


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
