"""The reads of torch's data loaders in a loop: which loader, which iteration of it, and the batch."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Self

from torch.utils.data import DataLoader

from debugkit._torch_private import LOADER_ITERATOR
from debugkit.recorders.patches import Patches

Delivered = Callable[[Any, int, Any], None]
"""`delivered(loader, iteration, batch)`; the iterations of all loaders are counted from 0."""


class LoaderReads:
    """Calls `delivered` after each batch that a DataLoader gives, in this process; the batch itself is unchanged.

    >>> seen = []
    >>> with LoaderReads(lambda loader, iteration, batch: seen.append((iteration, batch.tolist()))):
    ...     for epoch in range(2):
    ...         for batch in DataLoader([1, 2, 3], batch_size=2):
    ...             pass
    >>> seen
    [(0, [1, 2]), (0, [3]), (1, [1, 2]), (1, [3])]
    """

    def __init__(self, delivered: Delivered) -> None:
        self._delivered = delivered
        self._started: weakref.WeakKeyDictionary[Any, tuple[Callable[[], Any], int]] = weakref.WeakKeyDictionary()
        self._iterations = 0
        self._patches = Patches()

    def __enter__(self) -> Self:
        self._patches = Patches()
        self._patches.around(DataLoader, "__iter__", returned=self._starts)
        self._patches.around(LOADER_ITERATOR, "__next__", returned=self._reads)
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.__exit__(None, None, None)
        self._started.clear()

    def _starts(self, iterator: Any, loader: Any, *_: Any, **__: Any) -> None:
        if isinstance(iterator, LOADER_ITERATOR):  # persistent workers: the same one for each epoch
            self._started[iterator] = _kept(loader, iterator), self._iterations
            self._iterations += 1

    def _reads(self, batch: Any, iterator: Any, *_: Any, **__: Any) -> None:
        loader, iteration = self._started.get(iterator, (None, -1))
        if loader is not None and (alive := loader()) is not None:
            self._delivered(alive, iteration, batch)


def _kept(loader: Any, iterator: Any) -> Callable[[], Any]:
    """The loader for as long as its iterator lives, as of `for batch in DataLoader(…)`; weakly if it holds that one."""
    held = any(value is iterator for value in vars(loader).values())
    return weakref.ref(loader) if held else lambda: loader
