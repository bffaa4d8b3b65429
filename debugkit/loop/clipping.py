"""Which optimizers a call of gradient clipping affects, and how many of their gradients it covers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor
from torch.optim import Optimizer


def coverage(
    optimizers: Sequence[Optimizer | None], parameters: Tensor | Iterable[Tensor]
) -> tuple[tuple[int, ...], int, int]:
    """The numbers of the affected optimizers, the one with most clipped gradients first.

    Then, for that one, how many parameters with a gradient were clipped, and how many it has.
    """
    clipped = {id(p) for p in ([parameters] if isinstance(parameters, Tensor) else parameters)}
    affected = []
    for number, optimizer in enumerate(optimizers):
        groups = [] if optimizer is None else optimizer.param_groups
        held = {id(p): p.grad is not None for group in groups for p in group["params"]}
        if not clipped.isdisjoint(held):
            given = {key for key, has_gradient in held.items() if has_gradient}
            affected.append((len(given & clipped), number, len(given)))
    affected.sort(reverse=True)
    covered, clippable = (affected[0][0], affected[0][2]) if affected else (0, 0)
    return tuple(number for _, number, _ in affected), covered, clippable
