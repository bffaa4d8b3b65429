"""Read the statistics of normalisers, and run one pass to see what they make of the values they are really given."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from debugkit.experiments import experiment
from debugkit.experiments.passes import evaluate
from debugkit.finding import NotExamined
from debugkit.observations.normaliser_statistics import NormalisedValues, Normalisers, NormaliserStatistics
from debugkit.subject import Subject

_PARTNERS = (("mean", "std"), ("min", "max"), ("low", "high"), ("q01", "q99"), ("mean", "scale"))
_METHODS = ("normalize", "normalise", "normalize_action", "normalise_action", "normalize_actions", "normalise_actions")
_AWAY = 0.01
"""A hundredth of a unit: a millimetre to a degree, for most actions."""
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


@experiment(Normalisers, cost=1, requires=("batch",))
def watch_the_normalisers(subject: Subject) -> Normalisers:
    """One pass, if any normaliser has a method that can be listened to."""
    owners = list(_owners(subject))
    if not owners:
        raise NotExamined("No statistics (mean and std, min and max, q01 and q99) were found on any module.")
    statistics = tuple(_read(owner, names, *pair) for owner in owners for names, *pair in owner.statistics)
    with contextlib.ExitStack() as listening:
        for owner in owners:
            listening.enter_context(_listening(owner))
        with contextlib.suppress(NotExamined):  # without a loss, the statistics can still be read
            evaluate(subject, output_needed=False)
    values = tuple(_summary(owner) for owner in owners if owner.outputs)
    return Normalisers(statistics, values)


def _owners(subject: Subject) -> Iterator[_Owner]:
    """Modules that hold such a pair as buffers, frozen parameters or attributes, and objects that modules hold."""
    seen: set[int] = set()
    for module, path in subject.module_paths.items():
        things = [(path.rpartition(".")[2] or type(module).__name__, module)]
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
    """(names, location, spread) for each pair of 1-D tensors of one length, whatever stands before the names."""
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
        own |= {**thing._buffers, **thing._parameters}
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
    """How far each dimension of what normalising gives moves when its value leaves the middle by 0.01."""
    method = owner.normalise
    if method is None:
        return None
    here = middle.float()[None]  # (1, D)
    try:
        with torch.no_grad():
            at, away = (torch.as_tensor(method[1](value.clone())).double() for value in (here, here + _AWAY))
    except Exception:
        return None  # it takes something else, a batch say
    if at.shape != here.shape or away.shape != here.shape:
        return None
    # NaN at the very middle is what 0/0 gives, and it must not be lost in the difference.
    return tuple((away - at).abs().flatten().tolist())


@contextlib.contextmanager
def _listening(owner: _Owner) -> Iterator[None]:
    """Keep what its method returns, in its own place on the owner."""
    method = owner.normalise
    if method is None or not hasattr(owner.thing, "__dict__") or method[0] in vars(owner.thing):
        yield
        return
    name, original = method

    def listened(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.ndim and result.is_floating_point():
            owner.outputs.append(result.detach().clone())
        return result

    vars(owner.thing)[name] = listened
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
