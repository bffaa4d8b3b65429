"""Lets the tests of this folder share `training_loops`: pytest's importlib mode puts no folder on the path itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def program() -> tuple[nn.Module, list[torch.optim.Optimizer]]:
    """A small policy and its optimizers."""
    import training_loops

    torch.manual_seed(0)
    model = training_loops.Policy()
    return model, [torch.optim.AdamW(model.parameters())]
