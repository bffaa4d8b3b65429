"""Counts the bytes alive while operations run. Every storage counts once, from its allocation to its release."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from debugkit._torch_private import TorchDispatchMode, parts_of_sparse
from debugkit.measurements.memory_profile import Kind, Peak, Phase
from debugkit.structure import tensors_in

_Use = tuple[Kind, str]  # what a storage is for, and the module that made it


class StorageCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts live bytes by use and records the peak. It holds no tensor: storages are referenced weakly.

    The caller sets `phase`, and keeps `running`, the stack of the paths of modules whose forward is running.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.peak: Peak | None = None
        self.phase: Phase = "forward"
        self.running: list[str] = []
        self.by_use: Counter[_Use] = Counter()
        self._uses: Any = WeakIdKeyDictionary()  # storage → [bytes, use]

    def hold(self, tensors: Iterable[Tensor], kind: Kind) -> None:
        """Count tensors that existed before, or set the use of storages once it is known."""
        for tensor in tensors:
            self._count(tensor, (kind, ""))

    def bytes_for(self, kind: Kind) -> int:
        """The live bytes of one kind."""
        return sum(size for (of, _), size in self.by_use.items() if of == kind)

    def by_module(self, kind: Kind) -> dict[str, int]:
        """The live bytes of one kind by the module that made them."""
        return {module: size for (of, module), size in self.by_use.items() if of == kind and size}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        made: Kind = {"forward": "activations", "backward": "temporaries", "optimizer": "optimizer"}[self.phase]  # type: ignore[assignment]
        for _, tensor in tensors_in(output):
            self._count(tensor, (made, self.running[-1] if self.running else ""), known_stays=True)
        if self.peak is None or self.live > self.peak.bytes:
            self.peak = self._snapshot(str(func).removeprefix("aten.").removesuffix(".default"))
        return output

    def _count(self, tensor: Tensor, use: _Use, known_stays: bool = False) -> None:
        if tensor.layout is not torch.strided:
            for part in _parts(tensor):
                self._count(part, use, known_stays)
            return
        storage = tensor.untyped_storage()
        entry = self._uses.get(storage)
        if entry is not None:
            if not known_stays:
                self.by_use[entry[1]] -= entry[0]
                self.by_use[use] += entry[0]
                entry[1] = use
            return
        entry = [storage.nbytes(), use]
        self._uses[storage] = entry
        self.live += entry[0]
        self.by_use[use] += entry[0]
        weakref.finalize(storage, self._gone, entry)

    def _gone(self, entry: list[Any]) -> None:
        self.live -= entry[0]
        self.by_use[entry[1]] -= entry[0]

    def _snapshot(self, operation: str) -> Peak:
        kinds: Counter[Kind] = Counter()
        for (kind, _), size in self.by_use.items():
            kinds[kind] += size
        module = self.running[-1] if self.running else ""
        return Peak(self.live, self.phase, operation, module, tuple(sorted(kinds.items())))


def _parts(tensor: Tensor) -> list[Tensor]:
    """The dense tensors that a sparse one consists of."""
    if tensor.layout is torch.sparse_coo:
        return list(parts_of_sparse(tensor))
    return []
