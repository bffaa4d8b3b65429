"""Compare the weights of each layer with random draws, and the size of its outputs with that of its inputs."""

from __future__ import annotations

import math
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from debugkit._torch_private import in_backward, without_torch_function
from debugkit.finding import NotExamined
from debugkit.kolmogorov_smirnov import scaled_distance
from debugkit.probe import Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.rules.dk120_initial_scale import InitialScales, NewLayer
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_FEWEST_INPUTS = 16
_FEWEST_WEIGHTS = 64
_SAMPLE = 4096
_FARTHEST = 1.63
"""The 1 % level of the Kolmogorov–Smirnov test, times the root of the sample's size."""
_FEWEST_ROWS = 4
_ROWS_APART = 3.0
"""Deviations of the rows' sizes, in units of the deviation that random rows have."""


class InitialScaleProbe(Probe[InitialScales]):
    """Reads weights once, before the first step, and keeps two numbers of the first call of each layer."""

    watch_steps = 1

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._weights: dict[str, tuple[int, float]] = {}
        self._sizes: dict[str, tuple[Tensor, Tensor]] = {}
        self._calls: ModuleCalls | None = None

    def __enter__(self) -> Self:
        if any(optimizer.state for optimizer in self.setup.optimizers):
            raise NotExamined("The optimizer has a state, so these are not the first steps.")
        layers = [(path, module) for path, module in self.setup.named_modules if _is_plain(module)]
        for path, module in layers:
            drawn = _drawn(module.get_parameter("weight"))
            if drawn is not None:
                self._weights[path] = drawn
        self._calls = ModuleCalls([pair for pair in layers if pair[0] in self._weights], after=self._after)
        self._calls.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._calls is not None:
            self._calls.remove()

    @torch.no_grad()
    def _after(self, path: str, module: nn.Module, args: Any, _kwargs: Any, output: Any) -> None:
        if in_backward() or path in self._sizes:
            return
        with without_torch_function():
            inputs, outputs = (next((one for _, one in tensors_in(part)), None) for part in (args, output))
            if inputs is not None and outputs is not None and inputs.is_floating_point():
                self._sizes[path] = (_size(inputs), _size(_without_bias(module, outputs)))

    @property
    def observation(self) -> InitialScales:
        return InitialScales(
            tuple(
                NewLayer(path, *self._weights[path], *(float(size) for size in sizes))
                for path, sizes in self._sizes.items()
            )
        )


def _is_plain(module: nn.Module) -> bool:
    """A layer that multiplies by its own weights as they are, and trains."""
    kind = next((kind for kind in _LAYERS if isinstance(module, kind)), None)
    if kind is None or type(module).forward is not kind.forward or is_parametrized(module):
        return False
    weight = module.weight
    if not isinstance(weight, nn.Parameter) or not weight.requires_grad or weight.is_meta:
        return False
    return weight.is_floating_point() and weight.numel() >= _FEWEST_WEIGHTS


@torch.no_grad()
def _drawn(weight: Tensor) -> tuple[int, float] | None:
    """The fan-in and the root mean square, if the weights look like normal or uniform random numbers."""
    rows = weight.detach().flatten(1)
    fan_in = rows.shape[1]
    if fan_in < _FEWEST_INPUTS:
        return None
    rows = rows[:: -(-len(rows) // _SAMPLE)].double()
    sizes = rows.square().mean(dim=1).sqrt()
    rms = float(rows.square().mean().sqrt())
    if not math.isfinite(rms) or rms == 0.0:
        return None
    apart = float(sizes.std()) / rms if len(sizes) >= _FEWEST_ROWS else 0.0
    if apart > _ROWS_APART / math.sqrt(2 * fan_in):
        return None
    flat = rows.flatten()
    sample = (flat[:: -(-len(flat) // _SAMPLE)] / rms).sort().values
    normal, uniform = torch.special.ndtr(sample), (sample / math.sqrt(3)).clamp(-1, 1) / 2 + 0.5
    return (fan_in, rms) if min(scaled_distance(normal), scaled_distance(uniform)) < _FARTHEST else None


def _without_bias(module: nn.Module, outputs: Tensor) -> Tensor:
    """What the weights alone give: a bias may be set on purpose, as for a rare class."""
    bias = module.bias
    if not isinstance(bias, Tensor):
        return outputs
    behind = 0 if isinstance(module, nn.Linear) else module.get_parameter("weight").ndim - 2
    return outputs - bias.view(-1, *(1,) * behind)


def _size(tensor: Tensor) -> Tensor:
    """The root mean square."""
    wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    norm: Tensor = torch.linalg.vector_norm(tensor.detach(), dtype=wide)
    return norm / math.sqrt(max(1, tensor.numel()))
