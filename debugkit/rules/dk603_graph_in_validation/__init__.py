"""Validation records an autograd graph that is never used: it runs in eval mode, but not under no_grad.

## What it finds
Calls of the model in eval mode, with gradients enabled, whose output is never used by a backward.

## Why it hurts
`model.eval()` changes dropout and batch norm; it does not disable autograd. Every activation is kept until the output
is released, so validation needs as much memory as training, and with a larger batch even more. If the outputs are
collected for a metric, the graphs of the whole validation set are kept.

## Evidence
The line, the number of such calls, and how many of their graphs are still alive.

## Fix
Put `@torch.no_grad()` on the validation function, or `with torch.inference_mode():` around its loop. A smaller
validation set only delays the failure.

## When it stays silent
Calls under `no_grad` or `inference_mode`; training in eval mode on purpose, because a backward follows; models without
a trainable parameter (a frozen teacher, an EMA copy); saliency maps and adversarial examples, which call backward too.

## Cost
Hooks on the model and its submodules.

## Lesson
[Lab 62](../../lessons/memory/62_costly_exam.md)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, module_name, verb


@dataclass(frozen=True)
class UntrainedForwards(PlainData):
    """The calls from one line: their module, their number, and how many of their graphs are still alive."""

    module: str
    at: SourceLine | None
    count: int
    alive: int


@observed_by(".measure:EvaluationGraphsProbe")
@dataclass(frozen=True)
class EvaluationGraphs(PlainData):
    """The run so far; `forwards` counts all finished calls in eval mode, with or without a graph."""

    forwards: int
    wasted: tuple[UntrainedForwards, ...]


FORWARDS = 2


@rule(
    "DK603",
    name="graph-in-validation",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(EvaluationGraphs,),
)
def judge(seen: EvaluationGraphs, context: Context) -> Iterator[Finding]:
    together: dict[tuple[int, int], list[UntrainedForwards]] = defaultdict(list)
    for passes in seen.wasted:
        if passes.count >= FORWARDS:
            together[passes.count, passes.alive].append(passes)
    for passes, *others in together.values():  # submodules that one evaluation calls in turn have one cause
        name = module_name(passes.module)
        if others:
            name += f" and of {counted(len(others), 'other module')}"
        held = f"; {passes.alive} of the graphs {verb(passes.alive, 'is', 'are')} still in memory"
        yield context.finding(
            f"{counted(passes.count, 'call')} of {name} in eval mode recorded a graph that no `backward()` used"
            f"{held if passes.alive else ''}.",
            module=passes.module,
            at=passes.at,
            evidence={
                "forwards": passes.count,
                "modules": [passes.module, *(other.module for other in others)],
                "needed_forwards": FORWARDS,
                "graphs_alive": passes.alive,
                "evaluation_forwards": seen.forwards,
            },
            fix="Run validation under `torch.no_grad()` or `torch.inference_mode()`: `eval()` does not disable "
            "autograd.",
        )
