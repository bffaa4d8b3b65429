"""Which inputs of a batch the result depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModalityEffect:
    """What exchanging one input among the samples of the batch does, in eval mode with equal draws."""

    name: str
    paths: tuple[str, ...]
    moved: float
    """The largest relative movement of an output or the loss."""
    moved_with_gates_open: float | None
    """The same with all-zero parameters given small values and masks per sample set to True; None if not needed."""
    declared: bool


@dataclass(frozen=True, slots=True)
class ModalityEffects:
    """Every input that could be tried."""

    inputs: tuple[ModalityEffect, ...]
    equal_rows: tuple[str, ...]
    """Inputs that are the same in all rows, so that exchanging them changes nothing."""
    floor: float
    rounded: bool = False
    """Whether the model computes in 16 bits, where a small effect is rounded away."""
