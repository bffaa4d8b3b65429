"""Save everything that a training step can change, and restore it bit for bit afterwards."""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from debugkit.held_parameters import held_parameters
from debugkit.held_values import attributes_of, cells_of, held_modules, held_values
from debugkit.loader_samples import generator_state, put_generator_back
from debugkit.randomness import same_randomness
from debugkit.setup import TrainingSetup

Undo = Callable[[], object]
_MOST_HELD = 2**16
"""Entries of a list, or elements of a tensor, that are copied if a loss function holds it: a data set is not."""
_UNCHANGING = frozenset({bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size})
"""Types of most attributes of modules: their values never change in place."""


@contextlib.contextmanager
def preserved(setup: TrainingSetup) -> Iterator[None]:
    """Run any code on the setup inside the block. On exit, also after an exception, the setup is restored bit for bit.

    Restored: parameters, buffers, `.grad`, `requires_grad`, train/eval flags, modules' plain attributes and hooks,
    optimizer state and parameter groups, what the loss function holds (other modules too), and the random state of
    Python, NumPy and torch on every device. Gradients are None inside the block. The cost is one copy of the
    parameters, the buffers and the optimizer state.
    """
    undo: list[Undo] = [
        *_tensors((*setup.model.parameters(), *setup.model.buffers(), *_other_parameters(setup))),
        *(_module(module) for module in setup.model.modules()),
        *(_optimizer(optimizer) for optimizer in setup.optimizers),
        *held_by_the_loss(setup),
    ]
    try:
        with same_randomness():
            yield
    finally:
        for step in undo:
            step()


@contextlib.contextmanager
def same_start(setup: TrainingSetup) -> Iterator[None]:
    """Restore on exit what a forward pass changes, so that the next pass of an experiment starts from the same state.

    Restored: buffers, modules' plain attributes, and what the loss function holds: counters, queues, random generators,
    buffers of its modules. Parameters and the global random states are left to `preserved` and `same_randomness`.
    """
    undo: list[Undo] = [
        *_tensors(setup.model.buffers()),
        *(_module(module) for module in setup.model.modules()),
        *held_by_the_loss(setup),
    ]
    try:
        yield
    finally:
        for step in undo:
            step()


def held_by_the_loss(setup: TrainingSetup) -> Iterator[Undo]:
    """How to restore the values in closures and globals of the loss function, which a pass can change or assign."""
    for cell in cells_of(setup.loss_fn):
        with contextlib.suppress(ValueError):  # a cell without a value yet
            yield functools.partial(setattr, cell, "cell_contents", cell.cell_contents)
    others = modules_beside_the_model(setup)
    yield from _tensors(buffer for module in others for buffer in module.buffers(recurse=False))
    yield from map(_module, others)
    for _, value in held_values(setup.loss_fn):
        if isinstance(value, nn.Module):
            continue
        if (undo := _contents(value, most=_MOST_HELD)) is not None:
            yield undo
        elif inside := attributes_of(value):
            yield functools.partial(vars(value).update, inside)
            yield from (undo for item in inside.values() if (undo := _contents(item, most=_MOST_HELD)) is not None)


def parameters_beside_the_model(setup: TrainingSetup) -> Iterator[Undo]:
    """How to restore the parameters of a criterion or a critic, which a program saves by its own `state_dict`."""
    yield from _tensors(_other_parameters(setup))


def _other_parameters(setup: TrainingSetup) -> Iterator[torch.Tensor]:
    """The parameters of an optimizer and of the loss function that a step can change beside those of the model."""
    yield from held_parameters(*setup.optimizers)
    yield from (
        parameter for module in modules_beside_the_model(setup) for parameter in module.parameters(recurse=False)
    )
    yield from (value for _, value in held_values(setup.loss_fn) if isinstance(value, nn.Parameter))


def modules_beside_the_model(setup: TrainingSetup) -> list[nn.Module]:
    """The modules that the loss function holds beside the model: a teacher, a critic, a criterion."""
    own = set(setup.model.modules())
    found = {part: None for module in held_modules(setup.loss_fn).values() for part in module.modules()}
    return [module for module in found if module not in own]


def _tensors(tensors: Iterable[torch.Tensor]) -> Iterator[Undo]:
    """The values of parameters and buffers, and each parameter's gradient and `requires_grad`."""
    for tensor in {id(tensor): tensor for tensor in tensors}.values():
        yield _tensor(tensor)


def _tensor(tensor: torch.Tensor) -> Undo:
    kept = None if _has_no_storage(tensor) else tensor.detach().clone()
    home, gradient, trains = tensor.data, tensor.grad, tensor.requires_grad
    if tensor.is_leaf:
        tensor.grad = None

    def undo() -> None:
        if not _has_no_storage(tensor) and tensor.data_ptr() != home.data_ptr():
            tensor.data = home
        if kept is not None:
            with torch.no_grad():
                tensor.data.copy_(kept)
        if tensor.is_leaf:
            tensor.requires_grad_(trains)
            tensor.grad = gradient

    return undo


def _has_no_storage(tensor: torch.Tensor) -> bool:
    return tensor.is_meta or isinstance(tensor, UninitializedTensorMixin)


def _module(module: nn.Module) -> Undo:
    """A module's parameters, buffers, submodules, hooks and plain attributes, and its train/eval flag."""
    attributes = dict(module.__dict__)
    empty: list[dict[Any, Any]] = []  # most of a module's tables, of hooks for instance
    contents: list[Undo] = []
    for value in attributes.values():
        if isinstance(value, dict) and not value:
            empty.append(value)
        elif (refill := _contents(value)) is not None:
            contents.append(refill)

    def undo() -> None:
        for name in [name for name in module.__dict__ if name not in attributes]:
            del module.__dict__[name]
        module.__dict__.update(attributes)
        for table in empty:
            if table:
                table.clear()
        for put_back in contents:
            put_back()

    return undo


def _contents(value: Any, most: int | None = None) -> Undo | None:
    """How to restore an attribute: dicts (including hooks), lists, deques, sets, plain tensors, random generators.

    With `most`, the tensors in a list of more entries, and tensors of more elements, are taken not to change in place.
    """
    if type(value) in _UNCHANGING:
        return None
    if isinstance(value, dict):
        items = dict(value)
        return lambda: None if _same(value, items) else _refill(value, value.update, items)
    if isinstance(value, list | deque):
        kept = list(value)
        small = most is None or len(kept) <= most
        inside = [
            back for item in kept if small and (back := _contents(item, most)) is not None
        ]  # e.g. averaged weights

        def refill() -> None:
            _refill(value, value.extend, kept)
            for put_back in inside:
                put_back()

        return refill
    if isinstance(value, set):
        members = set(value)
        return lambda: _refill(value, value.update, members)
    if (state := generator_state(value)) is not None:
        return lambda: put_generator_back(value, state)
    if type(value) is torch.Tensor and not value.requires_grad and not _has_no_storage(value):
        if most is not None and value.numel() > most:
            return None
        copy = value.clone()
        return lambda: value.data.copy_(copy)  # through .data: a graph that saved the tensor stays valid
    return None


def _refill(container: Any, fill: Callable[[Any], None], items: Any) -> None:
    container.clear()
    fill(items)


def _same(now: Mapping[Any, Any], before: Mapping[Any, Any]) -> bool:
    return list(now) == list(before) and all(now[key] is before[key] for key in before)


def _optimizer(optimizer: torch.optim.Optimizer) -> Undo:
    """State tensors keep their identity and their values are restored. New state is removed."""
    state = {key: _entries(entries) for key, entries in optimizer.state.items()}
    groups = [(dict(group), list(group["params"])) for group in optimizer.param_groups]
    group_list = list(optimizer.param_groups)
    names = set(vars(optimizer))
    attributes = {
        name: value for name, value in vars(optimizer).items() if isinstance(value, bool | int | float | None)
    }

    own = [value for name, value in vars(optimizer).items() if not name.startswith("_") and name != "param_groups"]
    contents = [refill for v in own if isinstance(v, list | deque | torch.Tensor) and (refill := _contents(v))]

    def undo() -> None:
        optimizer.state.clear()
        for key, (entries, put_back) in state.items():
            put_back()
            optimizer.state[key] = entries
        optimizer.param_groups[:] = group_list
        for group, (items, parameters) in zip(group_list, groups, strict=True):
            group.clear()
            group.update(items)
            group["params"][:] = parameters
        for name in [n for n, v in vars(optimizer).items() if isinstance(v, bool | int | float) and n not in names]:
            delattr(optimizer, name)
        vars(optimizer).update(attributes)
        for refill in contents:
            refill()

    return undo


def _entries(entries: Any) -> tuple[Any, Undo]:
    if not isinstance(entries, dict):
        return entries, _contents(entries) or (lambda: None)
    items = dict(entries)
    contents = [refill for value in items.values() if (refill := _contents(value)) is not None]

    def put_back() -> None:
        entries.clear()
        entries.update(items)
        for refill in contents:
            refill()

    return entries, put_back
