"""Text from a submission, made safe to show.

A submission chooses its exception messages, its output, the names in a report and the strings that it returns. They end
up on a terminal, in a log, or in a JSON, JUnit or Gradescope document. Raw, they could clear the screen, reorder a
line, or draw a check mark that looks like the grader's. So it is cleaned where a result is made: `CheckResult`,
`Grade`, `SymptomRun`, the printed output, the report of `diagnose`, the lines of a diff, and the sentence for an error
(`labs.cli.failures.Failure`). The code that prints them does not have to.

A character that is not plainly visible becomes its Python escape, so that it can be seen: `\\x1b`, `\\u202e`. The only
control character that is kept is the newline; the code that lays out the text must indent the lines after it.
"""

from __future__ import annotations

import io
import math
import unicodedata
from typing import Any

LONGEST = 2000
"""Characters of one text that are kept."""
MOST_LINES = 24
"""Lines of one text that are kept."""

_MOST_COMBINING = 2
"""Combining marks kept on one character. No orthography needs more; a stack of them covers the lines around it."""
_CHECK_MARKS = "✓✔✅☑⍻🗸🗹🮱𐄂√⎷"
"""Only the grader draws a check mark. The last two are radicals, which look like one."""
_INVISIBLE = (
    *range(0xFE00, 0xFE10),  # variation selectors
    *range(0xE0100, 0xE01F0),
    *range(0x180B, 0x1810),  # Mongolian ones
    0x034F,  # combining grapheme joiner
    *(0x115F, 0x1160, 0x3164, 0xFFA0),  # Hangul fillers
    *(0x17B4, 0x17B5),  # Khmer inherent vowels
    0x2800,  # blank Braille pattern
)


def clean(text: str, longest: int = LONGEST, most_lines: int = MOST_LINES) -> str:
    """The text with nothing in it that a terminal obeys or a reader cannot see, and of limited length.

    Idempotent.
    """
    shown = _visible(text[: 4 * longest].replace("\r\n", "\n").replace("\r", "\n"))
    lines = shown.split("\n")
    if len(lines) > most_lines:
        rest = len(lines) - most_lines + 1
        shown = "\n".join([*lines[: most_lines - 1], f"… ({rest} more lines)"])
    return shorten(shown, longest)


def clean_data(value: Any) -> Any:
    """JSON data with every string in it cleaned, keys included; what JSON cannot hold becomes a string."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_data(item) for item in value]
    return clean(str(value))


def shorten(text: str, longest: int) -> str:
    """The text, or its beginning and an ellipsis, cut between two words if possible."""
    if len(text) <= longest:
        return text
    kept = text[: longest - 2]
    if not text[longest - 2].isspace():
        cut = max(kept.rfind(" "), kept.rfind("\n"))
        kept = kept[:cut] if cut >= longest // 2 else kept
    return f"{kept.rstrip()} …"


def hanging(text: str, indent: str) -> str:
    """The text with every line after the first indented, so that none of them can pass for a line of ours."""
    return text.replace("\n", f"\n{indent}")


class OutputCleaner:
    """Cleans what a submission prints, piece by piece. A carriage return starts a new line."""

    def __init__(self) -> None:
        self._newlines = io.IncrementalNewlineDecoder(None, translate=True)

    def feed(self, piece: str) -> str:
        """The next piece, cleaned."""
        return _visible(self._newlines.decode(piece))


def _visible(text: str) -> str:
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return _without_stacks(text.translate(_REPLACEMENTS))


def _without_stacks(text: str) -> str:
    """Drop the combining marks after the second of a run."""
    if not any(unicodedata.combining(one) for one in text):
        return text
    kept, run = [], 0
    for one in text:
        run = run + 1 if unicodedata.combining(one) else 0
        if run <= _MOST_COMBINING:
            kept.append(one)
    return "".join(kept)


class _Replacements(dict[int, str]):
    """What each character becomes; computed when it first occurs."""

    def __missing__(self, code: int) -> str:
        one = chr(code)
        category = unicodedata.category(one)
        if category == "Zs":
            shown = " "
        elif one.isprintable() and category != "Me":
            shown = one
        else:  # controls, marks that reorder or enclose, line separators, private and unassigned characters
            shown = escaped(one)
        self[code] = shown
        return shown


def escaped(text: str) -> str:
    """The text as Python escapes."""
    return text.encode("unicode_escape").decode("ascii")


_REPLACEMENTS = _Replacements({ord("\n"): "\n", ord("\t"): "    "})
_REPLACEMENTS |= {ord(one): escaped(one) for one in _CHECK_MARKS}
_REPLACEMENTS |= {code: escaped(chr(code)) for code in _INVISIBLE}
