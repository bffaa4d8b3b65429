"""Figures of lesson 21, from real runs: `lab dev figures 21`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find

EPSILON = 1e-8


def figures(out: Path) -> None:
    """Four normalisers, applied to a wrist angle a little beside that of every demonstration."""
    modules = broken_and_fixed(find("21"))
    frames = modules["fixed"].wrist_demonstrations(2000, seed=21)
    demonstrated, is_pad = torch.from_numpy(frames.action), torch.from_numpy(frames.action_is_pad)
    held = modules["fixed"].WRIST_ANGLE
    beside = np.logspace(-6, -1, 60).astype(np.float32)  # radians
    action = demonstrated[0, :1].repeat(len(beside), 1)
    action[:, 2] = torch.from_numpy(held + beside)
    figure, axes = new_figure(
        "How large a normalised wrist gets, beside its constant", "radians beside 0.35", "largest |normalised|"
    )
    reached = {}
    for name, module in modules.items():
        normaliser = module.RangeNormaliser(4)
        normaliser.fit(demonstrated, is_pad)
        reached[name] = normaliser.normalise(action)[:, 2].abs()
    assert bool(reached["as shipped"].isinf().all())
    wrist = demonstrated[~is_pad][:, 2].numpy()  # float32, as a dataset's statistics are computed
    moved = action[:, 2].numpy() - wrist[0]
    axes.plot(beside, np.abs(2 * moved / EPSILON - 1), color=REFERENCE, linestyle="--", label="range + 1e-8")
    axes.plot(beside, np.abs((action[:, 2].numpy() - wrist.mean()) / wrist.std()), c="#5c677d", label="mean and std")
    axes.plot(beside, reached["fixed"], color=COLOURS["fixed"], label="fixed")
    axes.axhline(1e9, color=COLOURS["as shipped"], label="as shipped: infinite, everywhere")
    axes.set(xscale="log", yscale="log", ylim=(0.2, 6e9))
    axes.legend(loc=(0.02, 0.5), fontsize=9)
    save(figure, out / "21_beside.svg")
