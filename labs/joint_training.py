"""What several processes should do together, computed in one: the reference for labs about data-parallel training.

There is a replica of the healthy policy for each process, each with its own batches. In each step, an exchange says
what becomes of the replicas' gradients before the step, and of their weights after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labs.vla.dataset import Batch
from labs.vla.policy import Policy

Exchange = Callable[[str, list[Tensor]], list[Tensor]]
"""A parameter's name and its value (or gradient) in each replica, to what each replica has afterwards."""
MakeOptimizer = Callable[[list[Tensor]], torch.optim.Optimizer]


def own(_: str, values: list[Tensor]) -> list[Tensor]:
    """Each replica keeps its own."""
    return values


def mean(_: str, values: list[Tensor]) -> list[Tensor]:
    """All replicas get the mean."""
    return [torch.stack(values).mean(dim=0)] * len(values)


def total(_: str, values: list[Tensor]) -> list[Tensor]:
    """All replicas get the sum."""
    return [torch.stack(values).sum(dim=0)] * len(values)


def first(_: str, values: list[Tensor]) -> list[Tensor]:
    """All replicas get the first one's."""
    return [values[0]] * len(values)


def sgd(rate: float, *, normalized: bool) -> MakeOptimizer:
    """Makes plain SGD. With `normalized` each gradient is divided by its size: the step is not linear in it.

    Neither remembers anything: a step depends on the gradient of this step alone.
    """
    if normalized:
        return lambda parameters: torch.optim.RMSprop(parameters, rate, alpha=0.0, eps=1e-2)
    return lambda parameters: torch.optim.SGD(parameters, rate)


def of_part(part: str, exchange: Exchange) -> Exchange:
    """An exchange of the gradients of one part of the policy; those of all other parts are averaged."""
    return lambda name, values: exchange(name, values) if name.startswith(f"{part}.") else mean(name, values)


def trained_replicas(
    streams: Sequence[Sequence[Batch]],
    seed: int,
    optimizer: MakeOptimizer,
    gradients: Exchange = mean,
    weights: Exchange = own,
    last_weights: Exchange | None = None,
) -> tuple[list[dict[str, Tensor]], list[list[float]]]:
    """The weights of each replica after training, and its losses.

    `gradients` is exchanged in each step, `weights` after each step but the last, `last_weights` after the last one; by
    default the same as `weights`.
    """
    replicas = [Policy.from_base(seed=seed).train() for _ in streams]
    optimizers = [optimizer(list(policy.parameters())) for policy in replicas]
    losses: list[list[float]] = [[] for _ in streams]
    steps = list(zip(*streams, strict=True))
    for number, batches in enumerate(steps):
        for policy, batch, found in zip(replicas, batches, losses, strict=True):
            loss = policy(**batch).loss
            assert loss is not None
            policy.zero_grad()
            loss.backward()
            found.append(loss.item())
        _exchange(replicas, gradients, of_gradients=True)
        for one in optimizers:
            one.step()
        ended = number == len(steps) - 1
        _exchange(replicas, weights if not ended or last_weights is None else last_weights, of_gradients=False)
    return [{name: value.detach() for name, value in policy.named_parameters()} for policy in replicas], losses


def _exchange(replicas: Sequence[Policy], exchange: Exchange, *, of_gradients: bool) -> None:
    with torch.no_grad():
        for named in zip(*(policy.named_parameters() for policy in replicas), strict=True):
            targets = [one.grad if of_gradients else one for _, one in named]
            values = [
                torch.zeros_like(one) if value is None else value.clone()
                for (_, one), value in zip(named, targets, strict=True)
            ]
            for (_, one), value in zip(named, exchange(named[0][0], values), strict=True):
                if of_gradients:
                    one.grad = value.clone()
                else:
                    one.copy_(value)
