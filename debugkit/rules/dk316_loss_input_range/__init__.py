"""A loss receives inputs or targets outside the range that it is defined for.

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

Softmax before `cross_entropy` and probabilities given to `nll_loss` are
[DK308](dk308_double_softmax.md).

## Why it hurts
Nothing raises. With targets above 1, or with logits in `nll_loss` or `ctc_loss`, the loss has no lower bound: it
becomes negative and falls without end while the predictions get worse. With a sigmoid before `cross_entropy`, the loss
cannot fall below ln(e + C - 1) - 1, which is 1.46 with ten classes. Behind two sigmoids, a probability is between 0.5
and 0.73, so no prediction can be certain. `ctc_loss` puts a blank between the labels itself,
and a decoder drops it: a label that is the blank is never predicted, and its paths are counted more than once, so that
the loss can become negative.

## Evidence
The largest input, or the smallest and the largest target, with the range that the loss is defined for. For soft
targets, the smallest and the largest sum of a row. For blanks, how many labels of how many sequences are one; the
threshold is one.

## Fix
Pass logits to `cross_entropy` and to `binary_cross_entropy_with_logits`, and the output of `log_softmax` to `nll_loss`,
`kl_div` and `ctc_loss`. Scale targets to [0, 1]. Number the labels of `ctc_loss` without the blank.

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

## Cost
Under `watch()`, only the first three steps are observed.

## Lesson
No lab of its own. [Lab 23](../../lessons/numerics/23_too_sure.md) is about a softmax before `cross_entropy`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.classification_losses import (
    BlankLabels,
    ClassificationLoss,
    ClassificationLosses,
    SoftTarget,
)
from debugkit.rule import Context, rule
from debugkit.rule_text import amount, counted

NEAR = 1e-3
"""Log-probabilities in half precision, and ln(p + 1e-6), are not above this."""
SMOOTHED = 0.5
"""Targets of 0.7 to 1.2 are a known remedy for a discriminator that is too certain."""
SUM_TOLERANCE = 0.02
"""A row of probabilities in bfloat16 differs from 1 by less."""


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
    needs=(ClassificationLosses,),
)
def judge(seen: ClassificationLosses, context: Context) -> Iterator[Finding]:
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
