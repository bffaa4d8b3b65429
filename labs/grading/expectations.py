"""`expect(measured).close_to(expected)`: comparisons that explain themselves.

Every method records what was measured and what was expected for the feedback, whether it holds or not. `measured` may
be anything: a wrong type is a failed expectation, never a crash of the check.
"""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

from labs.grading.difference import describe, difference
from labs.grading.grades import plain


@dataclass
class CheckRecord:
    """What the running check has measured so far. The last expectation is shown."""

    measured: Any = None
    expected: Any = None
    named: dict[str, Any] = field(default_factory=dict)


current_record: ContextVar[CheckRecord | None] = ContextVar("current_record", default=None)


class ExpectationError(AssertionError):
    """An expectation does not hold; the message is for the learner."""


def expect(measured: Any, what: str = "") -> Expectation:
    """Start a comparison. `what` names the measured value in the message ("the loss") and in the evidence."""
    return Expectation(measured, what)


class Expectation:
    """One measured value. Every method returns the object itself, so that calls can be chained."""

    def __init__(self, measured: Any, what: str) -> None:
        self._measured = measured
        self._what = what or "the result"
        record = current_record.get()
        if record is not None and what:
            record.named[what] = measured

    def close_to(self, expected: Any, *, rtol: float = 1e-5, atol: float = 1e-6) -> Expectation:
        """Equal up to `atol + rtol * |expected|`, in shape too; nested lists and dicts are compared item by item."""
        return self._judge(plain(expected), difference(self._measured, expected, rtol=rtol, atol=atol))

    def equals(self, expected: Any) -> Expectation:
        """Equal exactly, in shape and dtype too."""
        return self._judge(plain(expected), difference(self._measured, expected, rtol=0.0, atol=0.0, same_dtype=True))

    def below(self, bound: float) -> Expectation:
        """A number (or a tensor's every value) strictly below the bound."""
        return self._bounded(f"< {bound:.6g}", lambda value: value < bound)

    def above(self, bound: float) -> Expectation:
        """A number (or a tensor's every value) strictly above the bound."""
        return self._bounded(f"> {bound:.6g}", lambda value: value > bound)

    def at_most(self, bound: float) -> Expectation:
        """A number (or a tensor's every value) not above the bound."""
        return self._bounded(f"≤ {bound:.6g}", lambda value: value <= bound)

    def at_least(self, bound: float) -> Expectation:
        """A number (or a tensor's every value) not below the bound."""
        return self._bounded(f"≥ {bound:.6g}", lambda value: value >= bound)

    def between(self, low: float, high: float) -> Expectation:
        """A number (or a tensor's every value) in [low, high]."""
        return self._bounded(f"{low:.6g} … {high:.6g}", lambda value: (value >= low) & (value <= high))

    def finite(self) -> Expectation:
        """No NaN and no infinity, anywhere in it."""
        return self._bounded("finite numbers", _is_finite)

    def is_true(self) -> Expectation:
        """The bool True (or a bool tensor, all true)."""
        return self._judge(True, None if _truth(self._measured) is True else f"is {describe(self._measured)}, not true")

    def is_false(self) -> Expectation:
        """The bool False (or a bool tensor, all false)."""
        return self._judge(False, None if _falsehood(self._measured) else f"is {describe(self._measured)}, not false")

    def one_of(self, options: Collection[Any]) -> Expectation:
        """Equal to one of a few plain values."""
        held = any(type(self._measured) is type(option) and self._measured == option for option in options)
        wanted = ", ".join(map(repr, options))
        return self._judge(f"one of {wanted}", None if held else f"is {describe(self._measured)}, not one of {wanted}")

    def contains(self, item: Any) -> Expectation:
        """A list, dict or text with the item in it."""
        held = isinstance(self._measured, (list, tuple, dict, str)) and _contains(self._measured, item)
        return self._judge(
            f"something with {item!r} in it", None if held else f"has no {item!r}: {describe(self._measured)}"
        )

    def has_shape(self, *shape: int) -> Expectation:
        """A tensor of exactly this shape."""
        if not isinstance(self._measured, torch.Tensor):
            return self._judge(list(shape), f"is {describe(self._measured)}, not a tensor")
        found = tuple(self._measured.shape)
        fault = None if found == shape else f"has shape {list(found)}, not {list(shape)}"
        return self._judge(list(shape), fault, measured=list(found))

    def differs_from(self, other: Any, *, rtol: float = 1e-5, atol: float = 1e-6) -> Expectation:
        """A tensor or number of the same shape whose values differ by more than the tolerance. NaN does not count."""
        values, fault = _numbers(self._measured)
        form, _ = _numbers(other)
        if fault is None and values.shape != form.shape:
            fault = f"has shape {list(values.shape)}, not {list(form.shape)}"
        if fault is None and bool(values.isnan().any()):
            fault = "has NaN in it, which differs from every value"
        if fault is None and difference(self._measured, other, rtol=rtol, atol=atol) is None:
            fault = f"is equal to {describe(other)}, but should differ"
        return self._judge("a different value", fault)

    def _bounded(self, wanted: str, holds: Any) -> Expectation:
        values, fault = _numbers(self._measured)
        if fault is None and values.numel() == 0:
            fault = "is empty, so there is nothing to compare"
        if fault is None:
            good = holds(values)
            if not bool(good.all()):
                first = int((~good.reshape(-1)).nonzero()[0])
                fault = _out_of_bounds(values, first, int((~good).sum()), wanted)
        return self._judge(wanted, fault)

    def _judge(self, expected: Any, fault: str | None, measured: Any = None) -> Expectation:
        record = current_record.get()
        if record is not None:
            record.measured = plain(self._measured) if measured is None else measured
            record.expected = expected
        if fault is not None:
            # A name may be a clause, "the tower moves,", instead of a noun.
            is_sentence = self._what.endswith((",", ":"))
            raise ExpectationError(f"{self._what[:-1]}: this {fault}." if is_sentence else f"{self._what} {fault}.")
        return self


def _numbers(value: Any) -> tuple[torch.Tensor, str | None]:
    if isinstance(value, torch.Tensor) and not value.is_complex():
        # Integers stay exact up to 2**53, far beyond any count or token id.
        return value.detach().to(torch.float64), None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return torch.tensor(float(value), dtype=torch.float64), None
        except OverflowError:
            return torch.empty(0), "is an integer that is too large for a measurement"
    if isinstance(value, (list, tuple)) and value and all(type(item) in (int, float) for item in value):
        return torch.tensor([float(item) for item in value], dtype=torch.float64), None
    return torch.empty(0), f"is {describe(value)}, not a number"


def _is_finite(values: torch.Tensor) -> torch.Tensor:
    return values.isfinite()


def _out_of_bounds(values: torch.Tensor, first: int, count: int, wanted: str) -> str:
    flat = values.reshape(-1)
    if flat.numel() == 1:
        return f"is {flat[0].item():.6g}; expected {wanted}"
    index = [int(i) for i in torch.unravel_index(torch.tensor(first), values.shape)]
    bad = f"{count} of {flat.numel()} values that are not {wanted}"
    return f"has {bad}; the first, at {index}, is {flat[first].item():.6g}"


def _truth(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dtype == torch.bool and value.numel() > 0 and bool(value.all())
    return value is True


def _falsehood(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dtype == torch.bool and value.numel() > 0 and not bool(value.any())
    return value is False


def _contains(container: Any, item: Any) -> bool:
    if isinstance(container, str):
        return isinstance(item, str) and item in container
    return any(type(one) is type(item) and difference(one, item, rtol=0.0, atol=0.0) is None for one in container)
