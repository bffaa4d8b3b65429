"""Figures of lesson 14, from real runs: `lab dev figures 14`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations

SEED, STEPS, BATCH_SIZE = 14, 150, 32
BACKBONE = ("model.vision.", "model.language_model.")


def figures(out: Path) -> None:
    """The training loss of both, and the norm of the backbone's `.grad` before clipping."""
    torch.set_num_threads(1)
    loss_figure, loss_axes = new_figure("Training loss, the same seed", "step", "loss (running mean of 9)")
    title = "Gradient norm of the backbone, as clipping sees it"
    norm_figure, norm_axes = new_figure(title, "step", "norm (log scale)")
    frames = demonstrations(STEPS * BATCH_SIZE, SEED)
    for name, module in broken_and_fixed(find("14")).items():
        policy = module.build_policy(SEED)
        optimizer = module.build_optimizer(policy)
        losses, norms = [], []
        for batch in batches(frames, BATCH_SIZE, STEPS, seed=SEED):
            policy.train()
            optimizer.zero_grad()
            loss = policy(**batch).loss
            loss.backward()
            norms.append(_backbone_norm(policy))
            nn.utils.clip_grad_norm_(policy.parameters(), module.MAX_GRADIENT_NORM)
            optimizer.step()
            losses.append(float(loss.detach()))
        loss_axes.plot(smooth(losses), color=COLOURS[name], label=name)
        norm_axes.plot(norms, color=COLOURS[name], label=name)
    norm_axes.set_yscale("log")
    loss_axes.set_ylim(bottom=0)
    for figure, axes, file in ((loss_figure, loss_axes, "14_loss.svg"), (norm_figure, norm_axes, "14_backbone.svg")):
        axes.legend()
        save(figure, out / file)


def _backbone_norm(policy: nn.Module) -> float:
    norms: list[Tensor] = [p.grad.norm() for name, p in policy.named_parameters() if name.startswith(BACKBONE)]
    return float(torch.stack(norms).norm())
