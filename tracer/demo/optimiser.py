"""How the demo model's weights are moved: Muon for matrices, AdamW for the rest.

Muon replaces a matrix's momentum by the nearest orthogonal matrix, so that all directions of it
learn at one pace. In fp32: the one in torch works in bf16, which is slow on a CPU. Used by
`train` alone.
"""

from collections import defaultdict

import torch

# Quintic iteration towards singular values of one (Keller Jordan's coefficients).
QUINTIC = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


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
