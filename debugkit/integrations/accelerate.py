"""Use debugkit in a training loop that was prepared with Accelerate.

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
from debugkit.on_finding import OnFinding
from debugkit.watched_run import Run
from debugkit.watched_run import watch as watch_loop

try:
    from accelerate import Accelerator  # type: ignore[import-untyped]  # no type information
    from accelerate.optimizer import AcceleratedOptimizer  # type: ignore[import-untyped]
except ImportError as error:
    raise missing("Accelerate", "accelerate", "accelerate") from error


def watch(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    *,
    on_finding: OnFinding = "log",
    snapshot_dir: str | Path | None = None,
    every: int = 1,
    select: str | Sequence[str] | None = None,
    ignore: str | Iterable[str] | None = None,
    declare: Declare | None = None,
) -> Run:
    """`debugkit.watch` for the objects that `accelerator.prepare()` returned.

    The model is watched without its DDP or FSDP wrapper, so findings name your own modules. The loop still uses the
    wrapped model. The optimizers are unwrapped in the same way. If `optimizer` is None, the optimizers that the
    accelerator prepared are watched. Under `accelerator.accumulate()` the prepared optimizer skips `step()` and
    `zero_grad()` except at the end of each group of micro-batches. Only the steps that are performed count.
    Raises SetupError and UnknownCodeError.
    """
    return watch_loop(
        accelerator.unwrap_model(model),
        list(_plain(accelerator._optimizers if optimizer is None else optimizer)) or None,
        on_finding=on_finding,
        snapshot_dir=snapshot_dir,
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
