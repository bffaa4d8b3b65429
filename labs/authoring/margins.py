"""How near the comparisons of structural checks come to refusing a correct fix.

A run on many seeds finds a refusal that happens once in a hundred grades. A comparison whose margin varies shows it in
a few: by how many of its standard deviations it holds. So does one that uses much of its tolerance.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from labs.authoring.bench import Bench
from labs.authoring.chance import correct_fixes
from labs.grading import expectations
from labs.grading.catalog import Lab
from labs.grading.expectations import Expectation
from labs.grading.sandbox.launch import Launcher

FIRST_SEED = 2_000_000
DEVIATIONS = 5.0
"""A bound at least so many standard deviations away is not met by chance."""
TIMES_AWAY = 5.0
"""Nor is one from which every positive value is so many times away."""
TOLERANCE_USED = 0.3
"""The largest share of a tolerance that a correct fix should need."""
TIMES_TOLERANCE = 3.0
"""By how many tolerances two values that must differ should differ."""


@dataclass(frozen=True)
class NearBound:
    """A comparison that correct fixes meet by a small margin."""

    check: str
    line: int
    """In the lab's checks.py."""
    words: dict[str, str]
    """What was measured, by correct fix."""


@dataclass(frozen=True)
class _Bounded:
    """A value, and the end of its range that is nearer."""

    value: float
    end: float
    margin: float
    """How far it is inside of the range; negative outside of it."""
    words: str
    """The range."""

    @property
    def factor(self) -> float:
        """The margin on a logarithmic scale, for values that vary by orders of magnitude; 0 where it has none."""
        return abs(math.log(self.value / self.end)) if self.value > 0 < self.end and self.margin > 0 else 0.0


@dataclass
class _Seen:
    """What one comparison measured on all seeds."""

    what: str = ""
    shares: list[float] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)
    bounded: list[_Bounded] = field(default_factory=list)


Place = tuple[str, int, str]
"""A check, a line of its file, and the method of `expect`."""


def near_bounds(
    lab: Lab, launcher: Launcher, seeds: int, say: Callable[[str], None] = lambda _: None
) -> list[NearBound]:
    """Run the structural checks of every correct fix; the comparisons that hold by a small margin.

    A bound that a value reaches exactly, such as a limit of memory that is used up, holds by design and is left out.
    Raises BenchError, OSError.
    """
    bench = Bench(lab, launcher)
    found: dict[Place, dict[str, str]] = defaultdict(dict)
    for name, files in correct_fixes(lab).items():
        with _noted(str(lab.folder / "checks.py")) as noted:
            bench.over_seeds(files, range(FIRST_SEED, FIRST_SEED + seeds), partial(_say_step, say, name))
        for place, seen in noted.items():
            words = _judged(seen)
            if words is not None:
                found[place][name] = f"{seen.what.rstrip(',:')}: {words}"
    return [NearBound(check, line, words) for (check, line, _), words in found.items()]


def _say_step(say: Callable[[str], None], name: str, at: str) -> None:
    say(f"{name}: {at} seeds")


def _judged(seen: _Seen) -> str | None:
    if seen.shares and max(seen.shares) > TOLERANCE_USED:
        return f"needs {max(seen.shares):.2g} of its tolerance"
    if seen.differences and min(seen.differences) < TIMES_TOLERANCE:
        return f"must differ, and does so by {min(seen.differences):.2g} of the tolerance"
    if len(seen.bounded) < 2 or any(one.margin == 0.0 for one in seen.bounded):
        return None
    away = max(_deviations([one.margin for one in seen.bounded]), _deviations([one.factor for one in seen.bounded]))
    if away >= DEVIATIONS or min(one.factor for one in seen.bounded) >= math.log(TIMES_AWAY):
        return None
    nearest = min(seen.bounded, key=lambda one: one.margin)
    return f"came to {nearest.value:.4g}, expected {nearest.words}; on average {away:.1f} standard deviations away"


def _deviations(margins: list[float]) -> float:
    """The mean margin in standard deviations."""
    deviation = statistics.stdev(margins)
    return statistics.mean(margins) / deviation if deviation else math.inf


@contextlib.contextmanager
def _noted(checks: str) -> Iterator[dict[Place, _Seen]]:
    """While it is open, `expect` notes the margins of every comparison that is made from the file `checks`."""
    noted: dict[Place, _Seen] = defaultdict(_Seen)

    class Noting(Expectation):
        """An expectation that notes how near it comes to its bound."""

        def close_to(self, expected: Any, *, rtol: float = 1e-5, atol: float = 1e-6) -> Expectation:
            self._note("close_to").shares.append(tolerances_apart(self._measured, expected, rtol, atol))
            return super().close_to(expected, rtol=rtol, atol=atol)

        def differs_from(self, other: Any, *, rtol: float = 1e-5, atol: float = 1e-6) -> Expectation:
            self._note("differs_from").differences.append(tolerances_apart(self._measured, other, rtol, atol))
            return super().differs_from(other, rtol=rtol, atol=atol)

        def below(self, bound: float) -> Expectation:
            self._note_bounds("below", high=bound, words=f"< {bound:.4g}")
            return super().below(bound)

        def above(self, bound: float) -> Expectation:
            self._note_bounds("above", low=bound, words=f"> {bound:.4g}")
            return super().above(bound)

        def at_most(self, bound: float) -> Expectation:
            self._note_bounds("at_most", high=bound, words=f"≤ {bound:.4g}")
            return super().at_most(bound)

        def at_least(self, bound: float) -> Expectation:
            self._note_bounds("at_least", low=bound, words=f"≥ {bound:.4g}")
            return super().at_least(bound)

        def between(self, low: float, high: float) -> Expectation:
            self._note_bounds("between", low=low, high=high, words=f"{low:.4g} … {high:.4g}")
            return super().between(low, high)

        def _note(self, method: str) -> _Seen:
            check, line = _place(checks)
            seen = noted[check, line, method]
            seen.what = self._what
            return seen

        def _note_bounds(self, method: str, words: str, low: float | None = None, high: float | None = None) -> None:
            seen, values = self._note(method), _flat(self._measured)
            if values is None or values.numel() == 0:
                return
            least, most = float(values.min()), float(values.max())
            ends = [_Bounded(least, low, least - low, words)] if low is not None else []
            ends += [_Bounded(most, high, high - most, words)] if high is not None else []
            seen.bounded.append(min(ends, key=lambda end: end.margin))

    usual = expectations.Expectation
    expectations.Expectation = Noting  # type: ignore[misc]  # `expect` makes what this name stands for
    try:
        yield noted
    finally:
        expectations.Expectation = usual  # type: ignore[misc]


def _place(checks: str) -> tuple[str, int]:
    """The check that runs, and the line in its file."""
    frame, found = sys._getframe(1), ("", 0)
    while frame is not None:
        if frame.f_code.co_filename == checks:
            found = (frame.f_code.co_name, found[1] or frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return found


def tolerances_apart(one: Any, other: Any, rtol: float, atol: float) -> float:
    """The largest difference of two values, item by item, as a multiple of `atol + rtol * |other|`.

    0 where nothing can be compared, such as text, values without tolerance, or other shapes.
    """
    if isinstance(other, dict) and isinstance(one, dict):
        pairs = [(one.get(name), item) for name, item in other.items()]
    elif isinstance(other, (list, tuple)) and isinstance(one, (list, tuple)):
        pairs = list(zip(one, other, strict=False))
    else:
        return _apart(_flat(one), _flat(other), rtol, atol)
    return max((tolerances_apart(first, second, rtol, atol) for first, second in pairs), default=0.0)


def _apart(one: torch.Tensor | None, other: torch.Tensor | None, rtol: float, atol: float) -> float:
    if one is None or other is None or one.shape != other.shape:
        return 0.0
    difference, tolerance = (one - other).abs(), atol + rtol * other.abs()
    counts = difference.isfinite() & (tolerance > 0)
    shares = difference[counts] / tolerance[counts]
    return float(shares.max()) if shares.numel() else 0.0


def _flat(value: Any) -> torch.Tensor | None:
    """The numbers of a tensor, a list or a scalar; None for anything else."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(torch.complex128 if value.is_complex() else torch.float64).reshape(-1)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return torch.tensor([float(value)], dtype=torch.float64)
    if isinstance(value, (list, tuple)) and all(type(item) in (int, float) for item in value):
        return torch.tensor([float(item) for item in value], dtype=torch.float64)
    return None
