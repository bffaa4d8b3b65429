"""Figures of lesson 15, from real runs: `lab dev figures 15`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import torch

from labs.adapted_policy import Peak
from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy, PolicyConfig
from labs.vla.rollout import rollout
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE, LEARNING_RATE = 15, 120, 32, 3e-3
DEPTHS = (2, 4, 6, 8, 10)


def figures(out: Path) -> None:
    """The memory of one step over the depth of the language model, and the loss with the success it leads to."""
    torch.set_num_threads(1)
    memory_title = "Memory of one step beyond the weights"
    memory_figure, memory_axes = new_figure(memory_title, "layers of the language model", "peak (MB)")
    loss_figure, loss_axes = new_figure("Training loss, the same seed", "step", "loss (running mean of 9)")
    frames = demonstrations(STEPS * BATCH_SIZE, SEED)
    for name, module in broken_and_fixed(find("15")).items():
        memory_axes.plot(DEPTHS, [_peak(module, depth, True) for depth in DEPTHS], color=COLOURS[name], label=name)
        policy = module.build_policy(SEED)
        settings = {"steps": STEPS, "seed": SEED, "batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE}
        losses = fit(policy, frames, **settings)
        success = rollout(policy, episodes=50).success_rate
        loss_axes.plot(smooth(losses), color=COLOURS[name], label=f"{name}: {success:.0%} of 50 episodes succeed")
    kept = [_peak(module, depth, False) for depth in DEPTHS]
    memory_axes.plot(DEPTHS, kept, color=REFERENCE, label="all activations kept")
    for figure, axes, file in ((memory_figure, memory_axes, "15_memory.svg"), (loss_figure, loss_axes, "15_loss.svg")):
        axes.set_ylim(bottom=0)
        axes.legend()
        save(figure, out / file)


def _peak(module: ModuleType, depth: int, recompute: bool) -> float:
    policy = Policy(PolicyConfig(layers=depth))
    module.adapt(policy, SEED, recompute=recompute)
    batch = next(batches(demonstrations(BATCH_SIZE, seed=SEED), BATCH_SIZE, steps=1, seed=SEED))
    with Peak(policy.train(), [batch]) as memory:
        policy(**batch).loss.backward()
    return memory.most / 1e6
