"""Hears where autocast is switched on, and looks at the dtype of what linear layers and convolutions return."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from debugkit.frames import user_line
from debugkit.monitor.patches import Patches
from debugkit.observations.autocast_use import AutocastRegion, AutocastUse, Product
from debugkit.probes import SAMPLED_EVERY, Probe, probe
from debugkit.subject import Subject

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@probe(AutocastUse, watch_every=SAMPLED_EVERY)
class AutocastUseProbe(Probe[AutocastUse]):
    """Reads no tensor's value."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._handles: list[RemovableHandle] = []
        self._patches = Patches()
        self._regions: dict[tuple[str, str], AutocastRegion] = {}
        self._products: dict[tuple[str, str, str, bool], int] = {}
        self._last = AutocastUse((), ())

    def __enter__(self) -> Self:
        self._patches = Patches().__enter__()
        self._patches.around(torch.amp.autocast_mode.autocast, "__enter__", after=self._entered)
        for module in self.subject.module_paths:
            if _multiplies(module):
                self._handles.append(module.register_forward_hook(self._after))
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.__exit__(None, None, None)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _entered(self, region: Any, *_: Any) -> None:
        if torch.compiler.is_compiling() or not region._enabled or torch._C._current_graph_task_id() != -1:
            return
        key = region.device, str(region.fast_dtype).removeprefix("torch.")
        if key not in self._regions:
            self._regions[key] = AutocastRegion(*key, user_line())

    def _after(self, module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1 or not torch.is_grad_enabled():
            return
        if not isinstance(output, Tensor) or not isinstance(module.weight, Tensor):
            return
        device = output.device.type
        on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        key = self.subject.module_paths[module], device, str(output.dtype).removeprefix("torch."), on
        self._products[key] = self._products.get(key, 0) + 2 * output.numel() * _depth(module)

    def end_step(self, _step: int, /) -> None:
        products = tuple(Product(*key, operations) for key, operations in self._products.items())
        self._last = AutocastUse(tuple(self._regions.values()), products)
        self._regions, self._products = {}, {}

    @property
    def observation(self) -> AutocastUse:
        return self._last


def _multiplies(module: nn.Module) -> bool:
    """A linear layer, a convolution, or `transformers`' Conv1D, which is a linear layer."""
    if isinstance(module, torch.jit.ScriptModule):
        return False
    return isinstance(module, _LAYERS) or (type(module).__name__ == "Conv1D" and hasattr(module, "nx"))


def _depth(module: nn.Module) -> int:
    """How many products are added up for one element of the output."""
    if isinstance(module, nn.Linear):
        return module.in_features
    weight = module.weight
    return int(getattr(module, "nx", 0)) or (weight[0].numel() if isinstance(weight, Tensor) else 0)
