"""How the labels lie against the token ids, whether the loss shifts them, and what sees what comes later."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LabelAlignment:
    """Of a text model whose labels are its own ids, or that was declared causal."""

    supervised: int
    """How many labels are not ignored."""
    labels_are_ids: bool
    """label[t] == id[t] wherever there is a label."""
    labels_are_next_ids: bool
    """label[t] == id[t + 1] wherever there is a label."""
    loss_shifts: bool | None
    """Whether the loss compares output t with label t + 1: the first label has no effect. None without labels."""


@dataclass(frozen=True, slots=True)
class FutureTokens:
    """How far outputs move when only later tokens change, in eval mode with equal draws."""

    output: str
    moved: float
    floor: float
    positions: int
    """Outputs that were compared: those with a target, before the tokens that were changed."""
    module: str
    """The first module, in order of execution, whose values before the changed tokens moved."""
