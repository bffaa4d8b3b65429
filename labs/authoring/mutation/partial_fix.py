"""Fixes that apply on some calls only: the solution's version of a function on these, the starter's on the others.

Runs in the child, beside the submission, so it imports nothing but torch.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

Choose = Callable[[tuple[Any, ...], dict[str, Any]], bool]
EVERY = 10


def only_in_training(fixed: Any, broken: Any) -> Any:
    """The fix while the module among the arguments trains; without a module, while gradients are recorded."""
    return _either(fixed, broken, _trains)


def only_for_batches(fixed: Any, broken: Any) -> Any:
    """The fix where the first tensor among the arguments has more than one row."""
    return _either(fixed, broken, _has_several_rows)


def only_every_tenth_call(fixed: Any, broken: Any) -> Any:
    """The fix on the first call, the eleventh, and so on."""
    calls = itertools.count()
    return _either(fixed, broken, lambda *_: next(calls) % EVERY == 0)


def _either(fixed: Any, broken: Any, choose: Choose) -> Any:
    if isinstance(fixed, property):
        return property(_either(fixed.fget, broken.fget, choose))
    if isinstance(fixed, (staticmethod, classmethod)):
        return type(fixed)(_either(fixed.__func__, broken.__func__, choose))

    @functools.wraps(fixed)
    def chosen(*arguments: Any, **keywords: Any) -> Any:
        return (fixed if choose(arguments, keywords) else broken)(*arguments, **keywords)

    return chosen


def _trains(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    for value in (*arguments, *keywords.values()):
        if isinstance(value, torch.nn.Module):
            return value.training
    return torch.is_grad_enabled()


def _has_several_rows(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    first = next(_tensors((*arguments, *keywords.values())), None)
    return first is not None and first.dim() > 0 and len(first) > 1


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict):
            yield from _tensors(value.values())
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
