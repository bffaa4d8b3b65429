"""A griffe extension: a docstring's doctest becomes a fenced block; Markdown would read `>>>` as three quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

# From a line that opens with `>>>` to the next blank line.
_DOCTEST = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class FencedDoctests(griffe.Extension):
    """Fences the doctests of every object whose page is built."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one object's docstring."""
        if obj.docstring:
            obj.docstring.value = _DOCTEST.sub(lambda found: f"```pycon\n{found.group(0)}\n```", obj.docstring.value)
