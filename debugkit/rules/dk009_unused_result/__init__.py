"""The line does not use the new tensor that an operation returns: `x.clamp(0, 1)` or `x.to(device)` alone.

## What it finds
A line of your own code in which the result of a tensor operation is dropped, where the operation changes nothing:
those that have a variant with an underscore (`clamp` and `clamp_`, `lerp` and `lerp_`, `detach` and `detach_`), and
those that convert or move (`to`, `cuda`, `float`, `half`). It is read from the compiled code of the line, not guessed
from its text.

## Why it hurts
The line does nothing, and no error says so: actions are not clipped, an average never follows, a loss keeps its graph,
a tensor stays on the CPU. `module.to(device)` changes the module, and `tensor.to(device)` does not change the tensor,
so the two are often confused.

## Evidence
The operation, how often it ran and the shape of the tensor. The line is the one that drops the result.

## Fix
Assign the result, `x = x.clamp(0, 1)`, or use the variant that changes the tensor, `x.clamp_(0, 1)`.

## When it stays silent
- Operations in place, with `out=` or with `inplace=True`.
- A result that is assigned, returned, passed on or used in any other way, also as `_ = x.clamp(0, 1)`.
- Operations that are called for what they do besides: `item`, `cpu`, `backward`, `expand` as a test of shapes.
- One element moved to a device, which starts the device.
- Installed packages, code that is compiled, and the calls of whole modules, whose hooks may read the result.

## Cost
A look at the calling line for operations of these names. Under `watch()`, only the first three steps are observed.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule


@dataclass(frozen=True)
class UnusedResult(PlainData):
    """A line that drops the result of an operation. `in_place` names the variant that changes the tensor, if any."""

    operation: str
    in_place: str | None
    at: SourceLine
    module: str | None
    shape: tuple[int, ...]
    calls: int


@observed_by(".measure:UnusedResultsProbe")
@dataclass(frozen=True)
class UnusedResults(PlainData):
    """The lines of the observed steps, in order."""

    lines: tuple[UnusedResult, ...]


@rule(
    "DK009",
    name="unused-result",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(UnusedResults,),
)
def judge(seen: UnusedResults, context: Context) -> Iterator[Finding]:
    for one in seen.lines:
        yield context.finding(
            f"`{one.operation}` returns a new tensor, which nothing uses, so this line does nothing.",
            module=one.module,
            at=one.at,
            evidence={"operation": one.operation, "shape": list(one.shape), "calls": one.calls},
            fix=_fix(one),
        )


def _fix(one: UnusedResult) -> str:
    assign = f"Assign the result: `x = x.{one.operation}(…)`"
    if one.in_place is not None:
        return f"{assign}, or use `{one.in_place}`, which changes the tensor."
    return f"{assign}. Unlike that of a module, the method of a tensor does not change it."
