"""Send the batch's actions through normalise and unnormalise and see what comes back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from debugkit.experiments import experiment
from debugkit.finding import NotExamined, SourceLine
from debugkit.observations.normalisers import NormaliserRoundTrips, RoundTrip
from debugkit.structure import tensors_in
from debugkit.subject import Subject

_PAIRS = (
    ("normalize", "unnormalize"),
    ("normalise", "unnormalise"),
    ("normalize", "denormalize"),
    ("normalise", "denormalise"),
    ("normalize_action", "unnormalize_action"),
    ("normalise_action", "unnormalise_action"),
    ("normalize_actions", "unnormalize_actions"),
    ("normalise_actions", "unnormalise_actions"),
)
_ACTION_KEYS = ("action", "actions", "target")
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
"""A few roundings of each type, relative to the range of the values."""


@dataclass(frozen=True)
class _Pair:
    module: str | None
    normalise: Callable[[torch.Tensor], Any]
    unnormalise: Callable[[torch.Tensor], Any]


@experiment(NormaliserRoundTrips, cost=0)
def normalise_and_back(subject: Subject) -> NormaliserRoundTrips:
    """Tries every pair, declared or found by name on a submodule or on an object that one holds."""
    pairs = list(_pairs(subject))
    if not pairs:
        raise NotExamined(
            "No normalise/unnormalise pair was found by name: declare=Declare(normaliser=(normalise, unnormalise))."
        )
    trips = [trip for pair in pairs if (trip := _try(pair, subject)) is not None]
    if not trips:
        raise NotExamined("A normaliser was found, but no tensor of the batch could be sent through it.")
    return NormaliserRoundTrips(tuple(trips))


def _pairs(subject: Subject) -> Iterator[_Pair]:
    if subject.declare.normaliser is not None:
        yield _Pair(None, *subject.declare.normaliser)
        return
    seen: set[int] = set()
    for module, path in subject.module_paths.items():
        for owner in (module, *vars(module).values()):
            if id(owner) in seen or isinstance(owner, torch.Tensor | type):
                continue
            seen.add(id(owner))
            for forth, back in _PAIRS:
                if callable(getattr(owner, forth, None)) and callable(getattr(owner, back, None)):
                    yield _Pair(path, getattr(owner, forth), getattr(owner, back))


def _try(pair: _Pair, subject: Subject) -> RoundTrip | None:
    """The round trip on the first tensor that passes; None if none does."""
    for path, values in _candidates(subject):
        try:
            with torch.no_grad():
                returned = pair.unnormalise(pair.normalise(values.clone()))
        except Exception:
            continue  # not made for this tensor: the next one may fit
        returned = torch.as_tensor(returned)
        if returned.shape == values.shape:
            return _measure(pair, path, values, returned)
    return None


def _candidates(subject: Subject) -> Iterator[tuple[str, torch.Tensor]]:
    """Floating tensors of the batch: the declared target, then what is named like an action, then the others."""
    tensors = [
        (path, tensor) for path, tensor in tensors_in(subject.batch) if tensor.is_floating_point() and tensor.ndim
    ]
    declared = subject.declare.target

    def order(item: tuple[str, torch.Tensor]) -> int:
        name = item[0].rpartition(".")[2]
        return 0 if item[0] == declared else 1 if name in _ACTION_KEYS else 2

    yield from sorted(tensors, key=order)
    for width in range(1, 65):  # no tensor fits: a normaliser of its own width is tried on numbers of a usual size
        yield "standard normal", torch.randn(16, width, generator=torch.Generator().manual_seed(0))


def _measure(pair: _Pair, path: str, values: torch.Tensor, returned: torch.Tensor) -> RoundTrip:
    flat = values.reshape(-1, values.shape[-1]).double()  # (N, D)
    back = returned.reshape(-1, values.shape[-1]).double()
    extent = (flat.amax(0) - flat.amin(0)).clamp_min(flat.abs().amax(0)).clamp_min(1e-12)
    centred = flat - flat.mean(0)
    gain = (centred * (back - back.mean(0))).sum(0) / centred.square().sum(0)
    return RoundTrip(
        module=pair.module,
        normalise=_name(pair.normalise),
        unnormalise=_name(pair.unnormalise),
        at=_first_line(pair.unnormalise),
        tried_on=path,
        error=tuple(((back - flat).abs().amax(0) / extent).tolist()),
        tolerance=_TOLERANCE.get(min(values.dtype, returned.dtype, key=lambda kind: kind.itemsize), 1e-2),
        gain=tuple(gain.tolist()),
    )


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _first_line(function: Callable[..., Any]) -> SourceLine | None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None else SourceLine(code.co_filename, code.co_firstlineno, code.co_name)
