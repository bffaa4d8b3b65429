"""Read the statistics of normalisers, and run one pass to record the values that they return."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from debugkit._torch_private import REGISTERED, buffers_of, parameters_of
from debugkit.finding import NotExamined, SourceLine
from debugkit.interventions.passes import evaluate
from debugkit.recorders.function_calls import attach, detach
from debugkit.rules.dk402_normaliser_degenerate import NormalisedValues, Normalisers, NormaliserStatistics
from debugkit.rules.dk402_normaliser_degenerate.arithmetic import Arithmetic, Normalised, Pair, by_line
from debugkit.setup import TrainingSetup

_PARTNERS = (("mean", "std"), ("min", "max"), ("low", "high"), ("q01", "q99"), ("mean", "scale"))
_METHODS = ("normalize", "normalise", "normalize_action", "normalise_action", "normalize_actions", "normalise_actions")
_CHANGING = ("running", "moving", "ema")
"""In the names of statistics that follow the data while the model trains."""
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
    """Read all statistics; run one pass to record what the methods return, or what a line computes with them."""
    owners = list(owners_of(setup))
    if not owners:
        raise NotExamined("No statistics (mean and std, min and max, q01 and q99) were found on any module.")
    statistics = tuple(_read(owner, names, *pair) for owner in owners for names, *pair in owner.statistics)
    with contextlib.ExitStack() as recording:
        for owner in owners:
            recording.enter_context(_recording(owner))
        arithmetic = Arithmetic([pair for index, owner in enumerate(owners) for pair in followed_pairs(index, owner)])
        mode = attach(arithmetic)
        recording.callback(detach, arithmetic, mode)
        with contextlib.suppress(NotExamined):  # without a loss, the statistics can still be judged
            evaluate(setup, output_needed=False)
    if arithmetic.error is not None:
        raise arithmetic.error
    values = [_summary(owner) for owner in owners if owner.outputs]
    for found in by_line(arithmetic.found):
        if len(found.values) and not any(owners[pair.owner].outputs for pair in found.pairs):
            values.append(computed_values(found, owners))
    return Normalisers(statistics, tuple(values))


def followed_pairs(index: int, owner: _Owner) -> Iterator[tuple[Pair, torch.Tensor, torch.Tensor]]:
    """The statistics that do not change in training and that differ from 0 and 1, with which nothing is normalised."""
    held = _attributes(owner.thing)
    for names, middle, spread in owner.statistics:
        if any(word in name.lower() for name in names for word in _CHANGING):
            continue
        if bool((middle == 0).all() and (spread == 1).all()):
            continue
        is_range = not names[1].endswith(("std", "scale"))
        yield Pair(index, names, is_range), held[names[0]], held[names[1]]


def computed_values(found: Normalised, owners: list[_Owner]) -> NormalisedValues:
    """The values of one line. Where pairs share their tensors, it is the pair that the line names."""
    text = linecache.getline(found.line.file, found.line.line) if found.line is not None else ""
    pair = next((pair for pair in found.pairs if pair.names[0] in text), found.pairs[0])
    owner = owners[pair.owner]
    return _summary_of(found.values, owner, pair.names, found.line)


def owners_of(setup: TrainingSetup) -> Iterator[_Owner]:
    """Modules with a pair of statistics as buffers, frozen parameters or attributes, and objects that modules hold."""
    seen: set[int] = set()
    for module, path in setup.module_paths.items():
        things: list[tuple[str, Any]] = [(path.rpartition(".")[2], module)]
        things += [(name, value) for name, value in vars(module).items() if hasattr(value, "__dict__")]
        things += [
            found for name, value in vars(module).items() if name not in REGISTERED for found in _dicts(name, value)
        ]
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


def _dicts(name: str, value: Any, depth: int = 2) -> Iterator[tuple[str, dict[Any, Any]]]:
    """A dict that a module holds, and the dicts in it: statistics by key."""
    if isinstance(value, dict) and depth >= 0:
        yield name, value
        for key, item in value.items():
            yield from _dicts(f"{name}.{key}", item, depth - 1)


def _attributes(thing: Any) -> dict[str, Any]:
    if isinstance(thing, dict):
        return {key: value for key, value in thing.items() if isinstance(key, str)}
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
    return _summary_of(rows, owner)


def _summary_of(
    rows: torch.Tensor, owner: _Owner, names: tuple[str, str] | None = None, line: SourceLine | None = None
) -> NormalisedValues:
    return NormalisedValues(
        module=owner.module,
        owner=owner.name,
        names=names,
        line=line,
        rows=len(rows),
        median=tuple(rows.median(0).values.tolist()),
        spread=tuple(rows.std(0, correction=0).tolist()),
        extreme_share=tuple(((rows.abs() > _FAR).double().mean(0)).tolist()),
        largest=float(rows.abs().max()),
    )
