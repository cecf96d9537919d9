"""What a comparison of a live model with its sources knows: its tensors, and a verdict for each.

Where a parameter's values are is answered here, offloaded or not; what they should be in
`comparing.py`, whom they belong to in `ties.py`, what is wrong with them in `mixups.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from tracer.instrument.placements import Named, named_tensors
from tracer.instrument.targets import HOOK_OF_MODULE

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
    """

    def __init__(self, model: Any) -> None:
        self.named = {each.name: each for each in named_tensors(model)}
        self.persistent = {
            without_adapter(name): name for name, each in self.named.items() if each.persistent
        }
        self.of: dict[str, Verdict] = {}

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
        """The values on the CPU, or None and why there are none to compare."""
        live = _held(self.named[name])
        if live is None:
            return None, ON_META
        if hasattr(live, "to_local"):
            return None, "cut over several ranks"
        if type(live).__name__ not in _PLAIN:
            return None, f"a {type(live).__name__}, which keeps its values in a form of its own"
        return live.detach().to("cpu"), ""

    def memory(self, name: str) -> Any:
        """Equal for two names of one parameter, and for no others."""
        tensor = self.named[name].tensor
        if tensor.device.type == "meta" or not tensor.numel() or hasattr(tensor, "to_local"):
            return id(tensor)
        return tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype

    def is_away(self, name: str) -> bool:
        """Whether it is offloaded: two such names may be one parameter all the same."""
        return bool(self.named[name].tensor.device.type == "meta")


def without_adapter(name: str) -> str:
    """The name that a parameter had before an adapter was wrapped round its module."""
    return name.replace(".base_layer.", ".")


def _held(each: Named) -> Any:
    """The values of a parameter or buffer, out of accelerate's map where it is offloaded."""
    if each.tensor.device.type != "meta":
        return each.tensor
    hook = getattr(each.module, HOOK_OF_MODULE, None)
    leaf = each.name.rpartition(".")[2]
    for one in getattr(hook, "hooks", (hook,)):
        weights = getattr(one, "weights_map", None)
        if weights is not None:
            try:
                return weights[leaf]
            except KeyError:
                continue
    return None
