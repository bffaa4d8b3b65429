"""Figures of lesson 55, from real runs: `lab dev figures 55`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from labs.authoring.plots import BROKEN, COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations
from labs.vla.tabletop import Tabletop, expert_action

SEED, BATCH_SIZE, EPISODES = 55, 16, 300
PERSONS_SPEED = 1 / 3


def figures(out: Path) -> None:
    """The losses of both, and the normalised targets compared with the head's range."""
    torch.set_num_threads(1)
    modules = broken_and_fixed(find("55"))
    batch = next(batches(demonstrations(2 * BATCH_SIZE, SEED), BATCH_SIZE, steps=1, seed=SEED))
    figure, axes = new_figure("Overfitting sixteen frames", "step", "loss (log scale)")
    for name, module in modules.items():
        policy = module.RecordedPolicy.from_base(seed=SEED)
        axes.plot(module.learn_by_heart(policy, batch, seed=SEED), color=COLOURS[name], label=name)
    axes.set(yscale="log")
    axes.legend()
    save(figure, out / "55_loss.svg")
    _draw_targets(out / "55_targets.svg", modules["as shipped"])


def _draw_targets(path: Path, module: object) -> None:
    recorded = _recorded_actions()
    mean, std = np.array(module.RECORDED_MEAN), np.array(module.RECORDED_STD)
    if not np.allclose(recorded.std(axis=0), std, rtol=0.03):
        raise ValueError(f"policy.py says {std}, but the recordings' standard deviation is {recorded.std(axis=0)}.")
    frames = demonstrations(4000, SEED)
    targets = (frames.action[:, 0] - mean) / std
    figure, axes = new_figure("Targets of 4,000 frames, and what a tanh can say", "standard deviations", "frames")
    axes.axvspan(-1, 1, color=REFERENCE, alpha=0.4, linewidth=0)
    bins = np.linspace(-4.2, 4.2, 57)
    axes.hist(targets[:, 0], bins=bins, color=COLOURS["fixed"], alpha=0.8, label="movement along x")
    axes.hist(targets[:, 2], bins=bins, color=BROKEN, alpha=0.8, label="gripper")
    axes.annotate("tanh", (0, axes.get_ylim()[1]), ha="center", va="top", size=9)
    axes.annotate("close", (3.43, 1100), ha="center", va="bottom", size=9)
    axes.legend(loc="upper right")
    save(figure, path)


def _recorded_actions() -> NDArray[np.float32]:
    """Every action of 300 episodes in which the arm is moved by hand, at a third of the expert's speed, (N, 3)."""
    actions = []
    for episode in range(EPISODES):
        table = Tabletop()
        table.reset(seed=900_000 + episode)
        arm, block = np.array(table.scene.arm), np.array(table.scene.blocks[table.scene.target])
        closed = False
        while not closed:
            action = expert_action(arm, block)
            closed = bool(action[2] > 0)
            if not closed:
                action[:2] *= PERSONS_SPEED
            actions.append(action)
            arm = arm + action[:2]
    return np.stack(actions)
