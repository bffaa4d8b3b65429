"""Dropout is active although the model is in eval mode.

## What it finds
Operations that drop values while every module is in eval mode, also those that the loss function holds: dropout,
attention with `dropout_p` above 0, a random slope (RReLU), or a tensor multiplied by a random mask of zeros and ones.
`check()` makes a pass in eval mode; `watch()` inspects the first two that the loop makes without gradients.
Usual causes: `F.dropout(x, p)`, whose `training` argument is True by default, and `dropout_p=self.dropout` in
`scaled_dot_product_attention`, which does not depend on the mode at all.

## Why it hurts
The same checkpoint gives a different action at each call, and a worse one. Success rates vary from run to run, and a
comparison of two checkpoints measures chance.

## Evidence
The operation, the module and line, how often it ran in one pass, and the share of values that it drops. The threshold
is 0.

## Fix
Use `nn.Dropout`, or `F.dropout(x, p, training=self.training)` and `dropout_p=self.p if self.training else 0.0`.

## When it stays silent
Other random draws are healthy in eval mode and are not reported: noise and time of flow matching and diffusion, the
sample of a VAE, sampled tokens, random masks that select and do not multiply. The observation counts them as
`other_draws`. Whole samples or channels multiplied by random zeros are a `warning`: that can be stochastic depth, which
is wrong here, or classifier-free guidance that drops its condition in the training loss, which is intended.

`watch()` does not report a call with a literal `True`, such as `F.dropout(x, p, training=True)`: Monte Carlo dropout
needs it in eval mode. A loop that makes no pass in eval mode without gradients is not examined.

## Cost
A pass that is inspected is slower than usual, because each operation is.

## Lesson
[Lab 52](../../lessons/loop/52_cannot_hold_still.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, module_name


@dataclass(frozen=True, slots=True)
class EvalDropout:
    """One operation that drops values, at one line of one module."""

    operation: str
    module: str | None
    at: SourceLine | None
    rate: float | None
    """The share of values that is dropped; None if unknown."""
    elementwise: bool
    """Whether values are dropped one by one; otherwise whole samples or channels are dropped."""
    count: int = 1
    on_request: bool = False
    """Whether the line passes `True` by itself, as Monte Carlo dropout does."""


@measured_by(".measure:draw_in_eval", cost=1, requires=("batch",), in_loop=".measure:EvalDrawsProbe")
@dataclass(frozen=True, slots=True)
class RandomnessInEval:
    """The random operations of one pass in eval mode; under watch(), of the first two that the loop makes."""

    dropouts: tuple[EvalDropout, ...]
    other_draws: int
    """The number of other random draws: noise and time of flow matching, sampling, random masking."""


@rule(
    "DK506",
    name="random-in-eval",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(RandomnessInEval,),
)
def judge(seen: RandomnessInEval, context: Context) -> Iterator[Finding]:
    for dropout in seen.dropouts:
        if dropout.on_request and context.mode == "watch":
            continue
        where = f" in {module_name(dropout.module)}" if dropout.module else ""
        share = "some" if dropout.rate is None else f"{dropout.rate:.0%}"
        calls = "" if dropout.count == 1 else f", in {counted(dropout.count, 'call')}"
        yield context.finding(
            f"In eval mode, `{dropout.operation}`{where} drops {share} of the values{calls}.",
            module=dropout.module,
            at=dropout.at,
            evidence={
                "operation": dropout.operation,
                "rate": dropout.rate,
                "calls": dropout.count,
                "elementwise": dropout.elementwise,
                "threshold": 0.0,
            },
            fix="Use `nn.Dropout`, or pass `training=self.training`. For attention, pass "
            "`dropout_p=p if self.training else 0.0`.",
            severity=None if dropout.elementwise else Severity.WARNING,
            certainty=None if dropout.elementwise else Certainty.HEURISTIC,
        )
