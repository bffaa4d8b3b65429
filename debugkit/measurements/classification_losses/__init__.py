"""The inputs of each cross-entropy of a step."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observation import observed_by


@dataclass(frozen=True, slots=True)
class ClassificationLoss:
    """One call of cross_entropy, nll_loss or binary_cross_entropy_with_logits with a gradient."""

    operation: str
    at: SourceLine | None
    rows: int
    classes: int
    finite_classes: int
    """The number of logits in a row that are not masked (-inf, or below -10,000): the minimum over rows."""
    distributions: bool
    """Whether every row is in [0, 1] and sums to 1 over the classes."""
    made_by: str
    """The operation that made the input, possibly behind views: `softmax`, `sigmoid`, `log_softmax`, else empty."""
    mean: float
    """Mean loss of the rows that are not ignored; NaN if the targets are not class ids, or if all are ignored."""
    weighted: bool
    """Whether class weights or label smoothing were given."""
    pairs: bool
    """Whether the logits are square and each row has its own class, as in a contrastive loss."""


@observed_by(".measure:ClassificationLossesProbe")
@dataclass(frozen=True, slots=True)
class ClassificationLosses:
    """Every such call of the last step, in order. Calls at the same line are listed once."""

    calls: tuple[ClassificationLoss, ...]
