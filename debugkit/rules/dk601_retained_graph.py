"""The losses of past steps are kept together with their autograd graphs, more of them after every step.

## What it finds
A running total (`total += loss`), a list or a dict that keeps losses, or outputs, which still have a `grad_fn`.

## Why it hurts
Each keeps the graph of its whole forward pass: hundreds of nodes a step, and every activation that backward did not
free. Memory grows until the run dies, hours in, at a line that has nothing to do with it. A total also makes its own
graph deeper each step, and a later `backward()` on it would go through all of them.

## Evidence
How many graphs of earlier steps are alive after each of the last steps, who holds them, and how many nodes that is.

## Fix
Keep the number: `total += loss.item()`, or `loss.detach()`, which does not wait for the GPU. Emptying caches or calling
`gc.collect()` frees nothing that is still referenced.

## When it stays silent
Detached losses; the last loss or output, which a variable holds until the next step; a few that are kept on purpose
(`retain_graph`, truncated backpropagation through time) as long as they are let go again; gradient accumulation.

## Cost
Free: one weak reference a loss. Who holds them is looked for once.

## Lesson
[Lab 61](../../lessons/memory/61_summed_losses.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.retained_graphs import RetainedGraphs
from debugkit.registry import Context, rule

RISES = 5


@rule(
    "DK601",
    name="retained-graph",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("watch",),
    needs=(RetainedGraphs,),
)
def judge(seen: RetainedGraphs, context: Context) -> Iterator[Finding]:
    if seen.rises < RISES or seen.falls:
        return
    holder = seen.holder
    kept = f"The graphs of {seen.alive[-1]} past losses are alive, more after every step"
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
        fix=_fix(holder.name if holder else None),
    )


def _fix(name: str | None) -> str:
    what = f"in `{name}` " if name else ""
    return f"Keep the number {what}and not the graph: loss.item(), or loss.detach() where waiting for the GPU costs."
