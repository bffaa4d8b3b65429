"""A line ends the gradient before it reaches parameters that should train: detach, item, numpy, no_grad, argmax.

## What it finds
Trainable parameters whose values reach the loss and whose gradient does not, the line at which it ends, and the last
module before it.

## Why it hurts
The parameters stay as they are and nothing says so: `.grad` is None, the optimizer skips them, and the loss falls as
far as the rest of the model can carry it. A pretrained tower hides it altogether: it was good before.

## Evidence
Which parameters are cut off, how many numbers they have, the operation, and how far the loss moved when what passes
through the line was changed: the proof that the loss depends on it.

## Fix
Take the call out, or move it to where only a copy for logging is meant. `torch.tensor(x)` on a tensor, `.item()` and
`.numpy()` inside a model are the usual ones; a custom Function that returns None is another.

## When it stays silent
Frozen parameters, parameters that took no part in the step, branches whose output is dropped, a stop-gradient with
another way round, target networks and moving averages, logged values, activation checkpointing. Where an optimizer
holds only what this loss does not reach, beside one that holds what it does (a GAN's generator at its
discriminator's turn), it is `info`.

## Cost
One forward pass where nothing is cut, and a few more where something is.

## Lesson
[Lab 12](../../lessons/gradients/12_cut_graph.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.graph_cut import Cut, GraphCut
from debugkit.registry import Context, rule


@rule(
    "DK105",
    name="graph-cut",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="1S",
    modes=("check",),
    needs=(GraphCut,),
)
def judge(seen: GraphCut, context: Context) -> Iterator[Finding]:
    for cut in seen.cuts:
        count = len(cut.parameters)
        names = ", ".join(cut.parameters[:2]) + (" …" if count > 2 else "")
        lost = f"{count} trainable parameter{'s' * (count != 1)} ({names}) get{'s' * (count == 1)} no gradient"
        yield context.finding(
            f"{cut.operation} ends the gradient{_after(cut)}: {lost}.",
            module=cut.after_module,
            at=cut.line,
            evidence={
                "operation": cut.operation,
                "parameters": list(cut.parameters),
                "numel": cut.numel,
                "loss_change": cut.loss_change,
                "reached": seen.reached,
                "trainable": seen.trainable,
                "called_from": f"{cut.caller.file}:{cut.caller.line}" if cut.caller else None,
            },
            fix=f"Keep the graph here: take {cut.operation} out of what the loss is computed from.",
            affects=cut.parameters,
            severity=Severity.INFO if set(cut.parameters) <= set(seen.another_turn) else None,
        )


def _after(cut: Cut) -> str:
    return f" after {cut.after_module or 'the model itself'}" if cut.after_module is not None else ""
