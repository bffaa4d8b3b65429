"""A loss receives inputs or targets outside the range that it is defined for, or inverted class weights.

## What it finds
- `cross_entropy` on the output of a sigmoid.
- `logsigmoid` on the output of a sigmoid, as in a focal loss written by hand for logits. This is a `warning`.
- `nll_loss`, `kl_div` and `ctc_loss` on values above 0, so not on log-probabilities: logits, or for `kl_div` and
  `ctc_loss` probabilities.
- Targets of `binary_cross_entropy_with_logits` outside [0, 1]: pixels of 0 to 255, classes of -1 and 1, class ids.
- Targets of `ctc_loss` that hold the blank, within the lengths of the targets. This is often the first character of an
  alphabet that is numbered from 0, or padding that the lengths count as labels.
- Targets of `kl_div` that are log-probabilities without `log_target=True`, or probabilities with it.
- Soft targets of `cross_entropy` that are not probabilities: logits of a teacher, or several classes of 1 in a row.
- Class weights that grow with the frequency of the class: `pos_weight` of `binary_cross_entropy_with_logits` close to
  positives / negatives, and `weight` of `cross_entropy` or `nll_loss` proportional to the number of labels. The inverse
  of both would balance the classes. This is a `warning`.

Softmax before `cross_entropy` and probabilities given to `nll_loss` are
[DK308](dk308_double_softmax.md).

## Why it hurts
Nothing raises. With targets above 1, or with logits in `nll_loss` or `ctc_loss`, the loss has no lower bound: it
becomes negative and falls without end while the predictions get worse. With a sigmoid before `cross_entropy`, the loss
cannot fall below ln(e + C - 1) - 1, which is 1.46 with ten classes. Behind two sigmoids, a probability is between 0.5
and 0.73, so no prediction can be certain. `ctc_loss` puts a blank between the labels itself,
and a decoder drops it: a label that is the blank is never predicted, and its paths are counted more than once, so that
the loss can become negative.

With inverted class weights, rare classes count less than without any: a class with 5 % positives gets a `pos_weight` of
0.05 instead of 19, and the model learns not to predict it, while the loss is small.

## Evidence
The largest input, or the smallest and the largest target, with the range that the loss is defined for. For soft
targets, the smallest and the largest sum of a row. For blanks, how many labels of how many sequences are one; the
threshold is one.

For class weights, the number of labels of each class in the steps that were observed, and the slope and the correlation
of both logarithms. With three classes or more, of at least 25 labels each and with frequencies that differ by a factor
of 3, the slope is between 0.8 and 1.2, the correlation at least 0.98, and no class deviates from the line by more than
10 % and two standard errors. With two classes, or one `pos_weight`, the ratio is within 15 %, from at least 85 labels.

## Fix
Pass logits to `cross_entropy` and to `binary_cross_entropy_with_logits`, and the output of `log_softmax` to `nll_loss`,
`kl_div` and `ctc_loss`. Scale targets to [0, 1]. Number the labels of `ctc_loss` without the blank.
Use `pos_weight = negatives / positives`, and for `cross_entropy` weights that are proportional to 1 / count.

## When it stays silent
- Values above 0 behind a logarithm, such as log-probabilities that are multiplied by an advantage or divided by the
  prior of their class, and unnormalised scores whose log-sum-exp is another term of the loss.
- Losses with `reduction="none"` or with weights: targets of -1 or 255 may be masked afterwards.
- `logsigmoid` of a difference of probabilities, or of a multiple of one, as of rewards that are compared in pairs; and
  where no gradient is taken.
- Smoothed targets of a discriminator, up to half outside [0, 1].
- The blank in the padding of the targets of `ctc_loss`; sequences without labels, and those of nothing but blanks,
  which may stand for them.
- Soft targets whose rows have one class only, as a policy gradient has.
- Class weights that balance the classes, wholly or in part, or that are unrelated to their frequencies; fewer than five
  weights most of which have at most two digits, as weights that are chosen by hand have; weights that change from batch
  to batch; and classes that are balanced by the sampler.

## Cost
Under `watch()`, only the first three steps are observed; for a loss with class weights, the first 32.

## Lesson
No lab of its own. [Lab 23](../../lessons/numerics/23_too_sure.md) is about a softmax before `cross_entropy`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.measurements.classification_losses import (
    BlankLabels,
    ClassificationLoss,
    ClassificationLosses,
    SoftTarget,
)
from debugkit.observation import observed_by
from debugkit.rule import Context, rule
from debugkit.rule_text import amount, counted

NEAR = 1e-3
"""Log-probabilities in half precision, and ln(p + 1e-6), are not above this."""
SMOOTHED = 0.5
"""Targets of 0.7 to 1.2 are a known remedy for a discriminator that is too certain."""
SUM_TOLERANCE = 0.02
"""A row of probabilities in bfloat16 differs from 1 by less."""


FEWEST_LABELS, FEWEST_ROWS = 200, 32
"""Of all classes; pixels and tokens of few samples are not independent."""
FEWEST_OF_A_CLASS = 25
"""The standard error of the logarithm of a frequency is then at most 0.2."""
FEWEST_OF_TWO = 85
APART = 3.0
"""The least factor between the frequencies of two classes."""
SLOPE = (0.8, 1.2)
CORRELATION = 0.98
DEVIATION = 0.1
OF_TWO = 0.15
COMPUTED_BY_THEIR_NUMBER = 5
"""So many weights are not proportional to the frequencies by chance."""
DIGITS = 2
"""Weights that are chosen by hand have no more."""


@dataclass(frozen=True, slots=True)
class WeightedLoss:
    """A loss that has a weight for each class, and the labels that it received in the observed steps."""

    operation: str
    at: SourceLine | None
    weights: tuple[float, ...]
    """`pos_weight` of the binary loss, `weight` of the others."""
    labels: tuple[int, ...]
    """How many labels each class has; in the binary loss, how many positives."""
    negatives: tuple[int, ...]
    """In the binary loss, the number of negatives of each class; otherwise empty."""
    rows: int
    """The number of samples."""


@observed_by(".class_weights:ClassWeightsProbe")
@dataclass(frozen=True, slots=True)
class ClassWeights:
    """The losses with class weights that were the same in each call, each line once."""

    losses: tuple[WeightedLoss, ...]


@dataclass(frozen=True, slots=True)
class _Fault:
    what: str
    fix: str
    evidence: dict[str, object]
    severity: Severity | None = field(default=None)


@rule(
    "DK316",
    name="loss-input-range",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(),
    uses=(ClassificationLosses, ClassWeights),
)
def judge(seen: ClassificationLosses | None, weights: ClassWeights | None, context: Context) -> Iterator[Finding]:
    if seen is None and weights is None:
        raise NotExamined(context.missing.get(ClassificationLosses, "No loss of a step was observed."))
    if seen is not None:
        yield from _arguments(seen, context)
    if weights is not None:
        yield from _inverted(weights, context)


def _arguments(seen: ClassificationLosses, context: Context) -> Iterator[Finding]:
    for call in seen.calls:
        fault = _input_fault(call) or _target_fault(call)
        if fault is not None:
            yield context.finding(
                f"`{call.operation}` receives {fault.what}.",
                at=call.at,
                evidence=fault.evidence,
                fix=fault.fix,
                severity=fault.severity,
                certainty=None if fault.severity is None else Certainty.HEURISTIC,
            )
    for twice in seen.sigmoid_twice:
        yield context.finding(
            "`logsigmoid` receives the output of a sigmoid, and applies a sigmoid itself: the probability stays "
            "between 0.5 and 0.73, whatever the logits are.",
            at=twice.at,
            evidence={"low": twice.low, "high": twice.high, "made_by": "sigmoid"},
            fix="Pass the values before the sigmoid, or take the logarithm of the probability.",
            severity=Severity.WARNING,
            certainty=Certainty.HEURISTIC,
        )


def _input_fault(call: ClassificationLoss) -> _Fault | None:
    if call.operation == "cross_entropy" and call.made_by == "sigmoid" and call.classes > 1:
        lowest = math.log(math.e + call.classes - 1) - 1
        return _Fault(
            "the output of a sigmoid, but applies a softmax itself: "
            f"with {call.classes:,} classes the loss cannot fall below {amount(lowest)}",
            "Pass the values before the sigmoid. If a sample can have several classes, use "
            "`binary_cross_entropy_with_logits`.",
            {"made_by": call.made_by, "classes": call.classes, "lowest_loss": lowest},
        )
    if call.operation not in ("nll_loss", "kl_div", "ctc_loss") or not call.highest > NEAR:
        return None
    if call.logarithm and call.made_by not in ("softmax", "sigmoid"):
        return None
    if call.operation == "nll_loss" and (call.distributions or not call.reduced):
        return None
    probabilities = call.distributions or call.made_by in ("softmax", "sigmoid")
    return _Fault(
        f"{'probabilities' if probabilities else 'values'} of up to {amount(call.highest)}, but expects "
        "log-probabilities, which are not above 0",
        "Apply `log_softmax` to the logits instead of a softmax." if probabilities else "Apply `log_softmax` first.",
        {"highest": call.highest, "threshold": NEAR, "made_by": call.made_by, "distributions": call.distributions},
    )


def _target_fault(call: ClassificationLoss) -> _Fault | None:
    if call.blanks is not None and call.blanks.labels:
        return _blank_labels(call.blanks)
    target = call.target
    if target is None or not math.isfinite(target.low) or not math.isfinite(target.high):
        return None
    if call.operation == "kl_div":
        return _divergence_target(call, target)
    if not call.reduced:
        return None
    if call.operation == "cross_entropy":
        return _soft_target(call, target)
    if call.operation.startswith("binary") and (target.low < -SMOOTHED or target.high > 1 + SMOOTHED):
        return _Fault(
            f"targets from {amount(target.low)} to {amount(target.high)}, but expects targets from 0 to 1: "
            "the loss has no lower bound",
            "Scale the targets to [0, 1]. For class ids, use `cross_entropy`.",
            {"low": target.low, "high": target.high, "range": [0, 1], "tolerance": SMOOTHED},
        )
    return None


def _blank_labels(seen: BlankLabels) -> _Fault:
    return _Fault(
        f"targets in which {counted(seen.labels, 'label')} of {counted(seen.sequences, 'sequence')} "
        f"{'is' if seen.labels == 1 else 'are'} {seen.blank}, the blank, which cannot be a label: "
        "a decoder drops it, and the loss can become negative",
        f"Number the labels so that none is {seen.blank}, or pass the number of another class as `blank`. "
        "If it is padding, pass the lengths without it as `target_lengths`.",
        {
            "blank": seen.blank,
            "labels": seen.labels,
            "sequences": seen.sequences,
            "of": seen.rows,
            "threshold": "one label",
        },
    )


def _divergence_target(call: ClassificationLoss, target: SoftTarget) -> _Fault | None:
    evidence: dict[str, object] = {"low": target.low, "high": target.high, "log_target": call.log_target}
    if call.log_target and target.low >= 0 and _sums_to_one(target) and target.high > NEAR:
        return _Fault("probabilities as targets with `log_target=True`", "Leave `log_target` out.", evidence)
    if not call.log_target and target.low < -NEAR:
        return _Fault(
            f"targets down to {amount(target.low)}, but expects probabilities",
            "Pass probabilities, or log-probabilities with `log_target=True`.",
            evidence,
        )
    return None


def _soft_target(call: ClassificationLoss, target: SoftTarget) -> _Fault | None:
    if call.classes < 2 or _sums_to_one(target):
        return None
    dense = target.fewest > 1
    if dense and target.low < -NEAR:
        return _Fault(
            f"targets from {amount(target.low)} to {amount(target.high)}, several in each row, "
            "but expects probabilities",
            "Apply a softmax to the targets.",
            _sums(target) | {"low": target.low, "high": target.high},
            Severity.WARNING,
        )
    zeros_and_ones = target.low == 0 and target.high == 1
    if target.low >= 0 and (dense or (zeros_and_ones and target.sum_high > 1)):
        return _multiple(target)
    return None


def _multiple(target: SoftTarget) -> _Fault:
    return _Fault(
        f"soft targets whose rows sum to {amount(target.sum_low)} to {amount(target.sum_high)} instead of 1",
        "If a sample can have several classes, use `binary_cross_entropy_with_logits`. "
        "Otherwise divide each row by its sum.",
        _sums(target),
        Severity.INFO,
    )


def _sums_to_one(target: SoftTarget) -> bool:
    return abs(target.sum_low - 1) <= SUM_TOLERANCE and abs(target.sum_high - 1) <= SUM_TOLERANCE


def _sums(target: SoftTarget) -> dict[str, object]:
    return {"sum_low": target.sum_low, "sum_high": target.sum_high, "tolerance": SUM_TOLERANCE}


@dataclass(frozen=True, slots=True)
class _Line:
    """The weights of some classes as a power of their frequencies."""

    slope: float
    correlation: float
    deviation: float
    """The largest ratio of a deviation from proportionality, in logarithms, to its tolerance."""


def _inverted(seen: ClassWeights, context: Context) -> Iterator[Finding]:
    for loss in seen.losses:
        binary, total = bool(loss.negatives), sum(loss.labels)
        if loss.rows < FEWEST_ROWS or total + sum(loss.negatives) < FEWEST_LABELS:
            continue
        line = _several(loss) if len(loss.weights) > 2 else _few(loss)
        if line is None:
            continue
        known = [number for number, weight in enumerate(loss.weights) if weight > 0 and loss.labels[number]]
        rare, frequent = (choose(known, key=lambda number: loss.labels[number]) for choose in (min, max))
        ratios = [a / b if b else math.inf for a, b in zip(loss.labels, loss.negatives, strict=False)]
        if len(loss.weights) == 1:
            what = (
                f"a `pos_weight` of {amount(loss.weights[0])}, close to positives / negatives of its labels, "
                f"{amount(ratios[0])}: this is the inverse of what balances them"
            )
        elif binary:
            what = (
                "a `pos_weight` that follows positives / negatives of its labels, the inverse of what balances them: "
                f"{amount(loss.weights[rare])} for class {rare}, where the ratio is {amount(ratios[rare])}, and "
                f"{amount(loss.weights[frequent])} for class {frequent}, where it is {amount(ratios[frequent])}"
            )
        else:
            what = (
                "class weights that are proportional to the number of labels, the inverse of what balances them: "
                f"{amount(loss.weights[rare])} for class {rare}, with {loss.labels[rare]:,} of {total:,} labels, and "
                f"{amount(loss.weights[frequent])} for class {frequent}, with {loss.labels[frequent]:,}"
            )
        yield context.finding(
            f"`{loss.operation}` receives {what}.",
            at=loss.at,
            evidence={
                "weights": list(loss.weights),
                "labels": list(loss.labels),
                "negatives": list(loss.negatives) or None,
                "slope": line.slope,
                "correlation": line.correlation,
                "deviation_of_tolerance": line.deviation,
                "thresholds": [*SLOPE, CORRELATION, 1],
            },
            fix="Use negatives / positives."
            if binary
            else "Use weights proportional to 1 / count, such as `counts.sum() / (len(counts) * counts)`.",
            severity=Severity.WARNING,
            certainty=Certainty.STATISTICAL,
        )


def _several(loss: WeightedLoss) -> _Line | None:
    """The line on which the weights lie if they are proportional to the frequencies; None if they are not."""
    counts = [min(pair) for pair in zip(loss.labels, loss.negatives or loss.labels, strict=True)]
    chosen = [n for n, weight in enumerate(loss.weights) if weight > 0 and counts[n] >= FEWEST_OF_A_CLASS]
    weights = [loss.weights[number] for number in chosen]
    if len(chosen) < 3 or (len(chosen) < COMPUTED_BY_THEIR_NUMBER and _by_hand(weights)):
        return None
    errors = [math.sqrt(1 / loss.labels[n] + (1 / loss.negatives[n] if loss.negatives else 0)) for n in chosen]
    for frequencies in _frequencies(loss):
        of_these = [frequencies[number] for number in chosen]
        if max(of_these) < APART * min(of_these):
            continue
        line = _line([math.log(one) for one in of_these], [math.log(weight) for weight in weights], errors)
        if SLOPE[0] <= line.slope <= SLOPE[1] and line.correlation >= CORRELATION and line.deviation <= 1:
            return line
    return None


def _frequencies(loss: WeightedLoss) -> Iterator[list[float]]:
    if not loss.negatives:
        yield list(map(float, loss.labels))
        return
    pairs = list(zip(loss.labels, loss.negatives, strict=True))
    yield [positives / max(negatives, 1) for positives, negatives in pairs]
    yield [positives / max(positives + negatives, 1) for positives, negatives in pairs]


def _line(x: list[float], y: list[float], errors: list[float]) -> _Line:
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    xx = sum((one - middle_x) ** 2 for one in x)
    yy = sum((one - middle_y) ** 2 for one in y)
    xy = sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True))
    deviations = [abs(b - a - middle_y + middle_x) for a, b in zip(x, y, strict=True)]
    return _Line(
        slope=xy / xx,
        correlation=xy / math.sqrt(xx * yy) if yy else 0.0,
        deviation=max(one / (DEVIATION + 2 * error) for one, error in zip(deviations, errors, strict=True)),
    )


def _few(loss: WeightedLoss) -> _Line | None:
    """The same for two classes, or for one `pos_weight`: its weight compared with the ratio of the two counts."""
    if len(loss.weights) == 2 and loss.negatives:
        return None
    pair = (loss.labels[0], loss.negatives[0]) if loss.negatives else (loss.labels[0], loss.labels[-1])
    weight = loss.weights[0] if loss.negatives else loss.weights[0] / loss.weights[-1] if loss.weights[-1] else 0.0
    if len(loss.weights) == 1 and not loss.negatives:
        return None
    if weight <= 0 or min(pair) < FEWEST_OF_TWO or max(pair) < APART * min(pair) or _by_hand(loss.weights):
        return None
    ratio = math.log(pair[0] / pair[1])
    if abs(math.log(weight) - ratio) > OF_TWO:
        return None
    return _Line(math.log(weight) / ratio, 1.0, abs(math.log(weight) - ratio) / OF_TWO)


def _by_hand(weights: Sequence[float]) -> bool:
    """Whether most of the numbers have few digits."""
    few = [math.isclose(weight, float(f"{weight:.{DIGITS}g}"), rel_tol=1e-6) for weight in weights]
    return 2 * sum(few) > len(few)
