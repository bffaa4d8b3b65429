"""Figures of lesson 54, from real runs: `lab dev figures 54`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from labs.authoring.plots import BROKEN, COLOURS, REFERENCE, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import Batch, batches, demonstrations

SEED, UPDATES, BATCH_SIZE = 54, 80, 32
STYLES = {1: "-", 4: "--", 16: ":"}
"""Line styles for the numbers of micro-batches."""


def figures(out: Path) -> None:
    """The learning rate of each update, planned and as used with 1, 4 and 16 micro-batches, and the loss."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "Detected call of `lr_scheduler", UserWarning)
    modules = broken_and_fixed(find("54"))
    shipped, fixed = modules["as shipped"], modules["fixed"]
    figure, axes = _figure_with_plan("Learning rate that each update uses, as shipped", shipped)
    for parts, style in STYLES.items():
        axes.plot(_rates(shipped, parts), style, color=BROKEN, marker=".", label=_described(parts))
    axes.legend()
    save(figure, out / "54_rates.svg")
    figure, axes = new_figure("Loss, from the same seed on the same frames", "update", "loss (running mean of 5)")
    for name, parts in (("as shipped", 4), ("as shipped", 16), ("fixed", 16)):
        losses = smooth(_losses(modules[name], parts), window=5)
        axes.plot(
            losses, STYLES[parts] if name != "fixed" else "-", color=COLOURS[name], label=f"{name}, {_described(parts)}"
        )
    axes.set_ylim(bottom=0)
    axes.legend()
    save(figure, out / "54_loss.svg")
    figure, axes = _figure_with_plan("A plan of 16 × 80 steps, with 16 micro-batches", fixed)
    for name, module, style in (("one step per micro-batch", shipped, ":"), ("one step per update", fixed, "-")):
        axes.plot(_rates(_with_longer_plan(module, 16), 16), style, color=BROKEN, marker=".", label=name)
    axes.legend()
    save(figure, out / "54_longer_plan.svg")


def _figure_with_plan(title: str, module: ModuleType) -> tuple[Any, Any]:
    figure, axes = new_figure(title, "update", "learning rate (× 0.001)")
    plan = [module.share_of_peak(update, UPDATES) for update in range(UPDATES)]
    axes.plot(plan, color=REFERENCE, linewidth=6, alpha=0.5, label="planned")
    return figure, axes


def _with_longer_plan(module: ModuleType, times: int) -> ModuleType:
    """The module with a schedule that is planned for so many times the updates."""
    build = module.build_scheduler
    module.build_scheduler = lambda optimizer, updates: build(optimizer, times * updates)
    return module


class _OneWeight(nn.Module):
    """Replaces a policy: the learning rate does not depend on what is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> SimpleNamespace:
        return SimpleNamespace(loss=(self.weight * x).square().mean())


def _rates(module: ModuleType, parts: int) -> list[float]:
    policy: Any = _OneWeight()
    rates: list[float] = []
    optimizer = module.build_optimizer(policy)
    optimizer.register_step_pre_hook(lambda stepping, *_: rates.append(stepping.param_groups[0]["lr"]))
    module.train(policy, optimizer, [{"x": torch.ones(1)}] * (UPDATES * parts), UPDATES, parts)
    return [1e3 * rate for rate in rates]


def _losses(module: ModuleType, parts: int) -> list[float]:
    policy = module.build_policy(SEED)
    log = module.train(policy, module.build_optimizer(policy), _stream(parts), UPDATES, parts)
    return [line.loss for line in log]


def _stream(parts: int) -> Iterator[Batch]:
    for batch in batches(demonstrations(UPDATES * BATCH_SIZE, SEED), BATCH_SIZE, UPDATES, SEED):
        batch["action_is_pad"][:] = False
        for rows in torch.arange(BATCH_SIZE).chunk(parts):
            yield {name: values[rows] for name, values in batch.items()}


def _described(parts: int) -> str:
    return "1 micro-batch" if parts == 1 else f"{parts} micro-batches"
