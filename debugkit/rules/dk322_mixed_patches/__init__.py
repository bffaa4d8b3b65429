"""Rows of a `reshape` are taken for patches, but each holds pixels of several places of the image.

## What it finds
Images (B, C, H, W) that become a sequence in which each row holds exactly as many values as a square patch, each value
of the image is in one row, and the rows are not patches: their pixels come from several places, or from some channels
only.

## Why it hurts
All shapes are correct, every parameter gets a gradient and another image gives another output, so nothing shows it.
But pretrained weights expect the pixels of one place, and so does the position that is added to each row. A policy with
such a tower is close to one with a covered camera.

## Evidence
How many rows were examined, how many of them are no patch, how many values each holds, the side of the square patch of
that size, and on how many such squares the pixels of one row are at most. The line is the one that made the rows.

## Fix
Bring the axes into the order (B, rows, columns, C, p, p) with `permute`, then reshape. Or use a convolution whose
stride is its kernel, or `F.unfold(images, p, stride=p).transpose(1, 2)`.

## When it stays silent
- Patches in any order and of any form that is a rectangle: convolutions, unfold and permute, rows or columns of the
  image, merged or shuffled patches, images rolled or flipped, pixels as tokens.
- Patches of one channel each that are squares, or lines of pixels.
- Rows that overlap or leave pixels out: convolutions with padding, pooling, resized images, towers of windows.
- Sequences with the channels before the tokens.
- Images with the channels last, videos, integer images, and images that the model reads without a gradient are not
  examined.

## Cost
One forward in eval mode, and gradients of eight rows with respect to the pixels.

## Lesson
[Lab 07](../../lessons/shapes/07_lens_cap_on.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import entry_name, module_name


@dataclass(frozen=True, slots=True)
class TokenRows:
    """The rows of one sequence that divide the values of an image among them."""

    path: str
    """Path of the images in the batch."""
    module: str
    """The first module that gets the sequence or returns it."""
    rows: int
    values: int
    """How many values of the image each row holds."""
    side: int
    """The side of a square patch with as many values in all channels."""
    examined: int
    no_patch: int
    """How many of the examined rows are neither a rectangle in all channels nor a square or a line in some."""
    squares: int
    """On how many squares of this side the pixels of one examined row are, at most."""
    of_squares: int
    at: SourceLine | None
    """The line that made the rows."""


@measured_by(".measure:pixels_of_the_rows", cost=2, requires=("batch",))
@dataclass(frozen=True, slots=True)
class PixelsOfRows:
    """For each entry with images, the first sequence that divides their values."""

    sequences: tuple[TokenRows, ...]


@rule(
    "DK322",
    name="mixed-patches",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("check", "call"),
    needs=(PixelsOfRows,),
)
def judge(seen: PixelsOfRows, context: Context) -> Iterator[Finding]:
    for rows in seen.sequences:
        if 2 * rows.no_patch < rows.examined:
            continue
        size = f"{rows.side} × {rows.side}"
        yield context.finding(
            f"The {rows.rows:,} rows of {entry_name(rows.path)} at {module_name(rows.module)} have the size of patches "
            f"of {size} pixels and are none: the pixels of one row are on {rows.squares:,} of the {rows.of_squares:,} "
            "squares of that size.",
            module=rows.module,
            at=rows.at,
            input=rows.path,
            evidence={
                "rows": rows.rows,
                "values_per_row": rows.values,
                "side": rows.side,
                "examined": rows.examined,
                "no_patch": rows.no_patch,
                "threshold": rows.examined / 2,
                "squares_of_one_row": rows.squares,
            },
            fix="Bring the axes into the order (B, rows, columns, C, p, p) with `permute` before the `reshape`.",
        )
