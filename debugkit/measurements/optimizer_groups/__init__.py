"""The parameters of each optimizer, group by group, compared with the model's."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observation import observed_by


@dataclass(frozen=True, slots=True)
class Group:
    """One parameter group."""

    name: str
    """For example `AdamW group 1`."""
    optimizer: int
    held: int
    frozen: int
    """How many of the held parameters have `requires_grad=False`; had, when the optimizer last stepped."""
    of_the_model: int
    learning_rate: float | None
    weight_decay: float | None = None
    vectors: int = 0
    """How many of the held parameters train, and have one dimension, as biases and weights of norms."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """A held tensor that is not a parameter of the model and received no gradient."""

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
    """A parameter that is held more than once. `path` is None for one outside the model."""

    path: str | None
    groups: tuple[str, ...]
    one_optimizer: bool
    alternations: int
    """How often the steps of these optimizers alternated: 0 if they were only passed in, or one replaced another."""


@observed_by(".measure:OptimizerGroupsProbe")
@dataclass(frozen=True, slots=True)
class OptimizerGroups:
    """The groups of all optimizers. Parameters are compared by identity, so a tied one counts once."""

    optimizers: int
    groups: tuple[Group, ...]
    strangers: tuple[Stranger, ...]
    orphans: tuple[Orphan, ...]
    duplicates: tuple[Duplicate, ...]
    built: tuple[SourceLine | None, ...] = ()
    """The line that built each optimizer, where the program has only one such line."""

    def built_at(self, group: str) -> SourceLine | None:
        """The line that built the optimizer of this group."""
        numbers = [each.optimizer for each in self.groups if each.name == group]
        return self.built[numbers[0]] if numbers and numbers[0] < len(self.built) else None
