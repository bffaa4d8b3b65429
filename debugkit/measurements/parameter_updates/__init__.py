"""How far an optimizer moved each weight in the last steps, relative to the weight and to its gradient."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData


@dataclass(frozen=True)
class Update(PlainData):
    """One step of one parameter, measured on a sample of its elements.

    `lost` is the share, among the elements with a non-zero gradient that would change in float32, of those that did not
    change at all; None for wider dtypes and for optimizers whose arithmetic is unknown. `rising` is whether the
    learning rate is rising. Both sizes are root mean squares.
    """

    step: int
    learning_rate: float
    rising: bool
    change: float
    weight: float
    lost: float | None

    @property
    def ratio(self) -> float:
        """The change relative to the weight; 0 for a weight that is 0."""
        return self.change / self.weight if self.weight > 0.0 else 0.0


@dataclass(frozen=True)
class ParameterHistory(PlainData):
    """The first and the last finite updates of one parameter, oldest first, and a summary of all of them.

    `steps` is the number of measured updates. `largest_ratio` and `largest_learning_rate` are the maxima over all.
    """

    path: str
    optimizer: str
    shape: tuple[int, ...]
    dtype: str
    zero_at_start: bool
    embedding: bool | None
    """None for a parameter outside the model, of which only the tensor is known."""
    steps: int
    largest_ratio: float
    largest_learning_rate: float
    last: tuple[Update, ...]
    first: tuple[Update, ...] = ()
    built_at: SourceLine | None = None
    """The line that built the optimizer."""

    @property
    def numel(self) -> int:
        """The number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@observed_by(".measure:ParameterUpdatesProbe")
@dataclass(frozen=True)
class ParameterUpdates(PlainData):
    """Every parameter that an optimizer has updated with a gradient."""

    parameters: tuple[ParameterHistory, ...]
