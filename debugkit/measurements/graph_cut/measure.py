"""Checks whether the gradient reaches every parameter that the loss depends on. See `debugkit.find_graph_cut`."""

from __future__ import annotations

from dataclasses import replace

from debugkit.measurements.graph_cut import GraphCut
from debugkit.measurements.graph_cut.search import graph_cut_of
from debugkit.setup import TrainingSetup


# One forward if nothing is cut. Otherwise four, and two more for each suspected line.
def find_cuts(setup: TrainingSetup) -> GraphCut:
    """Walk the graph of one loss, and test each suspected line by changing its result."""
    seen = graph_cut_of(setup)
    return replace(seen, another_turn=_of_another_turn(setup, seen))


def _of_another_turn(setup: TrainingSetup, seen: GraphCut) -> tuple[str, ...]:
    missed = {*seen.parameters, *seen.without_effect, *seen.held_constant, *seen.unused}
    trainable = {name: id(p) for name, p in setup.model.named_parameters() if p.requires_grad}
    if missed.issuperset(trainable):
        return ()
    idle: list[str] = []
    for optimizer in setup.optimizers:
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        names = [name for name, key in trainable.items() if key in held]
        if missed.issuperset(names):
            idle += names
    return tuple(idle)
