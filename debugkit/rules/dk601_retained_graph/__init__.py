"""Losses of past steps are kept with their autograd graphs, or the gradients are.

## What it finds
- A running total (`total += loss`), or a list or dict of losses or outputs that still have a `grad_fn`, so that their
  number grows with every step.
- The same of results inside the model, such as features that a hook or `forward` appends to a list. The first twelve
  steps are followed.
- Gradients that have a `grad_fn` when the optimizer steps, because of `backward(create_graph=True)`, in five steps in
  which nothing differentiated them.

## Why it hurts
Each of them keeps the graph of its whole forward pass: hundreds of nodes per step, and every activation that backward
did not free. Memory grows until the run ends hours later with an out-of-memory error at an unrelated line. The graph
of a running total also gets deeper with each step, and a later `backward()` on it would traverse all steps. A gradient
with a graph refers to its parameter and the parameter to its gradient, so that the step's activations are freed only
when the gradients are reset, and backward records twice the work.

## Evidence
The number of graphs of earlier steps that are alive after each of the last steps, the variable that holds them, and the
number of graph nodes. For gradients, the number of steps, and the line of `backward()`.

## Fix
Keep the number, not the graph: `total += loss.item()`, or `loss.detach()`, which does not wait for the GPU. Emptying
caches and `gc.collect()` do not free anything that is still referenced. Remove `create_graph=True`.

## When it stays silent
Detached losses; the last loss or output, which a variable holds until the next step; gradient accumulation; graphs that
are kept on purpose (`retain_graph`, truncated backpropagation through time), as long as they are released again; the
losses of one iteration in which several optimizers step, as long as the next iteration does not add to them. Gradients
that are differentiated before the step, by `torch.autograd.grad` or a second `backward()`: gradient penalties,
AdaHessian.

## Cost
One weak reference per loss and per output of the model, and per node of the graph in the first twelve steps. The
variable that holds the graphs is searched for only once.

## Lesson
[Lab 61](../../lessons/memory/61_a_little_more.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, or_too_short, rule
from debugkit.rule_text import counted


@dataclass(frozen=True)
class Holder(PlainData):
    """The variable or attribute that keeps the graphs, as the program names it, and the line that adds to it."""

    name: str
    kind: str
    at: SourceLine | None
    graph_nodes: int


@observed_by(".measure:RetainedGraphsProbe")
@dataclass(frozen=True)
class RetainedGraphs(PlainData):
    """How many graphs of earlier losses or outputs were alive after each of the last steps, and what holds them.

    Where several optimizers take turns, these are the steps of one of them.
    """

    alive: tuple[int, ...]
    holder: Holder | None = None
    of: Literal["loss", "output", "part"] = "loss"
    """Whether the graphs end in losses, in outputs of the model whose losses are gone, or in results inside of it."""
    gradients: int = 0
    """The steps of an optimizer with gradients that had a graph, and that nothing had differentiated."""
    backward_at: SourceLine | None = None
    """The line of the first `backward()` that recorded such gradients."""

    @property
    def rises(self) -> int:
        """The number of steps after which more graphs were alive than before."""
        return sum(later > earlier for earlier, later in zip((0, *self.alive), self.alive, strict=False))

    @property
    def only_rises(self) -> bool:
        """Whether the number rose often enough, and never fell."""
        return self.rises >= RISES and not self.falls

    @property
    def falls(self) -> int:
        """The number of steps after which fewer graphs were alive than before."""
        return sum(later < earlier for earlier, later in zip(self.alive, self.alive[1:], strict=False))


RISES = 5
_WHAT = {
    "loss": ("past loss", "past losses"),
    "output": ("past output", "past outputs"),
    "part": ("past result inside", "past results inside"),
}


@rule(
    "DK601",
    name="retained-graph",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(RetainedGraphs,),
)
def judge(seen: RetainedGraphs, context: Context) -> Iterator[Finding]:
    found = [*_kept(seen, context), *_graphs_of_gradients(seen, context)]
    yield from or_too_short(found, len(seen.alive), RISES + 1)  # none is past at the first step


def _graphs_of_gradients(seen: RetainedGraphs, context: Context) -> Iterator[Finding]:
    if seen.gradients < RISES:
        return
    yield context.finding(
        f"The gradients had a graph in {seen.gradients} steps, and nothing differentiated them: `backward()` was "
        "called with `create_graph=True`.",
        at=seen.backward_at,
        evidence={"steps": seen.gradients, "threshold": RISES},
        fix="Remove `create_graph=True`.",
    )


def _kept(seen: RetainedGraphs, context: Context) -> Iterator[Finding]:
    if not seen.only_rises:
        return
    holder = seen.holder
    what = _WHAT[seen.of]
    whose = "" if seen.of == "loss" else " of the model"
    more = "although their steps have ended" if seen.of == "part" else "more after every step"
    kept = f"The graphs of {counted(seen.alive[-1], *what)}{whose} are still alive, {more}"
    by = f": `{holder.name}`, a {holder.kind}, keeps them" if holder else ""
    yield context.finding(
        f"{kept}{by}.",
        at=holder.at if holder else None,
        evidence={
            "alive": list(seen.alive[-RISES:]),
            "rises": seen.rises,
            "needed_rises": RISES,
            "holder": holder.name if holder else None,
            "graph_nodes": holder.graph_nodes if holder else None,
        },
        fix=_fix(holder.name if holder else None, seen.of),
    )


def _fix(name: str | None, of: str) -> str:
    where = f" in `{name}`" if name else ""
    if of != "loss":
        return f"Keep the values{where} and not the graph: `output.detach()`, on the CPU if they are many."
    return f"Keep the number{where} and not the graph: `loss.item()`, or `loss.detach()` to avoid waiting for the GPU."
