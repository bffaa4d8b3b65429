"""Find the batches of a finished pass that a loop keeps and trains on again, as `itertools.cycle(loader)` does.

It refers to batches weakly, so it keeps none alive.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from debugkit._torch_private import LOADER_ITERATOR, base_of, batches_read, index_sampler_of
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.recorders.by_tensor import ByTensor
from debugkit.recorders.patches import Patches
from debugkit.rules.dk703_epoch_order_repeats import KeptPass
from debugkit.structure import tensors_in

_FEWEST = 3
"""Batches. One or two may be kept on purpose, to overfit them."""
_ENOUGH = 16
"""Batches that came back in the order of the first pass; or all batches, if these are fewer."""
_SURE = 8
"""Passes after which this is known before the loop ends. Some loops train on kept batches a few times, then read new
ones."""
_TENSORS = 8
_MOST_PASSES, _MOST_BATCHES = 8, 4096
_VALUES = 64
_MOST_COPIES = 256
"""Calls of which values are read, to recognise a batch that was copied to a device. Each may wait for the device."""

_Values = tuple[torch.Size, tuple[float, ...]]


@dataclass(eq=False)
class _Pass:
    """One iteration of a loader that shuffles, and in which order the model was called with its batches."""

    sampler: weakref.ref[Any]
    name: str
    """The class of the sampler."""
    size: int
    at: SourceLine | None
    read: int = 0
    places: ByTensor[int] = field(default_factory=ByTensor[int])
    order: dict[int, None] = field(default_factory=dict[int, None])
    """The batches in the order of their first use."""
    cycle: tuple[int, ...] = ()
    """The same, since the first of them came back."""
    last: int | None = None
    again: int = 0
    """Batches that came back after all had been used, each at the place that it had before."""
    steps: int = 0
    """Optimizer steps since the first of them."""
    differs: bool = False
    """The loader was started again, or a batch came back out of order."""
    by_values: dict[_Values, int | None] = field(default_factory=dict)
    """None for values that several batches have."""

    @property
    def is_read(self) -> bool:
        return self.read >= self.size

    def used(self, place: int) -> None:
        """The model was called with this batch. The same one twice in a row is one use, as of micro-steps or views."""
        if place == self.last:
            return
        self.last = place
        if not self.cycle and place not in self.order:
            self.order[place] = None
            return
        self.cycle = self.cycle or tuple(self.order)
        if self.is_read and self.cycle[self.again % len(self.cycle)] == place:
            self.again += 1
        else:
            self.differs = True


class KeptPasses:
    """Call `called` before each call of the model in training, and `stepped` after each step of an optimizer.

    Each means each: the order of the batches is not known if some calls are left out.
    """

    def __init__(self, patches: Patches, begins: Callable[[], object]) -> None:
        self._begins = begins  # called when a pass begins whose batches may come back
        self._passes: weakref.WeakKeyDictionary[Any, _Pass] = weakref.WeakKeyDictionary()  # by iterator
        self._known: list[_Pass] = []
        self._lines: weakref.WeakKeyDictionary[Any, SourceLine | None] = weakref.WeakKeyDictionary()
        self._copies = 0
        patches.around(DataLoader, "__iter__", returned=self._starts)
        patches.around(LOADER_ITERATOR, "__next__", returned=self._delivers)

    @property
    def is_waiting(self) -> bool:
        """Whether batches of a pass may still come back."""
        return any(not one.differs for one in self._known)

    def called(self, given: Any) -> None:
        """The model was called with these arguments."""
        waiting = [one for one in self._known if not one.differs]
        if not waiting:
            return
        tensors = [tensor for _, tensor in itertools.islice(tensors_in(given), _TENSORS)]
        for one in waiting:
            place = next((found for found in map(one.places.get, _with_bases(tensors)) if found is not None), None)
            if place is None and one.is_read and self._copies < _MOST_COPIES and len(one.by_values) >= _FEWEST:
                place = self._copied(one, tensors)
            if place is not None:
                one.used(place)

    def stepped(self, *_: Any) -> None:
        """An optimizer has stepped."""
        for one in self._known:
            one.steps += one.again > 0

    def found(self, *, ended: bool) -> Iterator[KeptPass]:
        """The passes that were repeated; before the loop has ended, only those that were often."""
        for one in self._known:
            batches = len(one.cycle)
            enough = min(_ENOUGH, batches) if ended else _SURE * batches
            small_steps = one.steps * batches >= 2 * one.again  # otherwise all batches make one step, in any order
            if not one.differs and batches >= _FEWEST and one.again >= enough and small_steps:
                yield KeptPass(one.name, one.size, one.again, one.at)

    def _starts(self, iterator: Any, *_: Any, **__: Any) -> None:
        if isinstance(iterator, LOADER_ITERATOR):
            self._lines[iterator] = user_line()
            sampler = _shuffling_sampler(iterator)
            for one in self._known:
                one.differs |= sampler is not None and one.sampler() is sampler

    @torch.no_grad()
    def _delivers(self, batch: Any, iterator: Any, *_: Any, **__: Any) -> None:
        one = self._passes.get(iterator)
        number = batches_read(iterator)
        if one is None:
            one = self._begun(iterator)
            if one is None:
                return
        elif number <= one.read:  # persistent workers: the same iterator for each epoch
            one.differs = True
        one.read = number
        if one.differs or number > _MOST_BATCHES:
            one.differs = True
            return
        tensors = [tensor for _, tensor in itertools.islice(tensors_in(batch), _TENSORS)]
        for tensor in tensors:
            one.places[tensor] = number
        for tensor in tensors[:2]:
            if tensor.device.type == "cpu" and (values := _values(tensor)) is not None:
                one.by_values[values] = None if values in one.by_values else number

    def _begun(self, iterator: Any) -> _Pass | None:
        sampler = _shuffling_sampler(iterator)
        if sampler is None:
            return None
        started_before = [other for other in self._known if other.sampler() is sampler]
        for other in started_before:
            other.differs = True
        one = _Pass(
            weakref.ref(sampler), type(sampler).__name__, len(iterator), self._lines.get(iterator) or user_line()
        )
        one.differs = bool(started_before)
        self._passes[iterator] = one
        self._known.append(one)
        if not one.differs:
            self._begins()
        if len(self._known) > _MOST_PASSES:
            self._known.remove(next((other for other in self._known if not other.again), one))
        return one

    def _copied(self, one: _Pass, tensors: list[Tensor]) -> int | None:
        """The batch of which one of these has the values, as after `.to(device)`."""
        self._copies += 1
        for tensor in tensors[:2]:
            values = _values(tensor)
            place = None if values is None else one.by_values.get(values)
            if place is not None:
                return place
        return None


def _with_bases(tensors: list[Tensor]) -> Iterator[Tensor]:
    for tensor in tensors:
        yield tensor
        if base_of(tensor) is not tensor:
            yield base_of(tensor)


def _shuffling_sampler(iterator: Any) -> Any:
    """The sampler of an iterator of a DataLoader; None if it does not shuffle."""
    index = index_sampler_of(iterator)
    for sampler in (index, getattr(index, "sampler", None)):
        if isinstance(sampler, RandomSampler | SubsetRandomSampler | WeightedRandomSampler):
            return sampler
        if isinstance(sampler, DistributedSampler) and sampler.shuffle:
            return sampler
    return None


def _values(tensor: Tensor) -> _Values | None:
    """Some values from all parts of a tensor, as float32."""
    if tensor.layout is not torch.strided or tensor.is_complex() or tensor.numel() < _FEWEST or tensor.is_quantized:
        return None
    flat = tensor.detach().reshape(-1)
    chosen = flat[:: max(1, len(flat) // _VALUES)][: 2 * _VALUES]
    return tensor.shape, tuple(chosen.float().tolist())
