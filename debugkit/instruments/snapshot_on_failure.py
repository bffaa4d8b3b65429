"""snapshot_on_failure: keep the step that makes a NaN or raises, to run it again in another process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

from debugkit.watched_run import Run, watch


def snapshot_on_failure(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    *,
    folder: str | Path = "snapshots",
) -> Run:
    """A context manager around a training loop that saves the step that fails: batch, randomness, weights, optimizer.

    A failure is a NaN or Inf (DK201, DK202), which is saved before the weights change, or an exception that leaves the
    block. At most three snapshots are written to `folder`, each complete or not at all. `.snapshots` are their paths,
    and `debugkit replay PATH` runs one again. Raises SetupError if an argument is of the wrong kind.

    >>> import tempfile
    >>> model = nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with tempfile.TemporaryDirectory() as folder, snapshot_on_failure(model, optimizer, folder=folder) as run:
    ...     model(torch.ones(1, 2)).sum().backward()
    ...     optimizer.step()
    >>> run.snapshots
    ()
    """
    return watch(model, optimizer, snapshot_dir=folder, select=["DK201", "DK202"])
