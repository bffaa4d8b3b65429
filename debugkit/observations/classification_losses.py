"""What each cross-entropy of a step was given."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine


@dataclass(frozen=True, slots=True)
class ClassificationLoss:
    """One call of cross_entropy, nll_loss or binary_cross_entropy_with_logits with a gradient."""

    operation: str
    at: SourceLine | None
    rows: int
    classes: int
    finite_classes: int
    """Logits of a row that are not masked away (-inf, or below -10,000); the fewest of any row."""
    distributions: bool
    """Whether every row is in [0, 1] and sums to 1 over the classes."""
    made_by: str
    """The operation that made the input, through views: `softmax`, `sigmoid`, `log_softmax`; empty for another."""
    mean: float
    """Mean loss of the rows that are not ignored; NaN where targets are no class ids, or all are ignored."""
    weighted: bool
    """Whether class weights or label smoothing were given."""
    pairs: bool
    """Whether logits are square and each row has its own class: similarities of a contrastive loss."""


@dataclass(frozen=True, slots=True)
class ClassificationLosses:
    """Every such call of the last step, in order; the same line once."""

    calls: tuple[ClassificationLoss, ...]
