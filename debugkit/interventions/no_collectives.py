"""Passes of one rank, in which no collective is called."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from debugkit.distributed.collectives import ALIKE, OTHERS
from debugkit.distributed.wrappers import is_distributed
from debugkit.finding import NotExamined
from debugkit.recorders.patches import Patches


@contextlib.contextmanager
def no_collectives() -> Iterator[None]:
    """Inside the block, a collective raises NotExamined: it would wait for ranks that do not call it."""
    with Patches() as patches:
        if is_distributed():
            for owner in (torch.distributed, torch.distributed.distributed_c10d):
                for name in (*ALIKE, *OTHERS):
                    patches.around(owner, name, before=_refuse)
        yield


def _refuse(*_: Any, **__: Any) -> None:
    raise NotExamined("The model communicates with the other ranks, so one rank cannot call it alone.")
