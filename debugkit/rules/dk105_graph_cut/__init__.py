"""A line (detach, item, numpy, no_grad, argmax) stops the gradient before parameters that should train.

## What it finds
Trainable parameters whose values reach the loss but whose gradient does not, the line that stops the gradient, and the
last module before that line.

## Why it hurts
The parameters do not change, and nothing reports it: `.grad` is None, the optimizer skips them, and the loss falls as
far as the rest of the model allows. With a pretrained tower the fault is invisible, because its features were good from
the start.

## Evidence
The parameters that get no gradient, how many numbers they hold, the operation, and how far the loss moves when the
values that pass the line are changed. That movement proves that the loss depends on them.

## Fix
Remove the call, or move it to where only a copy for logging is needed. Common causes are `torch.tensor(x)` on a tensor
and `.item()` or `.numpy()` inside a model. Another is a custom Function whose backward returns None. Activation
checkpointing with `use_reentrant=True` stops the gradient where none of its input tensors requires one: keep it, with
`use_reentrant=False`.

## When it stays silent
- Frozen parameters, and parameters that take no part in the step.
- Branches whose output is dropped, and logged values.
- A stop-gradient with another path for the gradient.
- Target networks and moving averages.
- Activation checkpointing that passes the gradient.

The finding is `info` if an optimizer holds only parameters that this loss does not reach, while another optimizer holds
those that it reaches: a GAN's generator during the discriminator's step.

## Cost
A few more passes if the graph is cut.

## Lesson
[Lab 12](../../lessons/gradients/12_tower_never_moves.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.graph_cut import BACKWARD_OF, OUTSIDE_PYTHON, REENTRANT, Cut, GraphCut
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, module_name, quoted, sentence, verb


@rule(
    "DK105",
    name="graph-cut",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(GraphCut,),
)
def judge(seen: GraphCut, context: Context) -> Iterator[Finding]:
    for cut in seen.cuts:
        count = len(cut.parameters)
        names = f"{counted(count, 'trainable parameter')} ({quoted(cut.parameters, 2)})"
        after = f" after {module_name(cut.after_module)}" if cut.after_module is not None else ""
        yield context.finding(
            f"{_operation(cut)} the gradient{after}: {names} {verb(count, 'gets', 'get')} no gradient.",
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
            fix=_fix(cut),
            affects=cut.parameters,
            severity=Severity.INFO if set(cut.parameters) <= set(seen.another_turn) else None,
        )


def _operation(cut: Cut) -> str:
    if cut.operation == OUTSIDE_PYTHON:
        return f"{sentence(cut.operation)} stops"
    names = _backwards(cut) or [cut.operation]
    return f"{quoted(names)} {verb(len(names), 'stops', 'stop')}"


def _fix(cut: Cut) -> str:
    if cut.operation == OUTSIDE_PYTHON:
        return "Compute this output in Python, or give the compiled code a backward."
    if backwards := _backwards(cut):
        return f"Return the gradient of every input from {quoted(backwards)}."
    if cut.operation == REENTRANT:
        return (
            "Keep the checkpoint and change its variant: `use_reentrant=False`. This one passes a gradient only if an "
            "input tensor requires one, and none does here."
        )
    return f"Keep the autograd graph here: remove `{cut.operation}` from the computation of the loss."


def _backwards(cut: Cut) -> list[str]:
    """`Forgets.backward` for each custom Function without a gradient."""
    functions = cut.operation.removeprefix(BACKWARD_OF)
    return [] if functions == cut.operation else [f"{name}.backward" for name in functions.split(", ")]
