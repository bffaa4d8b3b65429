"""The narrow variant of a figure, for a phone: the same artists in 300 pixels, and no text below 11 of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.text import Text
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedFormatter, Formatter, FuncFormatter, LogFormatter

WIDTH, SMALLEST = 300, 11
"""Points, each a pixel on a phone of 360 pixels: of the figure, and of its smallest text."""
_PANEL, _PICTURE, _LINE, _HANDLE, _NARROW = 185, 150, 1.35, 44, 60
"""Points: of a panel with its tick labels, of one without, of a line of text of size 1, of a legend's handle, and of a
text that must not touch the next one."""
_EDGE = 5
"""Pixels between a text that was moved and the edge of the figure."""
_FORMULA, _EXPONENT = "\\mathdefault{", re.compile(r"\^\{(-?\d+)\}")
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def lay_out_for_a_phone(figure: Figure) -> None:
    """Change the figure: panels one below the other, long texts wrapped, labels above and legends below the axes."""
    panels = list(figure.axes)
    for text in figure.findobj(Text):
        text.set_fontsize(max(text.get_fontsize(), SMALLEST))
    title, lines = figure.get_suptitle(), 0.0
    if not title:
        title = panels[0].get_title(loc="left")
        panels[0].set_title("", loc="left")
    pictures = len(panels) > 1 and not any(axes.get_xticks().size for axes in panels)
    beside = 2 if pictures else 1  # pictures have no text that needs the width
    grid = GridSpec((len(panels) + beside - 1) // beside, beside, figure=figure)
    for at, axes in enumerate(panels):
        axes.set_subplotspec(grid[at])
        _whole_exponents(axes)
        for text in axes.texts:
            text.set(text=_wrapped(text.get_text(), 0.6 * WIDTH), in_layout=False)
        lines += _label_above(axes)
        axes.set_xlabel(_wrapped(axes.get_xlabel(), WIDTH - 60))
        lines += axes.get_xlabel().count("\n")
    title = _wrapped(title, WIDTH - 8, 12)
    figure.suptitle(title, x=4 / WIDTH, ha="left", size=12)
    lines += _legend_below(figure, panels) + (title.count("\n") + 1.2) * 12 / SMALLEST
    high = grid.nrows * (_PICTURE if pictures else _PANEL) + lines * SMALLEST * _LINE
    figure.set_size_inches(WIDTH / 72, high / 72)
    figure.draw_without_rendering()
    for axes in panels:
        _names_apart(axes)
        _texts_apart(axes.texts)
        for text in list(axes.texts):
            _into_the_figure(figure, text)


def _wrapped(text: str, width: float, size: float = SMALLEST) -> str:
    """The text in lines that are no longer than the width."""
    lines: list[str] = []
    for line in text.splitlines():
        lines.append("")
        for word in line.split():
            longer = f"{lines[-1]} {word}".strip()
            if lines[-1] and _width(longer, size) > width:
                lines.append(word)
            else:
                lines[-1] = longer
    return "\n".join(lines)


def _width(text: str, size: float = SMALLEST) -> float:
    return float(TextPath((0, 0), text, size=size).get_extents().width)


def _label_above(axes: Axes) -> float:
    """The y axis' label as a line above the axes, below their title; how many lines more there are."""
    label, title = axes.get_ylabel(), axes.get_title(loc="left") or axes.get_title()
    axes.set_ylabel("")
    both = "\n".join(filter(None, (title, _wrapped(label, WIDTH - 50))))
    axes.set_title("")
    axes.set_title(both, loc="left", size=SMALLEST)
    return both.count("\n") + 1 if both else 0


def _names_apart(axes: Axes) -> None:
    """Turn the names below the axes where two of them would touch."""
    names = [name for name in axes.get_xticklabels() if name.get_text() and name.get_visible()]
    boxes = sorted((name.get_window_extent() for name in names), key=lambda box: box.x0)
    if any(left.x1 + 2 > right.x0 for left, right in itertools.pairwise(boxes)):
        axes.tick_params("x", rotation=35)
        for name in axes.get_xticklabels():
            name.set(ha="right", rotation_mode="anchor")


def _whole_exponents(axes: Axes) -> None:
    """Powers of ten whose exponents are letters of the text's size."""
    for axis in (axes.xaxis, axes.yaxis):
        for ticker in (axis.major, axis.minor):
            if isinstance(old := ticker.formatter, LogFormatter | FixedFormatter | FuncFormatter):
                ticker.formatter = _Powers(old)


class _Powers(Formatter):
    """What the other formatter says, without the small letters of a formula."""

    def __init__(self, other: Formatter) -> None:
        self._other = other

    def set_locs(self, locs: Any) -> None:
        self._other.set_locs(locs)

    def __call__(self, x: float, pos: int | None = None) -> str:
        label = str(self._other(x, pos)).replace("$", "")
        if label.startswith(_FORMULA):
            label = label.removeprefix(_FORMULA).removesuffix("}")
        return _EXPONENT.sub(lambda power: power[1].translate(_SUPERSCRIPT), label.replace("\\times", "×"))


def _legend_below(figure: Figure, panels: Sequence[Axes]) -> float:
    """One legend of all panels below them, in as few rows as possible; how many lines it has."""
    old = [*figure.legends, *(legend for axes in panels if (legend := axes.get_legend()) is not None)]
    if not old:
        return 0
    for legend in old:
        legend.remove()
    entries = {
        _wrapped(label, WIDTH - _HANDLE - 8): handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    widest = max(map(_width, entries)) + _HANDLE
    columns = max(1, min(len(entries), int((WIDTH - 4) // widest)))
    look = {"fontsize": SMALLEST, "borderpad": 0.1, "columnspacing": 1}
    figure.legend(entries.values(), entries, loc="outside lower left", ncols=columns, **look)
    return sum(label.count("\n") + 1 for label in list(entries)[::columns]) + 0.3


def _texts_apart(texts: Sequence[Text]) -> None:
    """Break the lines of texts in the axes of which one is over another."""
    boxes = [text.get_window_extent() for text in texts]
    for text, box in zip(texts, boxes, strict=True):
        if any(box.overlaps(other) for other in boxes if other is not box):
            text.set_text(_wrapped(text.get_text(), _NARROW))


def _into_the_figure(figure: Figure, text: Text) -> None:
    """Put a text that ends outside the figure at its edge."""
    box, (wide, high) = text.get_window_extent(), figure.bbox.size
    if box.x0 < 0 or box.x1 > wide - _EDGE:
        left = max(_EDGE, min(box.x0, wide - box.width - _EDGE))
        look = {name: getattr(text, f"get_{name}")() for name in ("color", "size", "rotation")}
        figure.text(left / wide, box.y0 / high, text.get_text(), va="bottom", in_layout=False, **look)
        text.remove()
