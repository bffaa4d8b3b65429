"""Figures of lesson 34, from real runs: `lab dev figures 34`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import demonstrations
from labs.vla.tabletop import Tabletop, expert_action

EPISODES = 50


def figures(out: Path) -> None:
    """Where replayed demonstrations end, and the decoded value over four bins."""
    frames = demonstrations(2000, seed=34)
    heads = {name: module.build_policy(frames, 0).head for name, module in broken_and_fixed(find("34")).items()}
    title = f"{EPISODES} demonstrations replayed through their tokens"
    ends_figure, ends_axes = new_figure(title, "x, cm from the recorded end", "y, cm (down is +)")
    error_figure, error_axes = new_figure("decode(encode(dx)) over four bins", "dx demonstrated, mm", "dx executed, mm")
    dx = np.linspace(0.0, 0.025, 1000, dtype=np.float32)
    action = torch.from_numpy(np.stack([dx, np.zeros_like(dx), -np.ones_like(dx)], axis=-1))
    for name, head in heads.items():
        moved = 100 * _replayed(head)
        ends_axes.scatter(*moved.T, s=14, color=COLOURS[name], label=name)
        error_axes.plot(1000 * dx, 1000 * head.decode(head.encode(action))[:, 0], color=COLOURS[name], label=name)
    error_axes.plot(1000 * dx, 1000 * dx, color=REFERENCE, linestyle="--", linewidth=1, label="as demonstrated")
    ends_axes.axhline(0, color=REFERENCE, linewidth=0.8)
    ends_axes.axvline(0, color=REFERENCE, linewidth=0.8)
    ends_axes.invert_yaxis()
    ends_axes.set_aspect("equal")
    for figure, axes, file in ((ends_figure, ends_axes, "34_replay.svg"), (error_figure, error_axes, "34_steps.svg")):
        axes.legend(loc="lower right" if axes is error_axes else "upper right")
        save(figure, out / file)


def _replayed(head: Any) -> NDArray[np.float64]:
    """Each replayed demonstration's end minus its recorded end, (N, 2) metres."""
    moved = []
    for seed in range(EPISODES):
        table = Tabletop()
        table.reset(seed=seed)
        recorded = replayed = table.scene.arm
        block = table.scene.blocks[table.scene.target]
        for _ in range(table.max_steps):
            action = expert_action(recorded[None], block[None])[0]
            spoken = head.decode(head.encode(torch.from_numpy(action)[None]))[0].numpy()
            recorded = np.clip(recorded + action[:2], 0.0, 1.0)
            replayed = np.clip(replayed + spoken[:2], 0.0, 1.0)
            if action[2] > 0:
                break
        moved.append(replayed - recorded)
    return np.array(moved)
