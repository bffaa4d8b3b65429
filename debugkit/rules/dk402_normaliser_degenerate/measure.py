"""Read the statistics of normalisers, and run one pass to record the values that they return."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from debugkit._torch_private import buffers_of, parameters_of
from debugkit.finding import NotExamined
from debugkit.interventions.passes import evaluate
from debugkit.rules.dk402_normaliser_degenerate import NormalisedValues, Normalisers, NormaliserStatistics
from debugkit.setup import TrainingSetup

_PARTNERS = (("mean", "std"), ("min", "max"), ("low", "high"), ("q01", "q99"), ("mean", "scale"))
_METHODS = ("normalize", "normalise", "normalize_action", "normalise_action", "normalize_actions", "normalise_actions")
_SHIFT = 0.01
"""A hundredth of a unit: between a millimetre and a degree, for most actions."""
_FAR = 10.0


@dataclass(eq=False)
class _Owner:
    module: str
    name: str
    thing: Any
    statistics: list[tuple[tuple[str, str], torch.Tensor, torch.Tensor]]
    outputs: list[torch.Tensor] = field(default_factory=list)

    @property
    def normalise(self) -> tuple[str, Callable[[torch.Tensor], Any]] | None:
        for name in _METHODS:
            if callable(method := getattr(self.thing, name, None)):
                return name, method
        return None


def watch_the_normalisers(setup: TrainingSetup) -> Normalisers:
    """Read all statistics; run one pass to record what the normalisers' methods return."""
    owners = list(_owners(setup))
    if not owners:
        raise NotExamined("No statistics (mean and std, min and max, q01 and q99) were found on any module.")
    statistics = tuple(_read(owner, names, *pair) for owner in owners for names, *pair in owner.statistics)
    with contextlib.ExitStack() as recording:
        for owner in owners:
            recording.enter_context(_recording(owner))
        with contextlib.suppress(NotExamined):  # without a loss, the statistics can still be judged
            evaluate(setup, output_needed=False)
    values = tuple(_summary(owner) for owner in owners if owner.outputs)
    return Normalisers(statistics, values)


def _owners(setup: TrainingSetup) -> Iterator[_Owner]:
    """Modules with a pair of statistics as buffers, frozen parameters or attributes, and objects that modules hold."""
    seen: set[int] = set()
    for module, path in setup.module_paths.items():
        things = [(path.rpartition(".")[2], module)]
        things += [(name, value) for name, value in vars(module).items() if hasattr(value, "__dict__")]
        for name, thing in things:
            if (
                id(thing) in seen
                or isinstance(thing, torch.Tensor | type)
                or (thing is not module and isinstance(thing, nn.Module))
            ):
                continue
            seen.add(id(thing))
            pairs = list(_statistics(thing))
            if pairs:
                yield _Owner(path, name, thing, pairs)


def _statistics(thing: Any) -> Iterator[tuple[tuple[str, str], torch.Tensor, torch.Tensor]]:
    """(names, location, spread) for each pair of 1-D tensors of equal length; the names may have a common prefix."""
    held = {name: value for name, value in _attributes(thing).items() if _is_statistic(value)}
    for name, location in held.items():
        for left, right in _PARTNERS:
            partner = name.removesuffix(left) + right
            if not name.endswith(left) or partner not in held or held[partner].shape != location.shape:
                continue
            other = held[partner]
            spread = other if right in ("std", "scale") else other - location
            middle = location if right in ("std", "scale") else (other + location) / 2
            yield (name, partner), middle.detach().double(), spread.detach().double()


def _attributes(thing: Any) -> dict[str, Any]:
    own = dict(vars(thing))
    if isinstance(thing, nn.Module):
        own |= {**buffers_of(thing), **parameters_of(thing)}
    return own


def _is_statistic(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.is_meta or value.requires_grad:
        return False
    return value.ndim == 1 and value.numel() > 0 and value.is_floating_point()


def _read(owner: _Owner, names: tuple[str, str], middle: torch.Tensor, spread: torch.Tensor) -> NormaliserStatistics:
    finite = bool(middle.isfinite().all() and spread.isfinite().all())
    return NormaliserStatistics(
        module=owner.module,
        owner=owner.name,
        names=names,
        spread=tuple(spread.tolist()),
        finite=finite,
        reaction=_reaction(owner, middle) if finite else None,
    )


def _reaction(owner: _Owner, middle: torch.Tensor) -> tuple[float, ...] | None:
    """The change of each normalised dimension when its value moves by 0.01 from the middle."""
    method = owner.normalise
    if method is None:
        return None
    here = middle.float()[None]  # (1, D)
    try:
        with torch.no_grad():
            at, away = (torch.as_tensor(method[1](value.clone())).double() for value in (here, here + _SHIFT))
    except Exception:
        return None  # the method takes another argument, for example a whole batch
    if at.shape != here.shape or away.shape != here.shape:
        return None
    # 0/0 gives NaN exactly at the middle; the subtraction keeps it.
    return tuple((away - at).abs().flatten().tolist())


@contextlib.contextmanager
def _recording(owner: _Owner) -> Iterator[None]:
    """Replace the owner's method by one that also records what it returns; restore it on exit."""
    method = owner.normalise
    if method is None or not hasattr(owner.thing, "__dict__") or method[0] in vars(owner.thing):
        yield
        return
    name, original = method

    def recorded(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.ndim and result.is_floating_point():
            owner.outputs.append(result.detach().clone())
        return result

    vars(owner.thing)[name] = recorded
    try:
        yield
    finally:
        del vars(owner.thing)[name]


def _summary(owner: _Owner) -> NormalisedValues:
    width = owner.outputs[0].shape[-1]
    rows = torch.cat([output.reshape(-1, width) for output in owner.outputs if output.shape[-1] == width]).double()
    return NormalisedValues(
        module=owner.module,
        owner=owner.name,
        rows=len(rows),
        median=tuple(rows.median(0).values.tolist()),
        spread=tuple(rows.std(0, correction=0).tolist()),
        extreme_share=tuple(((rows.abs() > _FAR).double().mean(0)).tolist()),
        largest=float(rows.abs().max()),
    )
