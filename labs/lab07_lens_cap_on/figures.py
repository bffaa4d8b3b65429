"""Figures of lesson 07, from real runs: `lab dev figures 07`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import demonstrations
from labs.vla.tabletop import TABLE_RGB
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE = 7, 150, 32
PATCH, GRID = 16, 4
SHOWN_FRAME = 4


def figures(out: Path) -> None:
    """The rows as the vision tower reads them, as pictures, and the loss of both next to that of a covered camera."""
    torch.set_num_threads(1)
    frames = demonstrations(STEPS * BATCH_SIZE, SEED)
    picture = torch.from_numpy(frames.image[SHOWN_FRAME]).permute(2, 0, 1)[None].float() / 255
    rows_figure, only = new_figure("", "", "")
    only.remove()
    panels = rows_figure.subplots(1, 3)
    panels[0].imshow(picture[0].permute(1, 2, 0))
    panels[0].set_title("the camera image")
    loss_figure, loss_axes = new_figure("Training loss, the same seed", "step", "loss (running mean of 9)")
    modules = broken_and_fixed(find("07"))
    for (name, module), axes in zip(modules.items(), panels[1:], strict=True):
        axes.imshow(_read_as_patches(module.patchify(picture, PATCH)))
        axes.set_title(name)
        policy = module.build_policy(SEED)
        losses = fit(policy, frames, steps=STEPS, seed=SEED, batch_size=BATCH_SIZE)
        loss_axes.plot(smooth(losses), color=COLOURS[name], label=name)
    for axes in panels:
        axes.set(xticks=[], yticks=[])
    covered = replace(frames, image=np.broadcast_to(np.array(TABLE_RGB, np.uint8), frames.image.shape))
    policy = modules["fixed"].build_policy(SEED)
    losses = fit(policy, covered, steps=STEPS, seed=SEED, batch_size=BATCH_SIZE)
    loss_axes.plot(smooth(losses), color=REFERENCE, linestyle="--", label="camera covered")
    loss_axes.set_ylim(bottom=0)
    loss_axes.legend()
    rows_figure.suptitle("What the weights take for the image: every row, at its place", size=12, x=0.02, ha="left")
    save(rows_figure, out / "07_rows.svg")
    save(loss_figure, out / "07_loss.svg")


def _read_as_patches(rows: Tensor) -> Tensor:
    """The rows (1, P, 3·p·p) as the convolution's weights read them, each at its place on the grid: (H, W, 3)."""
    grid = rows[0].unflatten(1, (3, PATCH, PATCH)).unflatten(0, (GRID, GRID))  # (rows, columns, 3, p, p)
    return grid.permute(0, 3, 1, 4, 2).flatten(2, 3).flatten(0, 1)
