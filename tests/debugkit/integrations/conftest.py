"""What the tests of every integration ask: is anything still attached?"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim import optimizer as optimizer_module


def _attached(model: nn.Module) -> int:
    """Hooks on the model, on every optimizer and around backward()."""
    hooks = sum(
        len(getattr(module, kind))
        for module in model.modules()
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    )
    wrapped = sum(hasattr(function, "__wrapped__") for function in (torch.autograd.backward,))
    own = sum("training_step" in vars(module) for module in model.modules())
    everywhere = len(optimizer_module._global_optimizer_pre_hooks) + len(optimizer_module._global_optimizer_post_hooks)
    return hooks + wrapped + own + everywhere + hasattr(Optimizer.zero_grad, "__wrapped__")


@pytest.fixture
def attached() -> Callable[[nn.Module], int]:
    return _attached
