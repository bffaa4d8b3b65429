"""What a check measured and what it expected, in words: differing entries by name, no tensor's numbers, no text twice.

Works on the recorded values and on the message of `expect`, whose forms it knows. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from debugkit.rule_text import NAMES, quoted
from labs.grading.submission_text import shorten

_LONGEST_VALUE = 300
_TENSOR = ["shape", "dtype", "first_values"]
"""The keys of a tensor, as `grades.plain` summarises it."""
_CUT = "…"
"""The key, and the first character of the item, that stand for what `grades.plain` has left out."""
_USUAL = r"(.+?)(?:: this)? is '?{0}'?(?:, not |; expected )'?{1}'?( \(off by \S+\))?\."
"""A message that says no more than the two values: `the loss is 1.8, not 2.1 (off by 0.3).`"""
_CLAUSE = re.compile(r"(.+): this is (False|True), not (?:false|true)\.")
_SUBJECT = re.compile(r"(.+?) (?:has length \d+|is .+ at \[.+\], not .+\.)", re.DOTALL)
_ONE_KEY = re.compile(r"\['([^']+)'\]")


@dataclass(frozen=True)
class Comparison:
    """The three texts of one failed expectation; `expected` is None where `measured` says all."""

    measured: str
    expected: str | None = None
    details: str = ""


def compare(measured: Any, expected: Any, message: str) -> Comparison:
    """The comparison that `message` states, as a reader understands it best."""
    clause = _CLAUSE.fullmatch(message)
    if clause is not None:
        holds = clause[2] == "True"
        return Comparison(f"{_answer(holds)} ({_uncapitalised(clause[1])})", _answer(not holds))
    subject = _SUBJECT.match(message)
    about = f" ({_uncapitalised(_bare(subject[1]))})" if subject is not None else ""
    names = _names(measured, expected) or _entries(measured, expected)
    if names is not None and about:
        return Comparison(f"{names[0]}{about}", names[1])
    texts = _told_apart(measured, expected)
    if message and (_is_array(measured) or _is_array(expected) or texts[0] == texts[1]):
        return Comparison(sentence(message))
    usual = re.fullmatch(_USUAL.format(*map(re.escape, texts)), message, re.IGNORECASE)
    if usual is not None:
        return Comparison(f"{texts[0]} ({_uncapitalised(usual[1])})", f"{texts[1]}{usual[2] or ''}")
    return Comparison(*texts, sentence(message))


def sentence(words: str) -> str:
    """A message of `expect` with a colon after what was measured, which may be a plural, and with a capital letter.

    It keeps a first letter that may begin a name from code.
    """
    for form, rewrite in _FORMS:
        found = form.fullmatch(words)
        if found is not None:
            words = rewrite(_bare(found[1]), *found.groups()[1:])
            break
    return f"{words[:1].upper()}{words[1:]}" if words.startswith(_BEGINNINGS) else words


def _bare(what: str) -> str:
    """What was measured; a clause comes with the words that refer to it."""
    return what.removesuffix(": this")


def _at(what: str, value: str, place: str, other: str) -> str:
    return f"{what}: {_ONE_KEY.sub(_in_backticks, place)} is {value}, not {other}."


def _in_backticks(key: re.Match[str]) -> str:
    return f"`{key[1]}`"


def _differs(what: str, count: str, of: str, how: str) -> str:
    return f"{what}: {count} of {of} values differ{'s' * (count == '1')} {how}"


def _bounds(what: str, count: str, of: str, bound: str, rest: str) -> str:
    return f"{what}: {count} of {of} values {'is' if count == '1' else 'are'} not {bound}; {rest}"


def _value_and_bound(what: str, value: str, bound: str) -> str:
    return f"{what}: {value}, expected {bound}"


def _same(what: str) -> str:
    return f"{what}: the same values, but they should differ."


_FORMS: tuple[tuple[re.Pattern[str], Callable[..., str]], ...] = (
    (re.compile(r"(.+?) differs in (\d+) of (\d+) values (.+)", re.DOTALL), _differs),
    (re.compile(r"(.+?) has (\d+) of (\d+) values that are not (.+?); (the first, .+)", re.DOTALL), _bounds),
    (re.compile(r"(.+?) is equal to an? \w+ tensor of shape .+, but should differ\.", re.DOTALL), _same),
    (re.compile(r"(.+?)(?:: this)? is (\S+); expected (.+)", re.DOTALL), _value_and_bound),
    (re.compile(r"(.+?) is (\S.*) at (\[.+\]), not (.+)\.", re.DOTALL), _at),
)
_BEGINNINGS = ("the ", "what ", "after ", "in ", "with ", "a ", "an ", "each ", "every ", "all ", "no ", "how ")


def _uncapitalised(words: str) -> str:
    return f"{words[:1].lower()}{words[1:]}" if words.startswith(("The ", "What ", "After ", "A ")) else words


def _answer(holds: bool) -> str:
    return "yes" if holds else "no"


def _names(measured: Any, expected: Any) -> tuple[str, str] | None:
    """The names that only one of two lists has."""
    if not (_is_names(measured) and _is_names(expected)):
        return None
    extra = [name for name in measured if name not in expected]
    missing = [name for name in expected if name not in measured]
    if not expected and extra:
        return quoted(extra), "none"
    parts = [f"missing: {quoted(missing)}"] if missing else []
    parts += [f"not expected: {quoted(extra)}"] if extra else []
    return ("; ".join(parts), f"{len(expected)} names") if parts else None


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and not item.startswith(_CUT) for item in value)


def _entries(measured: Any, expected: Any) -> tuple[str, str] | None:
    """The entries that differ between two long dicts of numbers with the same keys."""
    if not (_is_table(measured) and _is_table(expected) and list(measured) == list(expected)):
        return None
    differing = [name for name in measured if measured[name] != expected[name]]
    if not differing:
        return None
    shown = differing[:NAMES]
    rest = f" and {len(differing) - len(shown)} more" if len(differing) > len(shown) else ""
    texts = [_told_apart(measured[name], expected[name]) for name in shown]
    seen, wanted = (
        ", ".join(f"`{name}` {pair[side]}" for name, pair in zip(shown, texts, strict=True)) for side in (0, 1)
    )
    return seen + rest, wanted


def _is_table(value: Any) -> bool:
    flat = isinstance(value, dict) and len(value) > NAMES and _CUT not in value
    return flat and not any(isinstance(item, list | dict) for item in value.values())


def _is_array(value: Any) -> bool:
    """Whether it holds many numbers, which are hard to read: the message names the first that differs."""
    if isinstance(value, dict):
        return list(value) == _TENSOR or len(value) > 2 * NAMES or any(map(_is_array, value.values()))
    return isinstance(value, list) and (len(value) > 4 or any(isinstance(item, list | dict) for item in value))


def _told_apart(measured: Any, expected: Any) -> tuple[str, str]:
    """Both values as text, with as many digits as it takes to see a difference; equal texts if there is none."""
    for digits in (6, 9, 17):
        texts = _value(measured, digits), _value(expected, digits)
        if texts[0] != texts[1]:
            break
    return shorten(texts[0], _LONGEST_VALUE), shorten(texts[1], _LONGEST_VALUE)


def _value(value: Any, digits: int) -> str:
    """A measured value as Python would print it, with floats rounded. Text stays as it is."""
    if isinstance(value, str):
        return value
    return _literal(value, lambda number: f"{number:.{digits}g}")


def _literal(value: Any, rounded: Callable[[float], str]) -> str:
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, list):
        return f"[{', '.join(_literal(item, rounded) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_literal(item, rounded)}' for key, item in value.items())}}}"
    return repr(value)
