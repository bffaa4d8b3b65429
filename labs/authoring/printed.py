"""Compares what a page shows with what its code prints, on a processor that may round differently.

Text must be equal. So must a number without a decimal point or an exponent: it is a count, a shape or a line. Any other
number is a measurement, and may differ by one unit of its last shown digit (a value half-way between two digits is
rounded to either) or by `RELATIVE` of itself (a vector unit's width decides the order of a sum). Zero is only zero.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

RELATIVE = 1e-3
"""Measured on x86: no snippet differs by more than 1e-4 between scalar code, AVX2 and AVX-512."""

_NUMBER = re.compile(r"(?<![\w.])[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w|\.\d)")
_UNIT = re.compile(r"%| s\b|")


@dataclass(frozen=True)
class Tolerance:
    """How much a measurement may differ: by a share of itself, and a rate in whole percent by this many points.

    With `any_time`, a whole number of seconds may be any: it is how long a run took.
    """

    relative: float = RELATIVE
    points: int = 0
    any_time: bool = False


STRICT = Tolerance()


def difference(shown: str, printed: str, tolerance: Tolerance = STRICT) -> str | None:
    """The first line of `shown` that is not in its place in `printed`; None if all of them are there, together."""
    wanted, lines = shown.strip("\n").splitlines(), printed.splitlines()
    best: tuple[int, str] = (-1, "nothing was printed")
    for start in range(len(lines)):
        found = lines[start : start + len(wanted)]
        agree = _agreeing(wanted, found, tolerance)
        if agree == len(wanted):
            return None
        if agree > best[0]:
            there = found[agree] if agree < len(found) else "nothing more"
            best = agree, f"shown:   {wanted[agree]}\nprinted: {there}"
    return best[1]


def same_line(shown: str, printed: str, tolerance: Tolerance = STRICT) -> bool:
    """Whether two lines are equal but for measurements, each of which is within the tolerance."""
    numbers, others = _NUMBER.findall(shown), _NUMBER.findall(printed)
    if len(numbers) != len(others):
        return False
    units = [_UNIT.match(shown, found.end())[0] for found in _NUMBER.finditer(shown)]
    if not all(close(*pair, tolerance, unit=unit) for *pair, unit in zip(numbers, others, units, strict=True)):
        return False
    texts, between = _NUMBER.split(shown), _NUMBER.split(printed)
    if list(map(len, numbers)) != list(map(len, others)):  # a digit more moves what is aligned beside it
        texts, between = [text.strip(" ") for text in texts], [text.strip(" ") for text in between]
    return texts == between


def close(shown: str, printed: str, tolerance: Tolerance = STRICT, *, unit: str = "") -> bool:
    """Whether two numbers are equal within the tolerance; `unit` is `%`, ` s` or nothing."""
    if shown == printed or (unit == " s" and tolerance.any_time):
        return True
    if unit == "%" and not _is_measured(shown) and not _is_measured(printed):
        return abs(_value(shown) - _value(printed)) <= tolerance.points
    if not _is_measured(shown) or not _is_measured(printed):
        return False
    wanted, found = _value(shown), _value(printed)
    if (wanted == 0) != (found == 0):
        return False  # a page that shows 0 says that there is nothing, at any scale
    return abs(wanted - found) <= max(_last_digit(shown), tolerance.relative * abs(wanted)) * (1 + 1e-9)


def _agreeing(wanted: list[str], found: list[str], tolerance: Tolerance) -> int:
    """How many lines agree before the first that does not."""
    for count, (line, other) in enumerate(zip(wanted, found, strict=False)):
        if not same_line(line.rstrip(), other.rstrip(), tolerance):
            return count
    return min(len(wanted), len(found))


def _is_measured(number: str) -> bool:
    return "." in number or "e" in number.lower()


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _last_digit(number: str) -> float:
    """What one unit of the last shown digit is worth: 0.01 for 2.34, 0.1 for 1.2e+00."""
    mantissa, _, exponent = number.lower().partition("e")
    return math.pow(10, int(exponent or 0) - len(mantissa.partition(".")[2]))
