"""Predict the peak memory of a training step, if there is a budget to compare it with."""

from __future__ import annotations

import torch

from debugkit.finding import NotExamined
from debugkit.measurements.memory_profile.measure import memory_profile
from debugkit.rules.dk604_memory_budget import MemoryDemand
from debugkit.setup import TrainingSetup


def predict_memory(setup: TrainingSetup) -> MemoryDemand:
    """Run two steps on fake tensors, or two real ones if the code reads values."""
    budget, source = _budget(setup)
    optimizer = setup.optimizers[0] if setup.optimizers else None
    profile = memory_profile(setup.model, setup.fresh_batch(), setup.loss_fn, optimizer=optimizer)
    return MemoryDemand(profile, budget, source)


def _budget(setup: TrainingSetup) -> tuple[int, str]:
    if setup.declare.memory_budget is not None:
        return setup.declare.memory_budget, "declared"
    device = setup.device or next((p.device for p in setup.model.parameters()), torch.device("cpu"))
    if device.type == "cuda" and torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(device).total_memory), str(device)
    raise NotExamined(
        "There is no memory budget to compare with: pass declare=Declare(memory_budget=24 * 2**30), in bytes."
    )
