"""Figures of lesson 32, from real runs: `lab dev figures 32`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import nn

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import Moments, sample_moments

SEED, STEPS, BATCH_SIZE, EVERY = 32, 100, 32, 5


def figures(out: Path) -> None:
    """Both training losses, and the share of next words that both predict correctly on unseen plans."""
    torch.set_num_threads(1)
    loss_figure, loss_axes = new_figure("Training loss, the same seed and frames", "step", "loss (running mean of 9)")
    right_figure, right_axes = new_figure("Next words predicted correctly, on 256 new plans", "step", "share of words")
    new = sample_moments(np.random.default_rng([SEED, 1]), 256)
    for name, module in broken_and_fixed(find("32")).items():
        losses, right = _train(module, new)
        loss_axes.plot(smooth(losses), color=COLOURS[name], label=name)
        right_axes.plot(range(0, STEPS, EVERY), right, color=COLOURS[name], label=name)
    for figure, axes, file in ((loss_figure, loss_axes, "32_loss.svg"), (right_figure, right_axes, "32_right.svg")):
        axes.set_ylim(bottom=0)
        axes.legend()
        save(figure, out / file)


def _train(module: ModuleType, new: Moments) -> tuple[list[float], list[float]]:
    policy = module.build_policy(SEED)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3, betas=(0.9, 0.95))
    rng = np.random.default_rng(SEED)
    losses, right = [], []
    for step in range(STEPS):
        if step % EVERY == 0:
            right.append(_right(module, policy, new))
        loss = policy(**module.planning_batch(sample_moments(rng, BATCH_SIZE))).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, right


@torch.no_grad()
def _right(module: ModuleType, policy: nn.Module, moments: Moments) -> float:
    """The share of next words predicted correctly, over the plans' words and their <end>."""
    batch = module.planning_batch(moments)
    likeliest = policy(**batch).logits.argmax(dim=-1)
    return float((likeliest == batch["labels"])[batch["plan_mask"].bool()].double().mean())
