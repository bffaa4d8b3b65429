"""Figures of lesson 11, from real runs: `lab dev figures 11`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labs.authoring.plots import BROKEN, COLOURS, FIXED, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.policy import Policy

SEED, STEPS, BATCH_SIZE = 11, 60, 32
FROZEN_AT = 20
"""The step after which the tower is frozen, so that the optimizer already has momentum."""
WAYS = {
    "requires_grad=False, but zeros left in .grad": (BROKEN, "--"),
    "gradients set to 0 in a hook": (BROKEN, "-"),
    "requires_grad=False and .grad None": (FIXED, "-"),
}


def figures(out: Path) -> None:
    """How far the tower's features drift from the cache, and how far three ways of freezing let its weights move."""
    torch.set_num_threads(1)
    stream = list(batches(demonstrations(STEPS * BATCH_SIZE, SEED), BATCH_SIZE, STEPS, seed=SEED))
    _drift(out, stream)
    _ways(out, stream)


def _drift(out: Path, stream: list[Batch]) -> None:
    figure, axes = new_figure("The features of 64 pictures, against their cache", "step", "off by, % of their spread")
    pictures = next(batches(demonstrations(64, seed=3), 64, steps=1, seed=3))["pixel_values"]
    for name, module in broken_and_fixed(find("11")).items():
        policy = module.build_policy(SEED)
        optimizer = module.build_optimizer(policy)
        cached, off = _features(policy, pictures), [0.0]
        for batch in stream:
            module.train_step(policy, optimizer, batch)
            difference = _features(policy, pictures) - cached
            off.append(100 * float(difference.norm() / (cached - cached.mean(dim=(0, 1))).norm()))
        axes.plot(off, color=COLOURS[name], label=name)
    axes.legend()
    save(figure, out / "11_drift.svg")


def _ways(out: Path, stream: list[Batch]) -> None:
    title = f"The vision tower under AdamW, frozen after {FROZEN_AT} steps in one of three ways"
    figure, axes = new_figure(title, "steps since then", "moved since then, % of its size")
    for way, (colour, line) in WAYS.items():
        axes.plot(_moved_since(way, stream), color=colour, linestyle=line, label=way)
    axes.set_yscale("symlog", linthresh=1e-3)
    axes.set_ylim(-2e-4, 30)
    axes.legend(fontsize=9, loc="center right", bbox_to_anchor=(1.0, 0.3))
    save(figure, out / "11_ways.svg")


def _moved_since(way: str, stream: list[Batch]) -> list[float]:
    policy = Policy.from_base(seed=SEED).train()
    tower = policy.vision
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, weight_decay=0.01)
    moved: list[float] = []
    for step, batch in enumerate(stream):
        if step == FROZEN_AT:
            before = _weights(tower)
            if "hook" in way:
                # A new optimizer, so that what is seen is weight decay alone, without the momentum of the steps before.
                optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, weight_decay=0.01)
                for parameter in tower.parameters():
                    parameter.register_hook(torch.zeros_like)
            else:
                tower.requires_grad_(False)
        optimizer.zero_grad(set_to_none="zeros left" not in way)
        policy(**batch).loss.backward()
        if step >= FROZEN_AT:
            moved.append(100 * float((_weights(tower) - before).norm() / before.norm()))
        optimizer.step()
    return moved


def _weights(module: Any) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def _features(policy: Policy, pictures: Tensor) -> Tensor:
    with torch.no_grad():
        return policy.vision(pixel_values=pictures).last_hidden_state
