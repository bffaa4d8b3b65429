"""Tests whether the loss depends on some parameters, or on the result of a line, by changing them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from debugkit.interventions.losses import losses_of
from debugkit.measurements.graph_cut.gradient_stops import GradientStops, Site
from debugkit.preserve_state import preserved
from debugkit.setup import TrainingSetup
from debugkit.structure import map_tensors

_RELATIVE_NOISE = 0.1  # large enough to pass a rounding step, small enough not to saturate what follows
_FLOOR = 1e-2  # noise for values that are exactly zero


class LossDependence:
    """Repeats one forward with a single change and compares the losses.

    Every forward draws the same random numbers. Parameters that are entirely zero (a gate, LoRA's B, a zero-initialised
    last layer) are set to small values first, because behind them no change would have an effect.
    """

    def __init__(self, setup: TrainingSetup) -> None:
        self.setup = setup
        self._zeros = [p for p in setup.model.parameters() if p.is_floating_point() and not p.detach().any()]
        self._unchanged = self._losses()
        # Equal passes are identical on a CPU. If they differ, changes below ten times that difference are ignored.
        self._floor = 10 * _distance(self._unchanged, self._losses())

    def on_parameters(self, parameters: Iterable[nn.Parameter]) -> float:
        """How far the loss moves when these parameters are changed; 0.0 if it does not."""
        with _noisy(parameters):
            return self._moved()

    def on_site(self, site: Site) -> float:
        """How far the loss moves when the result of this line is changed; 0.0 if it does not."""
        return self._moved(_Changed(site))

    def _moved(self, mode: GradientStops | None = None) -> float:
        try:
            distance = _distance(self._unchanged, self._losses(mode))
        except Exception:  # the changed value is invalid (an index, a size), which shows that it is used
            return math.inf
        return distance if distance > self._floor else 0.0

    def _losses(self, mode: GradientStops | None = None) -> list[float]:
        with preserved(self.setup), _noisy(self._zeros, only_zeros=True), mode or contextlib.nullcontext():
            return [float(loss.detach().double()) for loss in losses_of(self.setup)]


class _Changed(GradientStops):
    """Adds noise to the result of one line."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site_to_change = site

    def on_stop(self, site: Site, _nodes: list[Node], output: Any) -> Any:
        return _change(output) if site == self._site_to_change else output


@contextlib.contextmanager
def _noisy(parameters: Iterable[nn.Parameter], only_zeros: bool = False) -> Iterator[None]:
    """Replace the parameters' storage by noisy values, and restore the original storage, which is never written to."""
    originals = [(p, p.data) for p in parameters]
    try:
        for index, (parameter, value) in enumerate(originals):
            if not (only_zeros and value.any()):
                scale = _scale(value) or _FLOOR
                parameter.data = value + scale * _noise(value, index)
        yield
    finally:
        for parameter, value in originals:
            parameter.data = value


def _change(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _changed_tensor(value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * (1 + _RELATIVE_NOISE) + _FLOOR
    if type(value) is list:
        return [_change(item) for item in value]
    if type(value).__module__ == "numpy":
        return _changed_tensor(torch.from_numpy(value.copy())).numpy()
    return map_tensors(value, lambda _, tensor: _changed_tensor(tensor))


def _changed_tensor(tensor: Tensor) -> Tensor:
    if isinstance(tensor, nn.Parameter) or tensor.numel() == 0:
        return tensor
    if tensor.dtype is torch.bool:
        return ~tensor
    if not (tensor.is_floating_point() or tensor.is_complex()):
        # Rotated indices stay in range. If all are equal, use the next lower index, or 1 for 0.
        moved = tensor.flatten().roll(1).view(tensor.shape)
        return moved if not torch.equal(moved, tensor) else (tensor - 1).abs()
    return tensor + (_RELATIVE_NOISE * _scale(tensor) + _FLOOR) * _noise(tensor)


def _noise(like: Tensor, seed: int = 0) -> Tensor:
    """Normal noise from a separate generator, so that the program's random state does not change."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator).to(like.device, like.dtype)


def _scale(tensor: Tensor) -> float:
    finite = tensor.detach().double().nan_to_num(0.0, 0.0, 0.0)
    return float(finite.square().mean().sqrt())


def _distance(before: list[float], after: list[float]) -> float:
    if len(before) != len(after):
        return math.inf
    return max((_gap(a, b) for a, b in zip(before, after, strict=True)), default=0.0)


def _gap(a: float, b: float) -> float:
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b)
    return 0.0 if str(a) == str(b) else math.inf
