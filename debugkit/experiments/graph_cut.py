"""Does the gradient reach every parameter that the loss depends on? See `debugkit.find_graph_cut`."""

from __future__ import annotations

from dataclasses import replace

from debugkit.experiments import experiment
from debugkit.instruments.find_graph_cut import graph_cut_of
from debugkit.observations.graph_cut import GraphCut
from debugkit.subject import Subject


# One forward where nothing is cut; four and two more for each suspected line where something may be.
@experiment(GraphCut, cost=4, requires=("batch",))
def cut_the_graph_open(subject: Subject) -> GraphCut:
    """Walk the graph of one loss and prove each suspected line by changing what it returns."""
    seen = graph_cut_of(subject)
    return replace(seen, another_turn=_of_another_turn(subject, seen))


def _of_another_turn(subject: Subject, seen: GraphCut) -> tuple[str, ...]:
    missed = {*seen.parameters, *seen.without_effect, *seen.held_constant, *seen.unused}
    trainable = {name: id(p) for name, p in subject.model.named_parameters() if p.requires_grad}
    if missed.issuperset(trainable):
        return ()
    idle: list[str] = []
    for optimizer in subject.optimizers:
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        names = [name for name, key in trainable.items() if key in held]
        if missed.issuperset(names):
            idle += names
    return tuple(idle)
