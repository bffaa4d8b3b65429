"""How far an optimizer moved each weight in the last steps, against the weight itself and against its gradient."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class Update(PlainData):
    """One step of one parameter, measured on a sample of its elements.

    `lost` is the share of elements whose gradient is not zero, and which float32 would change, that are bit for bit
    what they were; None for wider dtypes and where the optimizer's arithmetic is not known. `rising` is whether the
    learning rate is on its way up. Both sizes are root mean squares.
    """

    step: int
    learning_rate: float
    rising: bool
    change: float
    weight: float
    lost: float | None

    @property
    def ratio(self) -> float:
        """The change in units of the weight; 0 for a weight that is 0."""
        return self.change / self.weight if self.weight > 0.0 else 0.0


@dataclass(frozen=True)
class ParameterHistory(PlainData):
    """The last updates of one parameter, oldest first, and what its earlier ones were.

    `steps` is how many were measured in all, `largest_ratio` and `largest_learning_rate` the highest of all so far.
    """

    path: str
    optimizer: str
    shape: tuple[int, ...]
    dtype: str
    zero_at_start: bool
    embedding: bool
    steps: int
    largest_ratio: float
    largest_learning_rate: float
    last: tuple[Update, ...]

    @property
    def numel(self) -> int:
        """How many elements it has."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True)
class ParameterUpdates(PlainData):
    """Every parameter that some optimizer has stepped with a gradient."""

    parameters: tuple[ParameterHistory, ...]
