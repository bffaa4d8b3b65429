"""Prints what a submission prints, behind a gutter."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from labs.cli.console import out

GUTTER = "  │ "


class SubmissionOutput:
    """A stream that puts the gutter before every line, so that no line of a submission can pass for one of ours.

    The text must be clean. On a terminal a long line is folded here, because the terminal would fold it without gutter.
    """

    def __init__(self) -> None:
        self._width = max(8, out.width - cell_len(GUTTER)) if out.is_terminal else None
        self._column: int | None = None  # None: the current line is still empty
        with out.capture() as styled:
            out.print(Text(GUTTER, style="quiet"), end="")
        self._gutter = styled.get()

    def write(self, text: str) -> int:
        """Print a piece of the output."""
        first, *rest = text.split("\n")
        pieces = [self._continued(first)]
        for line in rest:
            pieces.append("\n" if self._column is not None else f"{self._gutter}\n")
            self._column = None
            pieces.append(self._continued(line))
        out.file.write("".join(pieces))
        return len(text)

    def flush(self) -> None:
        """Show what is printed so far."""
        out.file.flush()

    def finish(self) -> None:
        """End the last line."""
        if self._column is not None:
            self.write("\n")

    def _continued(self, line: str) -> str:
        """More of the current line, with the gutter where a line begins."""
        if not line:
            return ""
        start = self._gutter if self._column is None else ""
        column = self._column or 0
        if self._width is None or column + cell_len(line) <= self._width:
            self._column = column + cell_len(line)
            return start + line
        pieces = [start]
        for one in line:
            wide = cell_len(one)
            if column + wide > self._width:
                pieces.append(f"\n{self._gutter}")
                column = 0
            pieces.append(one)
            column += wide
        self._column = column
        return "".join(pieces)
