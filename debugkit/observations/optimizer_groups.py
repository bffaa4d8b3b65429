"""What each optimizer holds, group by group, and how that fits the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """One parameter group."""

    name: str
    """`AdamW group 1`."""
    optimizer: int
    held: int
    frozen: int
    """How many of the held ones have `requires_grad=False`."""
    of_the_model: int
    learning_rate: float | None


@dataclass(frozen=True, slots=True)
class Stranger:
    """A held tensor that is no parameter of the model and received no gradient."""

    group: str
    shape: tuple[int, ...]
    numel: int
    in_mixed_optimizer: bool
    """Whether its optimizer also holds parameters of the model."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A trainable parameter of the model that received a gradient and that no known optimizer holds."""

    path: str
    shape: tuple[int, ...]
    numel: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A parameter that is held more than once; `path` is None for one that is not the model's."""

    path: str | None
    groups: tuple[str, ...]
    one_optimizer: bool
    alternations: int
    """How often these optimizers took turns: 0 where they were only handed over together."""


@dataclass(frozen=True, slots=True)
class OptimizerGroups:
    """Parameters are compared by identity, so a tied one counts once."""

    optimizers: int
    groups: tuple[Group, ...]
    strangers: tuple[Stranger, ...]
    orphans: tuple[Orphan, ...]
    duplicates: tuple[Duplicate, ...]
