"""The figure of lesson 04, from real runs: `lab dev figures 04`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE, EVERY = 4, 120, 32, 10


def figures(out: Path) -> None:
    """Loss on new frames while training: of the policy itself, and of a policy that loads its checkpoint."""
    torch.set_num_threads(1)
    held_out = next(batches(demonstrations(256, SEED + 1), 256, steps=1, seed=SEED))
    figure, axes = new_figure("Loss on frames never seen", "step at which the checkpoint was saved", "loss")
    for name, module in broken_and_fixed(find("04")).items():
        steps, own, loaded = _train(module, held_out)
        axes.plot(steps, loaded, color=COLOURS[name], label=f"{name}: loaded elsewhere")
    axes.plot(steps, own, color=REFERENCE, linestyle="--", label="the policy that was trained, either way")
    axes.set_ylim(bottom=0)
    axes.legend()
    save(figure, out / "04_loaded.svg")


def _train(module: ModuleType, held_out: dict[str, Tensor]) -> tuple[list[int], list[float], list[float]]:
    policy = module.build_policy(SEED)
    steps: list[int] = []
    own: list[float] = []
    loaded: list[float] = []

    def look(step: int, _: float) -> None:
        if step % EVERY == 0:
            other = module.build_policy(SEED + 7_000)
            other.load_state_dict(policy.state_dict())
            steps.append(step)
            own.append(_loss(policy, held_out))
            loaded.append(_loss(other, held_out))

    frames = demonstrations(STEPS * BATCH_SIZE, SEED)
    fit(policy, frames, steps=STEPS, seed=SEED, batch_size=BATCH_SIZE, learning_rate=2e-3, on_step=look)
    return steps, own, loaded


@torch.no_grad()
def _loss(policy: nn.Module, batch: dict[str, Tensor]) -> float:
    return float(policy(**batch).loss)
