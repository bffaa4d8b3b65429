"""The figure of lesson 42, from a real run: `lab dev figures 42`."""

from __future__ import annotations

from pathlib import Path

import torch

from labs.authoring.lab_module import load_module, load_variant
from labs.authoring.plots import BROKEN, FIXED, REFERENCE, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE, HORIZON = 42, 120, 32, 8


def figures(out: Path) -> None:
    """One trained policy: its error by the number of steps left, and the value of three losses."""
    torch.set_num_threads(1)
    lab = find("42")
    shipped = load_module(lab.folder / "policy.py").build_policy(SEED)
    frames = demonstrations(STEPS * BATCH_SIZE, SEED, horizon=HORIZON)
    fit(shipped, frames, steps=STEPS, seed=SEED, batch_size=BATCH_SIZE, learning_rate=2e-3)
    batch = next(batches(demonstrations(2048, SEED + 1, horizon=HORIZON), 2048, steps=1, seed=SEED))
    left = (~batch["action_is_pad"]).sum(dim=1)
    normalize = shipped.action_statistics.normalize
    error = (normalize(shipped.predict(batch)) - normalize(batch["action"])).abs().mean(dim=-1)  # (B, H)
    true = [float(error[left == n, :n].mean()) for n in range(1, HORIZON + 1)]

    figure, axes = new_figure("One policy, 2,048 new frames", "steps left in the episode", "normalised")
    axes.plot(range(1, HORIZON + 1), true, color=REFERENCE, linewidth=6, alpha=0.5, label="how far it is off")
    for name, module, colour, style in (
        ("the loss as shipped", load_module(lab.folder / "policy.py"), BROKEN, "-"),
        ("divided by the steps that exist", load_variant(lab, "forgot_the_joints"), BROKEN, "--"),
        ("fixed", load_module(lab.solution / "policy.py"), FIXED, "-"),
    ):
        policy = module.build_policy(SEED).eval()
        policy.load_state_dict(shipped.state_dict())
        with torch.no_grad():
            losses = [
                float(policy(**{key: value[left == n] for key, value in batch.items()}).loss)
                for n in range(1, HORIZON + 1)
            ]
        axes.plot(range(1, HORIZON + 1), losses, color=colour, linestyle=style, label=name)
    axes.set_ylim(bottom=0)
    axes.legend()
    save(figure, out / "42_loss.svg")
