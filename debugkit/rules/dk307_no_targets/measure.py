"""Reads the labels and the target action of the batch, without a forward pass."""

from __future__ import annotations

import torch

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import is_index, labels, target
from debugkit.interventions.program_lines import batches_made_at
from debugkit.rules.dk307_no_targets import Targets, TargetValues
from debugkit.setup import TrainingSetup


def read_the_targets(setup: TrainingSetup) -> Targets:
    """Count the ignored labels, and the different values of the others."""
    found = [entry for entry in (labels(setup), target(setup)) if entry is not None and entry[1].numel()]
    if not found:
        raise NotExamined("The batch has neither labels nor a target action: pass Declare(labels=…) or target=….")
    made_at = batches_made_at(setup.loaders.get("train"))
    return Targets(tuple(_read(path, tensor) for path, tensor in found), made_at)


def _read(path: str, tensor: torch.Tensor) -> TargetValues:
    flat = tensor.detach().flatten()
    counted = flat[flat >= 0] if is_index(tensor) else flat
    return TargetValues(
        path=path,
        total=flat.numel(),
        ignored=flat.numel() - counted.numel(),
        distinct=len(torch.unique(counted)),
        value=float(counted[0]) if len(counted) else float("nan"),
        whole_numbers=is_index(tensor),
        rows=tensor.shape[0] if tensor.ndim else 1,
        per_token=tensor.ndim > 1,
    )
