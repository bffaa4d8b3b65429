"""Convert any value to plain JSON data. Used for reports, observations and the results of instruments."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any


def json_value(value: object) -> Any:
    """The value in a form that `json.dumps(..., allow_nan=False)` accepts.

    Tuples and sets become lists, dataclasses and mappings become dicts with string keys. NaN and infinities become
    `"nan"`, `"inf"` and `"-inf"`, because JSON has no numbers for them. Any other value becomes `str(value)`.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_value(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return str(value)
