"""Words that a tool which wraps a model leaves in the names of a file saved through it.

They are told by the names alone, so they can be seen before any load.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class Wrapper:
    """What one tool writes.

    Attributes:
        stored: Words in the file's names, with dots between them.
        expected: Words that the bare model has there; empty where it has none.
        maker: The tool, by its own name.
        only_first: Whether it stands in front of all names; inside a name it may be the model's.
    """

    stored: str
    expected: str
    maker: str
    only_first: bool = False

    @property
    def mapping(self) -> tuple[str, str]:
        """Pattern and replacement for `key_mapping=` of `from_pretrained` that undo it."""
        pattern = self.stored.replace(".", "\\.")
        if self.expected:
            return pattern, self.expected
        return f"^{pattern}\\." if self.only_first else f"{pattern}\\.", ""


WRAPPERS: Final = (
    Wrapper("base_layer", "", "PEFT"),
    Wrapper("modules_to_save.default", "", "PEFT"),
    Wrapper("base_model.model", "", "PEFT", only_first=True),
    Wrapper("_orig_mod", "", "torch.compile"),
    Wrapper("module", "", "DataParallel", only_first=True),
    Wrapper("_fsdp_wrapped_module", "", "FSDP"),
    Wrapper("_checkpoint_wrapped_module", "", "checkpoint_wrapper"),
    Wrapper("_forward_module", "", "Lightning Fabric", only_first=True),
    Wrapper("parametrizations.weight.original", "weight", "torch.nn.utils.parametrize"),
    Wrapper("parametrizations.weight.original1", "weight", "torch.nn.utils.parametrize"),
    Wrapper("weight_orig", "weight", "torch.nn.utils.prune"),
    Wrapper("bias_orig", "bias", "torch.nn.utils.prune"),
)
"""`weight_v` of the older weight norm is left out: the library itself knows it of some families."""


def wrapper_of(name: str) -> Wrapper | None:
    """The first whose words a name holds; None of a plain name."""
    dotted = f".{name}."
    for one in WRAPPERS:
        place = dotted.find(f".{one.stored}.")
        if place == 0 or (place > 0 and not one.only_first):
            return one
    return None


def mapping_text(wrappers: Iterable[Wrapper]) -> str:
    r"""What to pass as `key_mapping=`, as code: `{r"_orig_mod\.": ""}`."""
    pairs = dict(one.mapping for one in wrappers)
    return "{" + ", ".join(f'r"{name}": "{to}"' for name, to in pairs.items()) + "}"
