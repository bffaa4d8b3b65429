"""Tables and pictures of the built pages: each scrolls in itself and can be focused, and pictures have captions."""

from __future__ import annotations

import re

from _language import say

_PICTURE = re.compile(r"<p>\s*(<img [^>]*?alt=\"(?P<alt>[^\"]*)\"[^>]*>)\s*</p>")
_IN_FIGURE = re.compile(r"(<figure>\s*)(?:<p>)?(<img [^>]*>)(?:</p>)?")
_TABLE = re.compile(r"<table>(.*?)</table>", re.DOTALL)


def finished(html: str) -> str:
    """The page with its tables and pictures in regions that scroll."""
    html = _TABLE.sub(lambda found: _scrolling(f'<table class="data">{found[1]}</table>', say("Table")), html)
    html = _IN_FIGURE.sub(lambda found: found[1] + _scrolling(found[2], say("Picture")), html)
    return _PICTURE.sub(_captioned, html)


def _captioned(picture: re.Match[str]) -> str:
    return f"<figure>{_scrolling(picture[1], say('Picture'))}<figcaption>{picture['alt']}</figcaption></figure>"


def _scrolling(element: str, kind: str) -> str:
    return f'<div class="scroll" role="group" tabindex="0" aria-label="{kind}">{element}</div>'
