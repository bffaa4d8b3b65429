"""Which trainable parameters some optimizer holds, and which of the others receive a gradient."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForgottenParameter:
    """A trainable parameter in no group of any known optimizer."""

    path: str
    numel: int
    received_gradient: bool


@dataclass(frozen=True, slots=True)
class OptimizerCoverage:
    """After one backward; parameters are compared by identity, so tied ones count once."""

    optimizers: int
    trainable: int
    """How many trainable parameters the model has."""
    forgotten: tuple[ForgottenParameter, ...]
    empty_groups: tuple[str, ...]
    """Groups that hold nothing, as `AdamW group 1`."""
