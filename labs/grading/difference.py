"""How two values differ, in words: the shape, the largest difference, the first place that differs. A pure function."""

from __future__ import annotations

import math
from typing import Any

import torch

from labs.grading.submission_text import shorten


def difference(
    measured: Any, expected: Any, *, rtol: float, atol: float, same_dtype: bool = False, where: str = ""
) -> str | None:
    """A phrase that completes "the result …", or None if the two agree.

    NaN agrees with nothing but NaN, infinities only with themselves. Never raises, whatever `measured` is.
    """
    at = f" at {where}" if where else ""
    if isinstance(expected, torch.Tensor):
        if not isinstance(measured, torch.Tensor):
            if expected.dim() == 0 and _is_number(measured):
                return difference(measured, expected.item(), rtol=rtol, atol=atol, where=where)
            return f"is {describe(measured)}{at}, not a tensor of shape {list(expected.shape)}"
        return _tensors(measured.detach(), expected.detach(), rtol, atol, same_dtype, at)
    if (
        isinstance(measured, torch.Tensor)
        and measured.dim() == 0
        and _is_number(expected)
        and not measured.is_complex()
    ):
        measured = measured.item()
    if isinstance(expected, dict):
        return _dicts(measured, expected, rtol, atol, same_dtype, where)
    if isinstance(expected, (list, tuple)):
        return _sequences(measured, expected, rtol, atol, same_dtype, where)
    if _is_number(expected) and _is_number(measured):
        return None if _close(measured, expected, rtol, atol) else _is_not(measured, expected, at)
    if type(measured) is type(expected) and measured == expected:
        return None
    return f"is {describe(measured)}{at}, not {describe(expected)}"


def describe(value: Any) -> str:
    """A value in a few words: a tensor by its dtype and shape, a long text by its beginning."""
    if isinstance(value, torch.Tensor):
        if value.dim() == 0:
            return describe(value.item())
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {list(value.shape)}"
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (str, int)):
        return shorten(repr(value), 80)
    if isinstance(value, (dict, list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return shorten(str(value), 80)


def _tensors(
    measured: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float, same_dtype: bool, at: str
) -> str | None:
    if measured.shape != expected.shape:
        return f"has shape {list(measured.shape)}{at}, not {list(expected.shape)}"
    if same_dtype and measured.dtype != expected.dtype:
        return f"has dtype {measured.dtype}{at}, not {expected.dtype}"
    if measured.is_complex() != expected.is_complex():
        return f"has dtype {measured.dtype}{at}, not {expected.dtype}"
    wide = torch.complex128 if measured.is_complex() else torch.float64
    exact_integers = not (measured.is_floating_point() or expected.is_floating_point() or measured.is_complex())
    if exact_integers and rtol == atol == 0.0:
        wide = torch.int64  # float64 would round token ids and counts beyond 2**53
    a, b = measured.to(wide), expected.to(wide)
    same = torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True) if wide != torch.int64 else a == b
    if bool(same.all()):
        return None
    bad = ~same
    first = [int(i) for i in bad.nonzero()[0]]
    gap = (a - b).abs().to(torch.float64)[bad]
    largest = float(gap.max()) if bool(gap.isfinite().all()) else math.nan
    if a.numel() == 1:
        told = _is_not(a.item(), b.item(), at)
        return told + (f" (off by {largest:.3g})" if math.isfinite(largest) else "")
    size = f"by up to {largest:.3g}" if math.isfinite(largest) else "(some values are not finite)"
    place = "{} at {}: {}, not {}".format(at, first, *_apart(a[tuple(first)].item(), b[tuple(first)].item()))
    return f"differs in {int(bad.sum())} of {bad.numel()} values {size}; first{place}"


def _is_not(measured: complex, expected: complex, at: str) -> str:
    one, other = _apart(measured, expected)
    return f"is {one}{at}, not {other}"


def _apart(measured: complex, expected: complex) -> tuple[str, str]:
    """Two numbers with as many digits as show that they differ."""
    for digits in (6, 9, 17):
        told = tuple(f"{one:.{digits}g}" if isinstance(one, float) else describe(one) for one in (measured, expected))
        if told[0] != told[1]:
            break
    return told[0], told[1]


def _dicts(
    measured: Any, expected: dict[Any, Any], rtol: float, atol: float, same_dtype: bool, where: str
) -> str | None:
    at = f" at {where}" if where else ""
    if not isinstance(measured, dict):
        return f"is {describe(measured)}{at}, not a dict"
    missing = [key for key in expected if key not in measured]
    extra = [key for key in measured if key not in expected]
    if missing or extra:
        parts = [f"lacks {missing[0]!r}"] if missing else []
        parts += [f"has {shorten(repr(extra[0]), 60)} too many"] if extra else []
        return " and ".join(parts) + at
    for key, item in expected.items():
        inner = f"{where}[{key!r}]"
        fault = difference(measured[key], item, rtol=rtol, atol=atol, same_dtype=same_dtype, where=inner)
        if fault is not None:
            return fault
    return None


def _sequences(measured: Any, expected: Any, rtol: float, atol: float, same_dtype: bool, where: str) -> str | None:
    at = f" at {where}" if where else ""
    if not isinstance(measured, (list, tuple)):
        return f"is {describe(measured)}{at}, not a list of {len(expected)}"
    if len(measured) != len(expected):
        return f"has length {len(measured)}{at}, not {len(expected)}"
    for index, (one, other) in enumerate(zip(measured, expected, strict=True)):
        fault = difference(one, other, rtol=rtol, atol=atol, same_dtype=same_dtype, where=f"{where}[{index}]")
        if fault is not None:
            return fault
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _close(measured: float, expected: float, rtol: float, atol: float) -> bool:
    if isinstance(measured, int) and isinstance(expected, int) and rtol == atol == 0.0:
        return measured == expected
    try:
        a, b = float(measured), float(expected)
    except OverflowError:
        return False
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or (math.isfinite(a) and math.isfinite(b) and abs(a - b) <= atol + rtol * abs(b))
