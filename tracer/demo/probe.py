"""A guide for training: what lies in each quarter, read off picture features.

Fixed directions stand for colours, forms and quarters. The vision tower learns to put what it sees
along them, a good part of a feature's length, so that the text model finds it there. The text model
is guided likewise: a picture's tokens are to hold whether it is the first or the second, and at the
end of a question the middle layers where the shapes are that it names. The directions are thrown
away afterwards. Used by `train` alone.
"""

import torch
from torch.nn import functional

from tracer.demo.batches import IGNORED, Batch
from tracer.demo.checkpoint import MERGE
from tracer.demo.drawing import COLOURS, FORMS, PLACES

NOTHING = 0  # class of an empty quarter
MOST_NAMES = 2  # shapes that one question names
MOST_PICTURES = 2  # in one message
# Where the text model is to have looked shapes up: after the second layer at the question's last
# word, five tokens before the answer; after the third just before the answer.
LOOKUP_LAYERS, LOOKUP_DISTANCES = (2, 3), (5, 0)
# After this layer a picture's tokens are to hold whether it is the first or the second, and each
# which quarter of which picture it is: with the two apart, a question that named something found
# its quarter, and took whichever picture had any shape there.
ORDER_LAYER = 1


class Probe:
    """Fixed readers of colour, form and quarter, of a picture's number, and of what was found."""

    def __init__(self, width: int, seed: int) -> None:
        """Take the width of the features, and a seed for the directions."""
        generator = torch.Generator().manual_seed(seed)
        random = torch.randn(width, width, generator=generator)
        directions = torch.linalg.qr(random).Q  # (width, directions), at right angles
        names = len(PLACES) * MOST_NAMES
        self._lookers = directions[:, -2 * names :].split(names, dim=1)
        spots = len(PLACES) * MOST_PICTURES
        classes = (len(COLOURS) + 1, len(FORMS) + 1, len(PLACES), MOST_PICTURES, spots)
        *self._readers, self.order, self.spots = directions[:, : sum(classes)].split(classes, dim=1)

    def guide(
        self,
        batch: Batch,
        features: torch.Tensor | None,
        states: tuple[torch.Tensor, ...],
        spots: bool,
    ) -> torch.Tensor:
        """Give the sum of the losses that fit a batch.

        Args:
            batch: what was seen and asked.
            features: the vision tower's.
            states: the text layers'.
            spots: of two pictures, ask for the quarters of each too.
        """
        if features is None:
            return torch.zeros(())
        loss = self.lookup_loss(batch, states)
        if not batch.is_video:
            loss = loss + self.loss(batch, features)
        if batch.pictures > 1:
            loss = loss + self.order_loss(batch, states)
            if spots:
                loss = loss + self.spot_loss(batch, states)
        return loss

    def loss(self, batch: Batch, features: torch.Tensor) -> torch.Tensor:
        """Give how badly the features of pictures tell what is where."""
        height, width = batch.grid[1] // MERGE, batch.grid[2] // MERGE
        cells = functional.rms_norm(features, features.shape[-1:])
        cells = cells.view(-1, height * width, features.shape[-1])  # (pictures, cells, width)
        colour, form, quarter = self._readers
        members = quarters(height, width)  # (places, cells)
        pooled = (members / members.sum(1, keepdim=True)) @ cells  # (pictures, places, width)
        colours, forms = contents(batch)
        inside = members.sum(0) > 0
        wanted = members.argmax(0)[inside].expand(len(cells), -1)
        return (
            functional.cross_entropy((pooled @ colour).flatten(0, 1), colours.flatten())
            + functional.cross_entropy((pooled @ form).flatten(0, 1), forms.flatten())
            + functional.cross_entropy((cells[:, inside] @ quarter).flatten(0, 1), wanted.flatten())
        )

    def order_loss(self, batch: Batch, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Give how badly the tokens of two pictures tell which of them they belong to."""
        logits = _cells(batch, states) @ self.order  # (rows, pictures, cells, numbers)
        wanted = torch.arange(batch.pictures).view(1, -1, 1).expand(logits.shape[:-1])
        return functional.cross_entropy(logits.flatten(0, 2), wanted.flatten())

    def spot_loss(self, batch: Batch, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Give how badly the tokens of two pictures tell which quarter of which one they are."""
        members = quarters(batch.grid[1] // MERGE, batch.grid[2] // MERGE)  # (places, cells)
        inside = members.sum(0) > 0
        logits = _cells(batch, states)[:, :, inside] @ self.spots
        firsts = torch.arange(batch.pictures)[:, None] * len(PLACES)
        wanted = (firsts + members.argmax(0)[inside]).expand(logits.shape[:-1])
        return functional.cross_entropy(logits.flatten(0, 2), wanted.flatten())

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


def _cells(batch: Batch, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Give the pictures' tokens as a text layer left them: (rows, pictures, cells, width)."""
    (columns,) = torch.nonzero(torch.tensor(batch.beginning) == batch.pad, as_tuple=True)
    state = states[ORDER_LAYER][:, columns]
    state = functional.rms_norm(state, state.shape[-1:])
    return state.view(len(state), batch.pictures, -1, state.shape[-1])


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
    """Give the classes of colour and form of each picture's quarters: (pictures, places) each."""
    scenes = [scene for example in batch.examples for scene in example.pictures]
    colours = torch.full((len(scenes), len(PLACES)), NOTHING)
    forms = colours.clone()
    for row, scene in enumerate(scenes):
        for shape in scene.shapes:
            place = PLACES.index(shape.place)
            colours[row, place] = tuple(COLOURS).index(shape.colour) + 1
            forms[row, place] = FORMS.index(shape.form) + 1
    return colours, forms
