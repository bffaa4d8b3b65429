"""Checks whether the gradient reaches every parameter that the loss depends on. See `debugkit.find_graph_cut`."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from debugkit.finding import NotExamined
from debugkit.held_parameters import held_parameters
from debugkit.interventions.mentioned_names import chosen_by_key, mentions
from debugkit.loader_samples import batches_of
from debugkit.measurements.graph_cut import GraphCut
from debugkit.measurements.graph_cut.search import graph_cut_of, unused_parameters
from debugkit.setup import TrainingSetup

_BATCHES = 8
"""A head that this many batches do not need counts as unused."""


# One forward if nothing is cut. Otherwise four, and two more for each suspected line.
def find_cuts(setup: TrainingSetup) -> GraphCut:
    """Walk the graph of one loss, and test each suspected line by changing its result."""
    seen = _over_several_batches(setup, graph_cut_of(setup))
    return replace(
        seen,
        another_turn=_of_another_turn(setup, seen),
        mentioned=tuple(name for name in seen.unused if mentions(setup, name.rpartition(".")[0])),
        alternatives=chosen_by_key(setup) if seen.unused else (),
    )


def _over_several_batches(setup: TrainingSetup, seen: GraphCut) -> GraphCut:
    """`unused` without what another batch of the loader uses."""
    loader = setup.loaders.get("train")
    if loader is None or not seen.unused:
        return seen
    unused, number = seen.unused, 1
    with contextlib.suppress(NotExamined), batches_of(loader, most=_BATCHES) as batches:
        for batch in batches:
            also = set(unused_parameters(replace(setup, batch=batch)))
            unused, number = tuple(name for name in unused if name in also), number + 1
    return replace(seen, unused=unused, batches=number)


def _of_another_turn(setup: TrainingSetup, seen: GraphCut) -> tuple[str, ...]:
    missed = {*seen.parameters, *seen.without_effect, *seen.held_constant, *seen.unused}
    trainable = {name: id(p) for name, p in setup.model.named_parameters() if p.requires_grad}
    if missed.issuperset(trainable):
        return ()
    idle: list[str] = []
    for optimizer in setup.optimizers:
        held = {id(parameter) for parameter in held_parameters(optimizer)}
        names = [name for name, key in trainable.items() if key in held]
        if missed.issuperset(names):
            idle += names
    return tuple(idle)
