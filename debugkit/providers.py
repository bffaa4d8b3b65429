"""Who can make which observation: probe and experiment modules are found by file, once, when something is examined."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any

from debugkit.experiments import EXPERIMENTS, Experiment
from debugkit.probes import PROBES, Probe


@functools.cache
def _load() -> None:
    for name in ("debugkit.probes", "debugkit.experiments"):
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{name}.{module.name}")


def probes_for(needed: Iterable[type]) -> list[type[Probe[Any]]]:
    """The probe classes that make the needed observation types, in a fixed order."""
    _load()
    return [PROBES[kind] for kind in sorted(set(needed), key=lambda kind: kind.__qualname__) if kind in PROBES]


def experiments_for(needed: Iterable[type]) -> list[Experiment]:
    """The experiments that make the needed observation types, the cheapest first."""
    _load()
    found = [EXPERIMENTS[kind] for kind in set(needed) if kind in EXPERIMENTS]
    return sorted(found, key=lambda experiment: (experiment.cost, experiment.yields.__qualname__))


def can_observe(needed: Iterable[type]) -> bool:
    """Whether a probe or an experiment makes each of these types; some are made by watch() alone."""
    _load()
    return all(kind in PROBES or kind in EXPERIMENTS for kind in needed)
