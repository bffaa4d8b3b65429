"""Figures of lesson 22, from real runs: `lab dev figures 22`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from labs.authoring.plots import BROKEN, FIXED, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find

SEED = 22


def figures(out: Path) -> None:
    """The derivative of the square root as the distance approaches zero, and the gradient after the chain rule."""
    torch.set_num_threads(1)
    modules = broken_and_fixed(find("22"))
    lengths = [10.0**-k for k in range(24)]
    figure, axes = new_figure("Backward through the distance, as the prediction comes closer", "distance", "")
    roots, chained = zip(*(_derivatives(modules["as shipped"], length) for length in lengths), strict=True)
    axes.plot(lengths, roots, color=BROKEN, marker="o", markersize=3, label="derivative of the root")
    axes.plot(lengths, chained, color=FIXED, marker="o", markersize=3, label="length of the distance's gradient")
    axes.axvspan(1e-24, 3e-23, color=REFERENCE, alpha=0.3)
    axes.annotate("the square is 0\nin float32", (4e-23, 1e8), size=9, color="#5c677d")
    axes.set(xscale="log", yscale="log", xlim=(1e-24, 3), ylim=(1e-2, 1e25))
    axes.legend(loc="upper right")
    save(figure, out / "22_root.svg")


def _derivatives(module: Any, length: float) -> tuple[float, float]:
    """At this distance: the derivative of the root alone, and the length of the gradient of the distance."""
    square = (torch.tensor([length, 0.0]).square().sum()).requires_grad_()
    square.sqrt().backward()
    predicted = torch.tensor([length, 0.0], requires_grad=True)
    module.distance(predicted, torch.zeros(2)).backward()
    return float(square.grad), float(predicted.grad.norm())
