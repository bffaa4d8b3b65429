"""Figures of lesson 16, from real runs: `lab dev figures 16`."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations

SEED, STEPS, BATCH_SIZE = 16, 80, 16


def figures(out: Path) -> None:
    """Each layer's gradient norm at the start and at step 50, and the loss, of both."""
    torch.set_num_threads(1)
    title = "Gradient norm of the head's layers: full lines at step 0, dotted at step 50"
    norm_figure, norm_axes = new_figure(title, "layer of the head", "norm (log scale)")
    loss_figure, loss_axes = new_figure("Overfitting sixteen frames, the same seed", "step", "loss")
    batch = next(batches(demonstrations(2 * BATCH_SIZE, SEED), BATCH_SIZE, steps=1, seed=SEED))
    for name, module in broken_and_fixed(find("16")).items():
        policy = module.DeepHeadPolicy.from_base(seed=SEED)
        seen: list[list[float]] = []
        handle = register_optimizer_step_pre_hook(lambda *_, policy=policy, seen=seen: seen.append(_norms(policy)))
        losses = module.learn_by_heart(policy, batch, steps=STEPS, seed=SEED)
        handle.remove()
        norm_axes.plot(seen[0], color=COLOURS[name], marker="o", markersize=4, label=name)
        norm_axes.plot(seen[50], color=COLOURS[name], marker="o", markersize=4, linestyle=":")
        loss_axes.plot(losses, color=COLOURS[name], label=name)
    floor = _loss_of_one_answer(policy, batch)
    loss_axes.axhline(floor, color=REFERENCE, linestyle="--", linewidth=1)
    said = "the best that one answer for all frames can do"
    loss_axes.annotate(said, (STEPS, floor - 0.02), ha="right", va="top", size=9, color="#5c677d")
    norm_axes.set(yscale="log", xticks=range(8))
    loss_axes.set_ylim(bottom=0)
    for figure, axes, file in ((norm_figure, norm_axes, "16_layers.svg"), (loss_figure, loss_axes, "16_loss.svg")):
        axes.legend(loc="center right" if file == "16_layers.svg" else "lower left")
        save(figure, out / file)


def _norms(policy: nn.Module) -> list[float]:
    return [float(nn.utils.clip_grad_norm_([layer.linear.weight], math.inf)) for layer in policy.head.layers]


def _loss_of_one_answer(policy: nn.Module, batch: dict[str, torch.Tensor]) -> float:
    """The loss of the best single chunk for all sixteen frames, by descent on that chunk alone."""
    target = policy.action_statistics.normalize(batch["action"])
    chunk = nn.Parameter(target.mean(dim=0, keepdim=True))
    optimizer = torch.optim.Adam([chunk], lr=3e-2)
    for _ in range(400):
        error = nn.functional.smooth_l1_loss(chunk.expand_as(target), target, beta=0.1, reduction="none").mean(dim=-1)
        is_step = ~batch["action_is_pad"]
        loss = (error * is_step).sum() / is_step.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()
