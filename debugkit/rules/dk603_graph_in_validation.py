"""Validation records an autograd graph that nothing uses: it runs in eval mode, but not under no_grad.

## What it finds
Calls of the model in evaluation mode, with gradients on, whose output no backward ever went through.

## Why it hurts
`model.eval()` switches dropout and batch norm; it does not switch off autograd. Every activation is kept until the
output is let go, so that validation needs the memory of training, and with a larger batch more than there is. Where the
outputs are collected for a metric, the graphs of the whole validation set pile up.

## Evidence
The line, how many such passes there were, and how many of their graphs are still held.

## Fix
`@torch.no_grad()` over the validation function, or `with torch.inference_mode():` round its loop. A smaller validation
set only moves the failure.

## When it stays silent
Passes under `no_grad` or `inference_mode`; training in eval mode on purpose, since a backward follows; models without a
trainable parameter (a frozen teacher, an EMA copy); saliency and adversarial examples, which call backward too.

## Cost
Free: hooks on the model and its parts.

## Lesson
[Lab 62](../../lessons/memory/62_validation_graph.md)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.untrained_forwards import EvaluationGraphs, UntrainedForwards
from debugkit.registry import Context, rule

FORWARDS = 2


@rule(
    "DK603",
    name="graph-in-validation",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("watch",),
    needs=(EvaluationGraphs,),
)
def judge(seen: EvaluationGraphs, context: Context) -> Iterator[Finding]:
    together: dict[tuple[int, int], list[UntrainedForwards]] = defaultdict(list)
    for passes in seen.wasted:
        if passes.count >= FORWARDS:
            together[passes.count, passes.alive].append(passes)
    for passes, *others in together.values():  # parts that one evaluation calls in turn: one cause
        name = f"`{passes.module}`" if passes.module else "the model"
        if others:
            name += f" and of {len(others)} more part{'s' * (len(others) > 1)}"
        held = f", and {passes.alive} of the graphs are still held" if passes.alive else ""
        yield context.finding(
            f"{passes.count} calls of {name} in eval mode recorded a graph that no backward used{held}.",
            module=passes.module,
            at=passes.at,
            evidence={
                "forwards": passes.count,
                "modules": [passes.module, *(other.module for other in others)],
                "needed_forwards": FORWARDS,
                "graphs_alive": passes.alive,
                "evaluation_forwards": seen.forwards,
            },
            fix="Run validation under torch.no_grad() or torch.inference_mode(): eval() alone keeps the graph.",
        )
