"""Modules that ran although their output changes neither the loss nor what the model returns."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class BranchEffect(PlainData):
    """One such module that was tried: `moved` is how far loss and outputs move when its output is replaced.

    `moved_again` is the same with all-zero parameters opened, other draws, and in eval mode: the largest. `returned_by`
    is the module round it that hands the output on, where that goes no further; None where it is dropped at once.
    """

    module: str
    kind: str
    parameters: int
    moved: float
    moved_again: float
    returned_by: str | None


@dataclass(frozen=True)
class BranchEffects(PlainData):
    """Every module without a gradient that was perturbed. `called` counts all modules that ran."""

    called: int
    branches: tuple[BranchEffect, ...]
    floor: float
