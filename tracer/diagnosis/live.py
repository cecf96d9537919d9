"""Rules that look at a live model, with its processor where one is given.

They ask the objects for plain attributes, so that torch is not imported here.
"""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Live:
    """A model in this process.

    Attributes:
        model: A `PreTrainedModel`.
        processor: Its processor or tokenizer; None where none was given.
    """

    model: Any
    processor: Any = None

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, bare or inside the processor; None where there is none."""
        return getattr(self.processor, "tokenizer", self.processor)
