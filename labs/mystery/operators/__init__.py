"""The fault operators, by chapter."""

from __future__ import annotations

from labs.mystery.operators import (
    actions,
    data,
    distributed,
    frameworks,
    gradients,
    loop,
    memory,
    numerics,
    reproducibility,
    shapes,
)
from labs.mystery.operators.operator import MEASUREMENTS, PLACES, Edit, Operator

OPERATORS: tuple[Operator, ...] = (
    *shapes.SHAPES,
    *gradients.GRADIENTS,
    *numerics.NUMERICS,
    *data.DATA,
    *actions.ACTIONS,
    *loop.LOOP,
    *memory.MEMORY,
    *reproducibility.REPRODUCIBILITY,
    *distributed.DISTRIBUTED,
    *frameworks.FRAMEWORKS,
)
BY_ID = {one.id: one for one in OPERATORS}

__all__ = ["BY_ID", "MEASUREMENTS", "OPERATORS", "PLACES", "Edit", "Operator"]
