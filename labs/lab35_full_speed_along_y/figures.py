"""Figures of lesson 35, from real runs: `lab dev figures 35`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import Frames, demonstrations

SEED, FRAMES, STEPS = 35, 16, 80


def figures(out: Path) -> None:
    """The losses of both runs, and the probability of <end> after the last character of a text."""
    torch.set_num_threads(1)
    loss_figure, loss_axes = new_figure("Loss while memorising 16 demonstrations", "step", "loss")
    end_figure, end_axes = new_figure("Probability of <end> after the last character", "step", "mean over 16 texts")
    frames = demonstrations(FRAMES, SEED)
    for name, module in broken_and_fixed(find("35")).items():
        losses, ends = _train(module, frames)
        loss_axes.plot(losses, color=COLOURS[name], label=name, linestyle="--" if name == "fixed" else "-")
        end_axes.plot(ends, color=COLOURS[name], label=name)
    for figure, axes, file in ((loss_figure, loss_axes, "35_loss.svg"), (end_figure, end_axes, "35_end.svg")):
        axes.set_ylim(bottom=0)
        axes.legend()
        save(figure, out / file)


def _train(module: ModuleType, frames: Frames) -> tuple[list[float], list[float]]:
    policy, batch = module.build_policy(SEED), module.text_batch(frames)
    last = (batch["text_ids"] == module.END).int().argmax(dim=1) - 1  # (B,), the position of the last character
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3, betas=(0.9, 0.95))
    losses, ends = [], []
    for _ in range(STEPS):
        output = policy(**batch)
        after = output.logits[torch.arange(len(last)), last].softmax(dim=-1)  # (B, tokens)
        ends.append(float(after[:, module.END].mean().detach()))
        optimizer.zero_grad()
        output.loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        losses.append(output.loss.item())
    return losses, ends
