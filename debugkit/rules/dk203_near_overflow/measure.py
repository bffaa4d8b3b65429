"""Minimum and maximum of modules' inputs and outputs: for every dtype in the first step, for float16 in all steps."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from debugkit._torch_private import in_backward, in_transform, without_torch_function
from debugkit.probe import SAMPLED_EVERY, SETTLING_STEPS, Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.recorders.scalars import read_scalars
from debugkit.recorders.timeline import has_range
from debugkit.rules.dk203_near_overflow import DtypePeaks, TensorPeak
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_MOST = 4096  # tensors of one step
_SMALL = 0.01  # of the largest number: the rule judges values from 0.1 on
_MULTIPLIES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Bilinear)  # modules whose inputs autocast converts


class _Pending(NamedTuple):
    module: str
    role: str
    dtype: torch.dtype
    converted: bool
    extremes: tuple[Tensor, Tensor, Tensor]  # minimum, maximum, count of the minimum


class DtypePeaksProbe(Probe[DtypePeaks]):
    """Three scalars for each tensor, kept on the device until the step ends.

    bfloat16 and float32 are checked in the first step only: a value near the end of their range is there from the
    start.
    """

    partial = True
    watch_first = SETTLING_STEPS
    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._calls = ModuleCalls(setup.named_modules, before=self._before, after=self._after)
        self._pending: list[_Pending] = []
        self._seen: dict[int, weakref.ref[Tensor]] = {}
        self._first_step = True
        self._last = DtypePeaks(())

    def __enter__(self) -> Self:
        self._calls.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._calls.remove()
        self._clear()

    def _before(self, path: str, module: nn.Module, args: tuple[Any, ...], _kwargs: Any) -> None:
        self._check(path, module, "input", (tensor for tensor in args if isinstance(tensor, Tensor)))

    def _after(self, path: str, module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        self._check(path, module, "output", (tensor for _, tensor in tensors_in(output)))

    def _check(self, path: str, module: nn.Module, role: str, tensors: Iterable[Tensor]) -> None:
        tensors = list(tensors)
        if not self._first_step and not any(map(_may_overflow, tensors)):
            return
        if torch.compiler.is_compiling() or in_backward() or in_transform() or len(self._pending) >= _MOST:
            return
        with without_torch_function():
            self._check_each(path, module, role, tensors)

    def _check_each(self, path: str, module: nn.Module, role: str, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            converted = role == "input" and _becomes_float16(module, tensor)
            checked = self._first_step or converted or tensor.dtype is torch.float16
            if checked and has_range(tensor) and not tensor.is_complex() and (converted or self._is_new(tensor)):
                self._measure(path, role, tensor.detach(), converted)

    def _measure(self, path: str, role: str, values: Tensor, converted: bool) -> None:
        dtype = torch.float16 if converted else values.dtype
        with torch.no_grad():
            minimum, maximum = torch.aminmax(values)
            if values.device.type == "cpu" and minimum > _SMALL * torch.finfo(dtype).min:
                count = torch.ones(())  # no mask; reading a value of a CPU does not wait
            else:
                count = (values == minimum).sum()
            extremes = minimum, maximum, count
        self._pending.append(_Pending(path, role, dtype, converted, extremes))

    def _is_new(self, tensor: Tensor) -> bool:
        known = self._seen.get(id(tensor))
        self._seen[id(tensor)] = weakref.ref(tensor)
        return known is None or known() is not tensor

    def end_step(self, _step: int, /) -> None:
        values = read_scalars([scalar for pending in self._pending for scalar in pending.extremes])
        peaks = []
        for index, pending in enumerate(self._pending):
            minimum, maximum, count = values[3 * index : 3 * index + 3]
            peaks.append(
                TensorPeak(
                    module=pending.module,
                    role=pending.role,
                    dtype=str(pending.dtype).removeprefix("torch."),
                    limit=torch.finfo(pending.dtype).max,
                    converted=pending.converted,
                    minimum=minimum,
                    maximum=maximum,
                    at_minimum=int(count),
                )
            )
        self._last = DtypePeaks(tuple(peaks))
        self._first_step = False
        self._clear()

    def _clear(self) -> None:
        self._pending = []
        self._seen.clear()

    @property
    def observation(self) -> DtypePeaks:
        return self._last


def _may_overflow(tensor: Tensor) -> bool:
    """Whether the tensor is float16, or autocast may convert it to float16."""
    device = tensor.device.type
    return tensor.dtype is torch.float16 or (
        torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    )


def _becomes_float16(module: nn.Module, tensor: Tensor) -> bool:
    device = tensor.device.type
    return (
        tensor.dtype in (torch.float32, torch.bfloat16)
        and isinstance(module, _MULTIPLIES)
        and torch.amp.is_autocast_available(device)
        and torch.is_autocast_enabled(device)
        and torch.get_autocast_dtype(device) is torch.float16
    )
