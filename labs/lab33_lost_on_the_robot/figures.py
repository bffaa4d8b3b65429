"""Figures of lesson 33, from real runs: `lab dev figures 33`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import Batch, Frames, demonstrations, observation_batch

SEED, FRAMES, STEPS = 33, 32, 80
WIDTHS = (7, 8, 10, 12, 16, 20, 24, 32, 40, 48)


def figures(out: Path) -> None:
    """What padding does to the logits of a fresh policy, and to the answers of one that has memorised its frames."""
    torch.set_num_threads(1)
    moved, moved_axes = new_figure(
        "The same frames, more padding", "width of the instruction (tokens)", "logits moved (%)"
    )
    right, right_axes = new_figure("Memorised frames", "width of the instruction (tokens)", f"correct, of {FRAMES}")
    frames = demonstrations(FRAMES, SEED, horizon=1)
    for name, module in broken_and_fixed(find("33")).items():
        style = {"color": COLOURS[name], "label": name, "marker": "."}
        moved_axes.plot(WIDTHS, _movements(module, frames), **style)
        right_axes.plot(WIDTHS, _correct(module, frames), **style)
    for figure, axes, file in ((moved, moved_axes, "33_logits.svg"), (right, right_axes, "33_correct.svg")):
        axes.set_ylim(bottom=0)
        axes.legend()
        save(figure, out / file)


def _movements(module: ModuleType, frames: Frames) -> list[float]:
    policy = module.build_policy(SEED).eval()

    def logits(width: int) -> Tensor:
        return policy(**_batch(frames, width)).logits[:, 0].detach()

    narrow = logits(WIDTHS[0])
    return [float(100 * (logits(width) - narrow).norm() / narrow.norm()) for width in WIDTHS]


def _correct(module: ModuleType, frames: Frames) -> list[int]:
    policy, batch = module.build_policy(SEED), _batch(frames, WIDTHS[0])
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3, betas=(0.9, 0.95))
    for _ in range(STEPS):
        loss = module.training_loss(policy, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    policy.eval()
    wanted = policy.head.encode(policy.action_statistics.normalize(batch["action"][:, 0]))
    return [int((policy.generate(_batch(frames, width)) == wanted).all(dim=1).sum()) for width in WIDTHS]


def _batch(frames: Frames, width: int) -> Batch:
    batch = observation_batch(frames.image, frames.state, frames.instruction, length=width)
    return {**batch, "action": torch.from_numpy(frames.action)}
