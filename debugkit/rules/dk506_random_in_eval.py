"""Dropout is at work although the model is in eval mode.

## What it finds
Operations that drop values while every module is in eval mode: dropout, attention with `dropout_p` above 0, a
randomised slope (RReLU), or a tensor multiplied by zeros and ones that were drawn. The usual reason is
`F.dropout(x, p)`, whose `training` is True by default, or `dropout_p=self.dropout` in `scaled_dot_product_attention`,
which knows no mode at all.

## Why it hurts
The same checkpoint gives another action at each call, and a worse one. Success rates wander from run to run, and a
comparison of two checkpoints measures luck.

## Evidence
The operation, the module and line, how often it ran in one pass, and the share it drops, against a threshold of 0.

## Fix
`nn.Dropout`, or `F.dropout(x, p, training=self.training)` and `dropout_p=self.p if self.training else 0.0`.

## When it stays silent
All other draws, which are healthy in eval mode: noise and time of flow matching and diffusion, a VAE's sample, sampled
tokens, random masks that choose and do not multiply. They are counted as `other_draws` in the observation and not
reported. Whole samples or channels multiplied by drawn zeros (stochastic depth, guidance that drops its condition in
the training loss) are a warning, since the latter is meant.

## Cost
One forward pass, operation by operation.

## Lesson
[Lab 52](../../lessons/loop/52_evaluation_mode.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.randomness_in_eval import RandomnessInEval
from debugkit.registry import Context, rule


@rule(
    "DK506",
    name="random-in-eval",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="1F",
    modes=("check",),
    needs=(RandomnessInEval,),
)
def judge(seen: RandomnessInEval, context: Context) -> Iterator[Finding]:
    for dropout in seen.dropouts:
        where = f" in {dropout.module}" if dropout.module else ""
        share = "" if dropout.rate is None else f" {dropout.rate:.0%} of"
        yield context.finding(
            f"In eval mode {dropout.operation}{where} drops{share} the values, {dropout.count} time"
            f"{'s' * (dropout.count != 1)} in one pass.",
            module=dropout.module,
            at=dropout.at,
            evidence={
                "operation": dropout.operation,
                "rate": dropout.rate,
                "calls": dropout.count,
                "elementwise": dropout.elementwise,
                "threshold": 0.0,
            },
            fix="Use nn.Dropout, or pass training=self.training; for attention, dropout_p=p if self.training else 0.0.",
            severity=None if dropout.elementwise else Severity.WARNING,
            certainty=None if dropout.elementwise else Certainty.HEURISTIC,
        )
