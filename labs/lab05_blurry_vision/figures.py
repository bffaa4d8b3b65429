"""Figures of lesson 05, from real runs: `lab dev figures 05`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import demonstrations
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE = 5, 120, 32
SIDE, CHANGED = 8, (2, 5)


def figures(out: Path) -> None:
    """The training loss of both, and where the output moves when one patch of the input is changed."""
    torch.set_num_threads(1)
    loss_figure, loss_axes = new_figure("Training loss, the same seed", "step", "loss (running mean of 9)")
    reach_figure, only = new_figure("", "", "")
    only.remove()
    panels = reach_figure.subplots(1, 2)
    for (name, module), axes in zip(broken_and_fixed(find("05")).items(), panels, strict=True):
        policy = module.build_policy(SEED)
        frames = demonstrations(STEPS * BATCH_SIZE, SEED)
        losses = fit(policy, frames, steps=STEPS, seed=SEED, batch_size=BATCH_SIZE, learning_rate=2e-3)
        loss_axes.plot(smooth(losses), color=COLOURS[name], label=name)
        moved = _reach(module)
        axes.imshow(moved / moved.max(), cmap="Greys", vmin=0, vmax=1)
        axes.plot(CHANGED[1], CHANGED[0], marker="o", markersize=5, color=COLOURS[name])
        axes.set(title=name, xticks=[], yticks=[])
    reach_figure.suptitle("One patch changes (dot): how far each patch of the output moves", size=10, x=0.02, ha="left")
    loss_axes.set_ylim(bottom=0)
    loss_axes.legend()
    save(loss_figure, out / "05_loss.svg")
    save(reach_figure, out / "05_reach.svg")


@torch.no_grad()
def _reach(module: ModuleType) -> Tensor:
    """How far each patch of a fresh pyramid's output moves when one patch is changed, (8, 8), mean of 64 draws."""
    generator = torch.Generator().manual_seed(SEED)
    torch.manual_seed(SEED)
    pyramid = module.PatchPyramid(64)
    patches = torch.randn(64, SIDE * SIDE, 64, generator=generator)
    other = patches.clone()
    other[:, CHANGED[0] * SIDE + CHANGED[1]] += torch.randn(64, 64, generator=generator)
    size = (SIDE, SIDE)
    return (pyramid(other, size) - pyramid(patches, size)).norm(dim=-1).mean(dim=0).view(SIDE, SIDE)
