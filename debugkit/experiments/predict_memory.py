"""Predict the peak memory of a training step, where there is a budget to hold it against."""

from __future__ import annotations

import torch

from debugkit.experiments import experiment
from debugkit.finding import NotExamined
from debugkit.instruments.memory_profile import memory_profile
from debugkit.observations.memory_demand import MemoryDemand
from debugkit.subject import Subject


@experiment(MemoryDemand, cost=1, requires=("batch",))
def predict_memory(subject: Subject) -> MemoryDemand:
    """Two steps on tensors without memory; for real where the code reads values."""
    budget, source = _budget(subject)
    optimizer = subject.optimizers[0] if subject.optimizers else None
    profile = memory_profile(subject.model, subject.fresh_batch(), subject.loss_fn, optimizer=optimizer)
    return MemoryDemand(profile, budget, source)


def _budget(subject: Subject) -> tuple[int, str]:
    if subject.declare.memory_budget is not None:
        return subject.declare.memory_budget, "declared"
    device = subject.device or next((p.device for p in subject.model.parameters()), torch.device("cpu"))
    if device.type == "cuda" and torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(device).total_memory), str(device)
    raise NotExamined("There is no budget to hold it against: say declare=Declare(memory_budget=24 * 2**30).")
