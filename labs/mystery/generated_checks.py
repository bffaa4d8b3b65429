"""Declares the checks of one mystery in its own `checks.py`: one for each aspect."""

from __future__ import annotations

import functools
from typing import Any

from labs.grading import Rng, Submission, check, expect
from labs.grading.errors import CheckError
from labs.mystery.aspects import ASPECTS, Aspect
from labs.mystery.healthy import Running
from labs.mystery.plant import Key, drawn


def declare(module: dict[str, Any], name: str, attempt: int) -> None:
    """Put a check for each aspect into a module, given by its globals. Raises CheckError for an unknown mystery."""
    key = Key.of_name(name)
    planted = None if key is None else drawn(key, attempt)
    if planted is None:
        raise CheckError(f"{name} is not a mystery of this release.")
    healthy = functools.cache(lambda: Running(planted.program))
    for aspect in ASPECTS:
        function = _comparison(aspect, healthy)
        function.__name__, function.__module__ = f"test_{aspect.id}", module["__name__"]
        instrument = aspect.instrument.replace("lab run mystery", f"lab run {name}")
        declared = check(kind=aspect.kind, title=aspect.title, property=aspect.property, instrument=instrument)
        module[function.__name__] = declared(function)


def _comparison(aspect: Aspect, healthy: Any) -> Any:
    def compare(submission: Submission, rng: Rng) -> None:
        facts = healthy().facts(rng)
        inputs = aspect.inputs(rng, facts)
        reference = healthy().measure(aspect, inputs)
        relative, absolute = aspect.tolerance(facts)
        measured = submission.observe(aspect.id, **inputs)
        expect(measured, f"{aspect.id},").close_to(reference, rtol=relative, atol=absolute)

    return compare
