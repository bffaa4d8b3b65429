"""Tables and pictures of the built pages: each scrolls in itself and can be focused, and pictures have captions.

On a phone, a plot is its narrow variant, and the two panels of a film are one below the other.

A table with more than two columns that a phone is too narrow for gets the class `stacked`: there, each row is a list of
its cells, each with its column's name, so that no column is off the screen. A table whose names in code would make it
wider than a desk's column gets the class `wraps`: there, they may break.
"""

from __future__ import annotations

import functools
import html as entities
import re
import struct
from collections.abc import Sequence
from pathlib import Path

from _language import say
from rich.cells import cell_len  # a Korean letter is as wide as two Latin ones

_PICTURE = re.compile(r"<p>\s*(<img [^>]*?alt=\"(?P<alt>[^\"]*)\"[^>]*>)\s*</p>")
_IN_FIGURE = re.compile(r"(<figure>\s*)(?:<p>)?(<img [^>]*>)(?:</p>)?")
_TABLE = re.compile(r"<table>(.*?)</table>", re.DOTALL)
_ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<(?P<kind>t[hd])(?P<attributes>[^>]*)>(?P<content>.*?)</t[hd]>", re.DOTALL)
_HEADER = re.compile(r"(<th[^>]*>)([^<]*)(</th>)")
_INSIDE_A_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""Where a name such as `DebugUnderflowOverflow` may break."""
_CODE = re.compile(r"<code[^>]*>.*?</code>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_PHONE_WORDS, _PHONE_CELLS = 39, 56
"""Letters of a phone's line: what the longest words of the columns may have, with three beside each, and what their
longest cells may have."""
_DESK, _BETWEEN = 84, 4
"""Letters of a desk's line, and what the space beside a column is as wide as."""
_SHORT = 22
"""Letters of a cell and its column's name that are on one line with others."""
_NARROWER = {"svg": 639, "png": 959}
"""Pixels of the widest screen that shows a picture's narrow variant, as in site.css."""
_GAP = 6
"""Pixels between the two panels of a film."""


def finished(html: str) -> str:
    """The page with its tables and pictures in regions that scroll."""
    html = _TABLE.sub(lambda found: _scrolling(_table(found[1]), say("Table")), html)
    html = _IN_FIGURE.sub(lambda found: found[1] + _scrolling(_for_phones(found[2]), say("Picture")), html)
    return _PICTURE.sub(_captioned, html)


def _for_phones(picture: str) -> str:
    """The picture, and what a phone shows for it: its narrow variant, or the panels of a film."""
    found = re.search(r'src="([^"]+)\.(svg|png)"', picture)
    if found is None:
        return picture + _panels(picture)
    narrow = f"{found[1]}_phone.{found[2]}"
    if narrow.rsplit("/", 1)[-1] not in _narrow_variants():
        return picture
    return f'<picture><source media="(max-width: {_NARROWER[found[2]]}px)" srcset="{narrow}">{picture}</picture>'


@functools.cache
def _narrow_variants() -> frozenset[str]:
    docs = Path(__file__).parent
    return frozenset(path.name for folder in ("lessons", "assets") for path in (docs / folder).rglob("*_phone.*"))


def _panels(picture: str) -> str:
    """A film's left and right panel: the same file twice, of which a phone shows one half each below the other."""
    found = re.search(r'src="([^"]+/([^/"]+\.gif))"', picture)
    if found is None:
        return ""
    wide, high = _size(found[2])
    half = (wide - _GAP) // 2
    said = re.search(r'alt="([^"]*)"', picture)
    shown = f'class="panel" src="{found[1]}" style="width: {half}px; aspect-ratio: {half} / {high}"'
    return f'<img alt="{said[1] if said else ""}" {shown}><img alt="" {shown}>'


@functools.cache
def _size(name: str) -> tuple[int, int]:
    """Width and height of a film in the lessons' figures."""
    film = next((Path(__file__).parent / "lessons").rglob(name))
    return struct.unpack("<HH", film.read_bytes()[6:10])


def _table(inside: str) -> str:
    rows = [[cell["content"] for cell in _CELL.finditer(row)] for row in _ROW.findall(inside)]
    names, columns = [_text(cell) for cell in rows[0]], list(zip(*rows, strict=False))
    words = [max(cell_len(word) for cell in column for word in _text(cell).split() or [""]) for column in columns]
    whole = [max(cell_len(_text(cell)) for cell in column) for column in columns]
    fixed = [
        max(cell_len(name), *(cell_len(word) for cell in column[1:] for word in _unbroken(cell)))
        for name, column in zip(names, columns, strict=False)
    ]
    classes = ["data"]
    if len(columns) > 2 and (sum(words) + 3 * len(columns) > _PHONE_WORDS or sum(whole) > _PHONE_CELLS):
        classes.append("stacked")
        inside = _ROW.sub(lambda row: _labelled(row[0], names), inside)
    if sum(fixed) + _BETWEEN * len(columns) > _DESK:
        classes.append("wraps")
        inside = _HEADER.sub(lambda cell: cell[1] + _INSIDE_A_WORD.sub("<wbr>", cell[2]) + cell[3], inside)
    return f'<table class="{" ".join(classes)}">{inside}</table>'


def _labelled(row: str, names: Sequence[str]) -> str:
    """The row with each cell's column as the attribute `data-label`; a short cell, but for the first, is marked."""
    at = iter(range(len(names)))

    def labelled(cell: re.Match[str]) -> str:
        column = next(at)
        if cell["kind"] == "th":
            return cell[0]
        short = column > 0 and cell_len(names[column]) + cell_len(_text(cell["content"])) <= _SHORT
        marks = (' class="short"' if short else "") + f' data-label="{entities.escape(names[column])}"'
        return f"<td{cell['attributes']}{marks}>{cell['content']}</td>"

    return _CELL.sub(labelled, row)


def _text(cell: str) -> str:
    return entities.unescape(_TAG.sub("", cell)).strip()


def _unbroken(cell: str) -> list[str]:
    """The pieces of a cell that a desk does not break: words, and code. It does not break a column's name either."""
    return [_text(code) for code in _CODE.findall(cell)] + (_text(_CODE.sub(" ", cell)).split() or [""])


def _captioned(picture: re.Match[str]) -> str:
    shown = _scrolling(_for_phones(picture[1]), say("Picture"))
    return f"<figure>{shown}<figcaption>{picture['alt']}</figcaption></figure>"


def _scrolling(element: str, kind: str) -> str:
    return f'<div class="scroll" role="group" tabindex="0" aria-label="{kind}">{element}</div>'
