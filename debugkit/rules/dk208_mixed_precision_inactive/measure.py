"""Records where autocast is enabled, and the dtype that linear layers and convolutions return."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn

from debugkit._torch_private import autocast_is_enabled, in_backward
from debugkit.frames import user_line
from debugkit.probe import SAMPLED_EVERY, THOROUGH_STEPS, Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.recorders.patches import Patches
from debugkit.rules.dk208_mixed_precision_inactive import AutocastRegion, AutocastUse, Product
from debugkit.setup import TrainingSetup

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class AutocastUseProbe(Probe[AutocastUse]):
    """Reads no tensor values."""

    watch_first = THOROUGH_STEPS
    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        layers = ((path, module) for module, path in setup.module_paths.items() if _multiplies(module))
        self._calls = ModuleCalls(layers, after=self._after)
        self._patches = Patches()
        self._regions: dict[tuple[str, str], AutocastRegion] = {}
        self._products: dict[tuple[str, str, str, bool], int] = {}
        self._last = AutocastUse((), ())

    def __enter__(self) -> Self:
        self._patches = Patches().__enter__()
        self._patches.around(torch.amp.autocast_mode.autocast, "__enter__", after=self._entered)
        self._calls.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.__exit__(None, None, None)
        self._calls.remove()

    def _entered(self, region: Any, *_: Any) -> None:
        if torch.compiler.is_compiling() or not autocast_is_enabled(region) or in_backward():
            return
        key = region.device, str(region.fast_dtype).removeprefix("torch.")
        if key not in self._regions:
            self._regions[key] = AutocastRegion(*key, user_line())

    def _after(self, path: str, module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or in_backward() or not torch.is_grad_enabled():
            return
        if not isinstance(output, Tensor) or not isinstance(module.weight, Tensor):
            return
        device = output.device.type
        on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        key = path, device, str(output.dtype).removeprefix("torch."), on
        self._products[key] = self._products.get(key, 0) + 2 * output.numel() * _depth(module)

    def end_step(self, _step: int, /) -> None:
        products = tuple(Product(*key, operations) for key, operations in self._products.items())
        self._last = AutocastUse(tuple(self._regions.values()), products)
        self._regions, self._products = {}, {}

    @property
    def observation(self) -> AutocastUse:
        return self._last


def _multiplies(module: nn.Module) -> bool:
    """Whether it is a linear layer, a convolution, or `transformers`' Conv1D, which is a linear layer."""
    if isinstance(module, torch.jit.ScriptModule):
        return False
    return isinstance(module, _LAYERS) or (type(module).__name__ == "Conv1D" and hasattr(module, "nx"))


def _depth(module: nn.Module) -> int:
    """How many products are summed for one element of the output."""
    if isinstance(module, nn.Linear):
        return module.in_features
    weight = module.weight
    return int(getattr(module, "nx", 0)) or (weight[0].numel() if isinstance(weight, Tensor) else 0)
