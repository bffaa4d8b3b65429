"""debugkit around a loop that Accelerate prepared.

model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
with debugkit.integrations.accelerate.watch(accelerator, model, optimizer) as run:
    ...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import nn

from debugkit.declare import Declare
from debugkit.integrations.missing import missing
from debugkit.watch import OnFinding, Run
from debugkit.watch import watch as watch_loop

try:
    from accelerate import Accelerator  # type: ignore[import-untyped]  # it ships no types
    from accelerate.optimizer import AcceleratedOptimizer  # type: ignore[import-untyped]
except ImportError as error:
    raise missing("Accelerate", "accelerate", "accelerate") from error


def watch(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    on_finding: OnFinding = "log",
    snapshot_dir: str | Path | None = None,
    *,
    every: int = 1,
    select: str | Sequence[str] | None = None,
    ignore: str | Iterable[str] | None = None,
    declare: Declare | None = None,
) -> Run:
    """`debugkit.watch` for what `accelerator.prepare()` returned, so that findings name your modules and not wrappers.

    The model is unwrapped from DDP and FSDP (it stays wrapped for the loop), and so are the optimizers; without
    `optimizer`, those that the accelerator prepared are watched. In `accelerator.accumulate()` the prepared optimizer
    passes over `step()` and `zero_grad()` but at the end of a group of micro-batches: a step is one that was taken.
    Raises SubjectError and UnknownCodeError.
    """
    return watch_loop(
        accelerator.unwrap_model(model),
        list(_plain(accelerator._optimizers if optimizer is None else optimizer)) or None,
        on_finding,
        snapshot_dir,
        every=every,
        select=select,
        ignore=ignore,
        declare=declare,
    )


def _plain(
    given: torch.optim.Optimizer | Iterable[torch.optim.Optimizer],
) -> Iterable[torch.optim.Optimizer]:
    for optimizer in [given] if isinstance(given, torch.optim.Optimizer) else given:
        yield optimizer.optimizer if isinstance(optimizer, AcceleratedOptimizer) else optimizer
