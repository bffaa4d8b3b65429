"""The learning rates of an optimizer. One that is a tensor is not read, because that would wait for the device."""

from __future__ import annotations

import dis
import functools
from types import CodeType
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def rates_of(optimizer: Optimizer) -> dict[str, Any]:
    """That of the first group, and the largest; None where it is not known."""
    rates = [_number(group.get("lr")) for group in optimizer.param_groups]
    known = [rate for rate in rates if rate is not None]
    return {
        "learning_rate": rates[0] if rates else None,
        "largest_rate": max(known) if known and len(known) == len(rates) else None,
    }


def initial_rate(optimizer: Optimizer | None) -> float | None:
    """The `initial_lr` of the first group, which a scheduler writes."""
    return _number(optimizer.param_groups[0].get("initial_lr")) if optimizer and optimizer.param_groups else None


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
