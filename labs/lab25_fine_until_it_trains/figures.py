"""Figures of lesson 25, from real runs: `lab dev figures 25`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import debugkit
from labs.authoring.plots import BROKEN, COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import Batch, batches, demonstrations

LARGEST_HALF = 65504.0
SEED = 25


def figures(out: Path) -> None:
    """The largest value returned by each module call of a training pass, in order, compared with float16's limit."""
    torch.set_num_threads(1)
    batch = next(batches(demonstrations(32, SEED), 32, steps=1, seed=SEED))
    figure, axes = new_figure(
        "Largest number each module returns, one training pass under float16 autocast", "module calls, in order", ""
    )
    for name, module in broken_and_fixed(find("25")).items():
        policy = module.build_policy(0).train()
        torch.manual_seed(SEED)
        largest = _largest_outputs(policy, batch)
        finite = [value for value in largest if value < float("inf")]
        wide = 3.5 if name == "as shipped" else 1.8
        axes.plot(range(len(finite)), finite, color=COLOURS[name], label=name, linewidth=wide)
        if len(finite) < len(largest):
            axes.plot(len(finite), 6e5, "^", color=BROKEN, markersize=8)
            axes.annotate("Inf", (len(finite), 6e5), (len(finite) - 5.5, 4.3e5), color=BROKEN)
    axes.axhline(LARGEST_HALF, color=REFERENCE, linestyle="--", linewidth=1)
    axes.annotate("65504, the largest float16", (1, LARGEST_HALF * 1.35), color="#5c677d")
    axes.set(yscale="log", ylim=(0.3, 2e6))
    axes.legend(loc="center left")
    save(figure, out / "25_frames.svg")


def _largest_outputs(policy: Any, batch: Batch) -> list[float]:
    """The largest absolute output of each module call, up to the first that is not finite."""
    overflow = debugkit.detect_overflow(policy, batch, _half_loss, dtype=torch.float32, last=None)
    return [
        max(tensor.maximum for tensor in frame.tensors if tensor.name.startswith("output"))
        for frame in overflow.frames
        if any(tensor.name.startswith("output") for tensor in frame.tensors)
    ]


def _half_loss(policy: Any, batch: Batch) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.float16):
        return policy(**batch).loss
