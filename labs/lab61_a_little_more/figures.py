"""The figure of lesson 61, from real runs: `lab dev figures 61`."""

from __future__ import annotations

import gc
from pathlib import Path

import torch
from torch import Tensor

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.live_tensors import graph_nodes
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy

SEED, STEPS, BATCH_SIZE = 61, 50, 4


def figures(out: Path) -> None:
    """The number of live autograd nodes after each step, for both."""
    torch.set_num_threads(1)
    figure, axes = new_figure("What is alive after each step", "step", "nodes of autograd graphs")
    for name, module in broken_and_fixed(find("61")).items():
        policy, counts = Policy.from_base(seed=SEED), []
        stream = batches(demonstrations(STEPS * BATCH_SIZE, SEED), BATCH_SIZE, steps=STEPS, seed=SEED)
        optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
        gc.collect()
        gc.freeze()
        module.train_epoch(policy, stream, optimizer, lambda *_, counts=counts: counts.append(_nodes_alive()))
        gc.unfreeze()
        axes.plot(range(1, STEPS + 1), counts, color=COLOURS[name], label=name)
    axes.set_ylim(bottom=0)
    axes.legend()
    save(figure, out / "61_nodes.svg")


def _nodes_alive() -> int:
    return graph_nodes([found for found in gc.get_objects() if issubclass(type(found), Tensor)])
