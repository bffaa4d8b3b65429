"""A Korean line that fills its column keeps its last letter."""

from __future__ import annotations

from rich.text import Text


def count_cells() -> None:
    """Let rich measure the space at the end of a wrapped line in cells, as it does the line.

    It counts letters there. A line of wide letters then keeps its space, is too long by one cell, and ends in `…`
    instead of its last letter.
    """
    setattr(Text, Text.rstrip_end.__name__, _rstrip_end)


def _rstrip_end(text: Text, size: int) -> None:
    spaces = len(text.plain) - len(text.plain.rstrip())
    if (excess := min(spaces, text.cell_len - size)) > 0:
        text.right_crop(excess)
