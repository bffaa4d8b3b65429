"""The learning rates of an optimizer. One that is a tensor is not read, because that would wait for the device."""

from __future__ import annotations

import dis
import functools
from types import CodeType
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR

_LENGTHS = ("total_steps", "T_max", "total_iters")
"""Of OneCycleLR, CosineAnnealingLR, and LinearLR or PolynomialLR."""


def rates_of(optimizer: Optimizer) -> dict[str, Any]:
    """That of the first group, and the largest; None where it is not known."""
    rates = [_number(group.get("lr")) for group in optimizer.param_groups]
    known = [rate for rate in rates if rate is not None]
    return {
        "learning_rate": rates[0] if rates else None,
        "largest_rate": max(known) if known and len(known) == len(rates) else None,
    }


def rate_of(group: dict[str, Any]) -> float | None:
    """The learning rate of one group."""
    return _number(group.get("lr"))


def initial_rate(optimizer: Optimizer | None) -> float | None:
    """The `initial_lr` of the first group, which a scheduler writes."""
    return _number(optimizer.param_groups[0].get("initial_lr")) if optimizer and optimizer.param_groups else None


def schedule_of(scheduler: Any) -> dict[str, Any]:
    """Whether it computes with integers, its length and that of half a period in its own steps, None if not known,
    and the steps it has made.
    """
    lengths = (getattr(scheduler, name, None) for name in _LENGTHS)
    planned = next((length for length in (*lengths, _length_of_functions(scheduler)) if type(length) is int), None)
    taken = getattr(scheduler, "last_epoch", 0)
    return {
        "integer": divides_integers(scheduler),
        "planned": planned,
        "taken": taken if type(taken) is int else 0,
        "half_period": _half_period(scheduler),
    }


def _half_period(scheduler: Any) -> int | None:
    """The `T_max` of a CosineAnnealingLR itself: after it, the rate rises again."""
    length = scheduler.T_max if type(scheduler) is CosineAnnealingLR else None
    return length if type(length) is int and length > 0 else None


def _length_of_functions(scheduler: Any) -> Any:
    """That of the schedules of transformers: a LambdaLR of functions that were given their length."""
    if not isinstance(scheduler, LambdaLR):
        return None
    given = (function.keywords for function in scheduler.lr_lambdas if isinstance(function, functools.partial))
    return next((keywords.get("num_training_steps") for keywords in given), None)


def divides_integers(scheduler: Any) -> bool:
    """Whether every function of a LambdaLR divides with `//` and has no operation that could give a fraction.

    The functions are read and not called: a call could change a state that they keep.
    """
    if not isinstance(scheduler, LambdaLR):
        return False
    codes = [getattr(function, "__code__", None) for function in scheduler.lr_lambdas]
    return bool(codes) and all(code is not None and _is_integer(code) for code in codes)


@functools.lru_cache(maxsize=64)
def _is_integer(code: CodeType) -> bool:
    instructions = list(dis.get_instructions(code))
    operations = {instruction.argrepr.rstrip("=") for instruction in instructions}
    fractions = any(isinstance(constant, float) for constant in code.co_consts) or operations & {"/", "**"}
    calls = any(instruction.opname.startswith("CALL") for instruction in instructions)
    return "//" in operations and not fractions and (not calls or set(code.co_names) <= {"max", "min", "int"})


def _number(rate: object) -> float | None:
    return float(rate) if isinstance(rate, int | float) else None
