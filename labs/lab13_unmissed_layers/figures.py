"""Figures of lesson 13, from real runs: `lab dev figures 13`."""

from __future__ import annotations

from pathlib import Path

import torch

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations
from labs.vla.rollout import rollout
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE = 13, 150, 32


def figures(out: Path) -> None:
    """The gradient of each decoder layer before training, and the loss of both with the success it leads to."""
    torch.set_num_threads(1)
    norm_figure, norm_axes = new_figure("Gradient norm of each decoder layer, after one backward", "", "norm")
    loss_figure, loss_axes = new_figure("Training loss, the same seed", "step", "loss (running mean of 9)")
    batch = next(batches(demonstrations(64, seed=SEED), 64, steps=1, seed=SEED))
    frames = demonstrations(STEPS * BATCH_SIZE, SEED)
    for offset, (name, module) in zip((-0.2, 0.2), broken_and_fixed(find("13")).items(), strict=True):
        policy = module.build_policy(SEED)
        policy(**batch).loss.backward()
        layers = policy.head.decoder.layers
        norms = [float(torch.stack([p.grad.norm() for p in layer.parameters()]).norm()) for layer in layers]
        norm_axes.bar([i + offset for i in range(len(norms))], norms, width=0.38, color=COLOURS[name], label=name)
        for index, norm in enumerate(norms):
            if norm == 0:
                at = (index + offset, 0.03 * max(norms))
                norm_axes.annotate("exactly 0", at, rotation=90, ha="center", va="bottom", c=COLOURS[name])
        policy = module.build_policy(SEED)
        losses = fit(policy, frames, steps=STEPS, seed=SEED, batch_size=BATCH_SIZE)
        success = rollout(policy, episodes=50).success_rate
        loss_axes.plot(smooth(losses), color=COLOURS[name], label=f"{name}: {success:.0%} of 50 episodes succeed")
    norm_axes.set(xticks=range(len(norms)), xticklabels=[f"layer {i + 1}" for i in range(len(norms))])
    norm_axes.set_ylim(top=1.3 * norm_axes.get_ylim()[1])  # room for the legend
    loss_axes.set_ylim(bottom=0)
    for figure, axes, file in (
        (norm_figure, norm_axes, "13_gradients.svg"),
        (loss_figure, loss_axes, "13_loss.svg"),
    ):
        axes.legend(ncols=2 if axes is norm_axes else 1)
        save(figure, out / file)
