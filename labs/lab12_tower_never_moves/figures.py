"""Figures of lesson 12, from real runs: `lab dev figures 12`."""

from __future__ import annotations

from pathlib import Path

import torch

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE = 12, 150, 64
PARTS = ("vision", "projector", "language_model", "proprioception", "head")


def figures(out: Path) -> None:
    """The training loss of both, which hardly differs, and the gradient norm of each part, which does."""
    torch.set_num_threads(1)
    loss_title = "Training loss, the same seed: nothing to see"
    loss_figure, loss_axes = new_figure(loss_title, "step", "loss (running mean of 9)")
    norm_figure, norm_axes = new_figure("Gradient norm of each part, after one backward", "", "norm (log scale)")
    batch = next(batches(demonstrations(64, seed=SEED), 64, steps=1, seed=SEED))
    for offset, (name, module) in zip((-0.2, 0.2), broken_and_fixed(find("12")).items(), strict=True):
        policy = module.build_policy(SEED)
        policy(**batch).loss.backward()
        norms = [_norm(policy.get_submodule(part)) for part in PARTS]
        norm_axes.bar([i + offset for i in range(len(PARTS))], norms, width=0.38, color=COLOURS[name], label=name)
        if norms[0] == 0:
            norm_axes.annotate("no gradient", (offset, 2e-3), rotation=90, ha="center", va="bottom", c=COLOURS[name])
        policy = module.build_policy(SEED)
        losses = fit(policy, demonstrations(STEPS * BATCH_SIZE, SEED), steps=STEPS, seed=SEED, batch_size=BATCH_SIZE)
        loss_axes.plot(smooth(losses), color=COLOURS[name], label=name)
    labels = [part.replace("_", "\n") for part in PARTS]
    norm_axes.set(yscale="log", ylim=(1e-3, None), xticks=range(len(PARTS)), xticklabels=labels)
    loss_axes.set_ylim(bottom=0)
    for figure, axes, file in ((loss_figure, loss_axes, "12_loss.svg"), (norm_figure, norm_axes, "12_gradients.svg")):
        axes.legend()
        save(figure, out / file)


def _norm(part: torch.nn.Module) -> float:
    grads = [parameter.grad for parameter in part.parameters() if parameter.grad is not None]
    return float(torch.stack([grad.norm() for grad in grads]).norm()) if grads else 0.0
