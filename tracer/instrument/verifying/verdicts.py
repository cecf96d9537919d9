"""What a comparison of a live model with its sources knows: its tensors, and a verdict for each.

Where a parameter's values are is answered here, offloaded or not; what they should be in
`comparing.py`, whom they belong to in `ties.py`, what is wrong with them in `mixups.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from tracer.instrument.loads import quantisers
from tracer.instrument.loads.named_tensors import (
    Named,
    named_tensors,
    offload_maps,
    without_adapter,
)
from tracer.instrument.verifying import slices

EQUAL: Final = "equal"
DIFFERENT: Final = "different"
NOT_COMPARED: Final = "not compared"

ON_META: Final = "on meta: it has no values"
IN_NO_FILE: Final = "in no file, and tied to nothing that is"

_PLAIN: Final = {"Tensor", "Parameter", "Buffer"}


@dataclasses.dataclass(slots=True)
class Verdict:
    """What the comparison of one parameter or buffer gave.

    Attributes:
        verdict: equal, different or not compared.
        because: What is wrong, what it was compared with, or why it was not compared.
        against: `file`, `class` (built anew), `memory` (of another name) or None.
        keys: The sources.
        new_infinities, new_zeros: What the cast made of finite or other values; None without one.
    """

    param: str
    kind: str
    verdict: str
    because: str
    against: str | None = None
    keys: tuple[str, ...] = ()
    new_infinities: int | None = None
    new_zeros: int | None = None


class Verdicts:
    """A model's parameters and buffers, by each of their names, and what is known of each.

    Attributes:
        named: Every parameter and buffer, by name.
        persistent: Names that a checkpoint knows, to the model's: an adapter lengthens them.
        of: Verdicts so far.
        quantiser: Method of the quantiser that the model keeps, if it does.
    """

    def __init__(self, model: Any) -> None:
        self.named = {each.name: each for each in named_tensors(model)}
        self.persistent = {
            without_adapter(name): name for name, each in self.named.items() if each.persistent
        }
        self.of: dict[str, Verdict] = {}
        self.quantiser = quantisers.kept_by(model)
        self._mesh = slices.mesh_of(each.tensor for each in self.named.values())

    def say(
        self,
        name: str,
        verdict: str,
        because: str,
        against: str | None = None,
        keys: tuple[str, ...] = (),
    ) -> Verdict:
        """Put a verdict down, in the place of what was known."""
        said = Verdict(name, self.named[name].kind, verdict, because, against, keys)
        self.of[name] = said
        return said

    def is_right(self, name: str) -> bool:
        """Whether it is known to hold what it should."""
        return name in self.of and self.of[name].verdict == EQUAL

    def is_wrong(self, name: str) -> bool:
        """Whether it is known to hold something else."""
        return name in self.of and self.of[name].verdict == DIFFERENT

    def values(self, name: str) -> tuple[Any, str]:
        """The values on the CPU (this rank's, of a parameter that is cut), or None and why not."""
        live = self.held(name)
        if live is None:
            return None, ON_META
        live = slices.local(live)
        if type(live).__name__ not in _PLAIN:
            form = f"kept as {type(live).__name__}, which has no values of its own to compare"
            return (
                None,
                form if self.quantiser is None else f"{form}: quantised by {self.quantiser}",
            )
        return live.detach().to("cpu"), ""

    def held(self, name: str) -> Any:
        """The parameter or buffer itself, wherever it is; None where nobody has its values."""
        return _held(self.named[name])

    def parts(self, name: str, whole: Any) -> list[tuple[Any, str]]:
        """What `values` may be of what the parameter should hold, and which part of it that is."""
        return list(slices.parts(self.named[name].tensor, whole, self._mesh))

    def memory(self, name: str) -> Any:
        """Equal for two names of one parameter, and for no others."""
        own = self.named[name].tensor
        tensor = slices.local(own)
        is_plain = type(tensor).__name__ in _PLAIN
        if tensor.device.type == "meta" or not tensor.numel() or not is_plain:
            return id(own)
        return tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype

    def is_away(self, name: str) -> bool:
        """Whether it is offloaded: two such names may be one parameter all the same."""
        return bool(self.named[name].tensor.device.type == "meta")


def _held(each: Named) -> Any:
    """The values of a parameter or buffer, out of accelerate's map where it is offloaded."""
    if each.tensor.device.type != "meta":
        return each.tensor
    leaf = each.name.rpartition(".")[2]
    for weights in offload_maps(each.module):
        try:
            return weights[leaf]
        except KeyError:
            continue
    return None
