"""How the demo model's weights are moved: Muon for matrices, AdamW for the rest.

Muon replaces a matrix's momentum by the nearest orthogonal matrix, so that all directions of it
learn at one pace. In fp32: the one in torch works in bf16, which is slow on a CPU. A tower is one
part of the model with both. Used by `train` alone.
"""

from collections import defaultdict
from typing import Any

import torch

# Quintic iteration towards singular values of one (Keller Jordan's coefficients).
QUINTIC = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
MATRIX_STEP, OTHER_STEP = 0.02, 0.004  # the full sizes of a step
# Straight lines: from this step and part of the full size to that; a later line ends an earlier.
Rates = tuple[tuple[int, float, int, float], ...]


class Muon:
    """Orthogonalised momentum for matrices, those of one shape at once."""

    def __init__(self, matrices: list[torch.nn.Parameter], momentum: float, decay: float) -> None:
        """Take the parameters; `decay` is the share of a weight lost per unit of step size."""
        self._momentum, self._decay = momentum, decay
        self._groups: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
        for matrix in matrices:
            self._groups[matrix.shape].append(matrix)
        self._velocity = {
            shape: torch.zeros(len(group), *shape) for shape, group in self._groups.items()
        }

    @torch.no_grad()
    def step(self, size: float) -> None:
        """Move every matrix by a step of the given size (spectral norm)."""
        for shape, group in self._groups.items():
            gradient = torch.stack([_gradient(matrix) for matrix in group])
            velocity = self._velocity[shape].lerp_(gradient, 1 - self._momentum)
            update = orthogonal(gradient.lerp(velocity, self._momentum))
            update *= max(1.0, shape[0] / shape[1]) ** 0.5
            for matrix, change in zip(group, update, strict=True):
                matrix.mul_(1 - size * self._decay).add_(change, alpha=-size)

    def state(self) -> list[torch.Tensor]:
        """Give the momenta, to be restored later."""
        return list(self._velocity.values())

    def restore(self, state: list[torch.Tensor]) -> None:
        """Take momenta that `state` gave."""
        self._velocity = dict(zip(self._velocity, state, strict=True))


def _gradient(matrix: torch.nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(matrix) if matrix.grad is None else matrix.grad


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Bring the singular values of (count, rows, columns) matrices close to one."""
    wide = matrices.shape[1] <= matrices.shape[2]
    turned = matrices if wide else matrices.mT
    lengths = torch.linalg.matrix_norm(turned, keepdim=True)
    result: torch.Tensor = turned / (lengths + 1e-7)
    first, second, third = QUINTIC
    for _ in range(ITERATIONS):
        square = result @ result.mT
        result = first * result + (second * square + third * square @ square) @ result
    return result if wide else result.mT


def rate(step: int, rates: Rates) -> float:
    """Give the part of the full step size: on the last line that has begun, else 0."""
    for start, high, end, low in reversed(rates):
        if start <= step:
            return high + (low - high) * (step - start) / (end - start)
    return 0.0


class Tower:
    """One part of the model, vision or text, with its optimisers and its step sizes."""

    def __init__(self, module: torch.nn.Module, rates: Rates) -> None:
        """Take the part and how its step size goes."""
        self._rates = rates
        matrices, self._others = split_parameters(module)
        self._muon = Muon(matrices, momentum=0.95, decay=0.05)
        self._adam = torch.optim.AdamW(
            self._others, lr=OTHER_STEP, betas=(0.9, 0.98), weight_decay=0.0
        )

    def move(self, step: int) -> None:
        """Move the weights by their gradients."""
        size = rate(step, self._rates)
        if size == 0.0:
            return
        torch.nn.utils.clip_grad_norm_(self._others, 1.0)
        for group in self._adam.param_groups:
            group["lr"] = OTHER_STEP * size
        self._adam.step()
        self._muon.step(MATRIX_STEP * size)

    def state(self) -> tuple[Any, ...]:
        """Give the state of the optimisers, to be restored later."""
        return self._muon.state(), self._adam.state_dict()

    def restore(self, state: tuple[Any, ...]) -> None:
        """Take a state that `state` gave."""
        muon, adam = state
        self._muon.restore(muon)
        self._adam.load_state_dict(adam)


def split_parameters(
    model: torch.nn.Module,
) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """Give the matrices inside the blocks, and all other parameters."""
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, weight in model.named_parameters():
        outer = "embed" in name or name.startswith("lm_head")
        (others if outer or weight.ndim != 2 else matrices).append(weight)
    return matrices, others
