"""How the labels align with the token ids, whether the loss shifts them, and which outputs depend on later tokens."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observation import measured_by


@measured_by(".measure:change_the_first_label", cost=2, requires=("batch", "loss"))
@dataclass(frozen=True, slots=True)
class LabelAlignment:
    """The alignment in a text model whose labels are its own ids, or that was declared causal."""

    supervised: int
    """How many labels are not ignored."""
    labels_are_ids: bool
    """label[t] == id[t] wherever there is a label."""
    labels_are_next_ids: bool
    """label[t] == id[t + 1] wherever there is a label."""
    loss_shifts: bool | None
    """Whether the loss compares output t with label t + 1: the first label then has no effect. None without labels."""
    path: str = "labels"
    """Path of the labels in the batch."""


@measured_by(".later_tokens:change_later_tokens", cost=3, requires=("batch", "loss"))
@dataclass(frozen=True, slots=True)
class FutureTokens:
    """How far outputs move when only later tokens change, in eval mode with equal random draws."""

    output: str
    moved: float
    floor: float
    positions: int
    """How many outputs were compared: those with a target before the changed tokens."""
    module: str
    """The first module, in order of execution, whose values before the changed tokens moved."""
