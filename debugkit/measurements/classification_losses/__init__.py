"""The inputs and targets of each cross-entropy, KL divergence and CTC loss of a step."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observation import observed_by


@dataclass(frozen=True, slots=True)
class SoftTarget:
    """What a floating-point target holds. The classes of cross_entropy are in dimension 1, else in the last."""

    low: float
    high: float
    sum_low: float
    """The smallest sum over the classes, of the rows that are not all 0."""
    sum_high: float
    fewest: int
    """The smallest number of classes in a row whose value is not 0, of the rows that are not all 0."""


@dataclass(frozen=True, slots=True)
class BlankLabels:
    """The labels of a call of ctc_loss that are the blank, within the lengths of the targets.

    Sequences of nothing but blanks are left out: some programs mark an empty sequence so.
    """

    blank: int
    labels: int
    """How many of the labels are the blank."""
    sequences: int
    """How many of the sequences hold one of them."""
    rows: int
    """The number of all sequences."""


@dataclass(frozen=True, slots=True)
class ClassificationLoss:
    """One call of a loss function named in `measure.py`, with a gradient."""

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
    highest: float = float("nan")
    """The largest input."""
    logarithm: bool = True
    """Whether a logarithm may be taken: before the input, after the last layer with weights; or, for nll_loss and
    ctc_loss, with a log-sum-exp anywhere in the step."""
    reduced: bool = True
    """Whether the values count as they are: the loss is summed or averaged in this call, without weights."""
    log_target: bool = False
    target: SoftTarget | None = None
    """None for class ids."""
    blanks: BlankLabels | None = None
    """Only for ctc_loss."""


@dataclass(frozen=True, slots=True)
class LogOfTwoSigmoids:
    """A call of `logsigmoid`, with a gradient, on the output of a sigmoid: the range of that output."""

    at: SourceLine | None
    low: float
    high: float


@observed_by(".measure:ClassificationLossesProbe")
@dataclass(frozen=True, slots=True)
class ClassificationLosses:
    """Every such call of the last step, in order. Calls at the same line are listed once."""

    calls: tuple[ClassificationLoss, ...]
    sigmoid_twice: tuple[LogOfTwoSigmoids, ...] = ()
