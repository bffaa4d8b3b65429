"""What is alive in a process: tensors, the bytes of their storages, and the autograd graphs behind them."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor


@contextmanager
def counting_from_here() -> Iterator[None]:
    """Exclude the objects that exist now from the counts, which also makes counting faster."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def live_tensors() -> list[Tensor]:
    """Every tensor that can be reached."""
    gc.collect()  # an unreachable cycle is not alive
    return [found for found in gc.get_objects() if issubclass(type(found), Tensor)]


def bytes_of(tensors: Sequence[Tensor]) -> int:
    """The bytes of the tensors' storages; a shared storage is counted once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def graph_nodes(tensors: Sequence[Tensor]) -> int:
    """The number of autograd nodes that can be reached from the tensors."""
    waiting = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                waiting.append(node)
    return len(seen)
