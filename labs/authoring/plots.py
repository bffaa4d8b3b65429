"""The style of the lessons' figures: one palette for broken and fixed, legible on light and dark pages and phones."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from labs.authoring.lab_module import load_module
from labs.authoring.phone_figures import lay_out_for_a_phone
from labs.grading.catalog import Lab

BROKEN, FIXED, REFERENCE = "#b3402a", "#4d6b2f", "#8a9294"  # the colours of docs/assets/site.css
REFERENCE_TEXT = "#5f686a"
"""The colour of a text about the reference, which is darker than its line."""
PHONE = "_phone"
"""The end of the name of a figure's narrow variant, which a page shows on a phone."""
_STYLE = {
    "figure.figsize": (6.4, 3.2),
    "figure.dpi": 100,
    "svg.hashsalt": "vla-debug-lab",  # the same figure gives the same bytes
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "figure.facecolor": "#fbfaf7",
    "axes.facecolor": "#fbfaf7",
}


def new_figure(title: str, x: str, y: str) -> tuple[Any, Any]:
    """An empty figure and its axes, in the lessons' style."""
    mpl.use("Agg")
    mpl.rcParams.update(_STYLE)
    figure, axes = plt.subplots(layout="constrained")
    axes.set(title=title, xlabel=x, ylabel=y)
    return figure, axes


def save(figure: Any, path: Path) -> None:
    """Write an SVG, and next to it the one for a phone, which changes the figure.

    Neither has a date, so that an unchanged figure is an unchanged file.
    """
    figure.savefig(path, metadata={"Date": None})
    lay_out_for_a_phone(figure)
    figure.savefig(path.with_stem(f"{path.stem}{PHONE}"), metadata={"Date": None})
    plt.close(figure)


def smooth(values: list[float], window: int = 9) -> list[float]:
    """The running mean over the last `window` values."""
    return [sum(values[max(0, i - window + 1) : i + 1]) / min(i + 1, window) for i in range(len(values))]


def broken_and_fixed(lab: Lab) -> dict[str, ModuleType]:
    """The lab's policy.py as shipped and as solved, by the names the figures use."""
    return {"as shipped": load_module(lab.folder / "policy.py"), "fixed": load_module(lab.solution / "policy.py")}


COLOURS = {"as shipped": BROKEN, "fixed": FIXED}
