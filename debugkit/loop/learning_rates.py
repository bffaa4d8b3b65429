"""The learning rates of an optimizer. One that is a tensor is not read, because that would wait for the device."""

from __future__ import annotations

from torch.optim import Optimizer


def rates_of(optimizer: Optimizer) -> dict[str, float | None]:
    """That of the first group, and the largest; None where it is not known."""
    rates = [_number(group.get("lr")) for group in optimizer.param_groups]
    known = [rate for rate in rates if rate is not None]
    return {
        "learning_rate": rates[0] if rates else None,
        "largest_rate": max(known) if known and len(known) == len(rates) else None,
    }


def initial_rate(optimizer: Optimizer | None) -> float | None:
    """The `initial_lr` of the first group, which a scheduler writes."""
    return _number(optimizer.param_groups[0].get("initial_lr")) if optimizer and optimizer.param_groups else None


def _number(rate: object) -> float | None:
    return float(rate) if isinstance(rate, int | float) else None
