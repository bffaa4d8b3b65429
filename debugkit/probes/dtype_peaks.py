"""Minimum and maximum of modules' inputs and outputs, of every dtype in the first step, of float16 in all."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from debugkit.monitor.timeline import has_range
from debugkit.observations.dtype_peaks import DtypePeaks, TensorPeak
from debugkit.probes import SAMPLED_EVERY, Probe, probe
from debugkit.structure import tensors_in
from debugkit.subject import Subject

_MOST = 4096  # tensors of one step
_MULTIPLIES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Bilinear)  # what autocast converts the input of


class _Pending(NamedTuple):
    module: str
    role: str
    dtype: torch.dtype
    converted: bool
    extremes: tuple[Tensor, Tensor, Tensor]  # minimum, maximum, how many are the minimum


@probe(DtypePeaks, partial=True, watch_every=SAMPLED_EVERY)
class DtypePeaksProbe(Probe[DtypePeaks]):
    """Three scalars a tensor, on the device until the step ends.

    bfloat16 and float32 are looked at once: their range is such that what comes near its end is there from the start.
    """

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._handles: list[RemovableHandle] = []
        self._pending: list[_Pending] = []
        self._seen: dict[int, weakref.ref[Tensor]] = {}
        self._first_step = True
        self._last = DtypePeaks(())

    def __enter__(self) -> Self:
        for module in self.subject.module_paths:
            if not isinstance(module, torch.jit.ScriptModule):
                self._handles.append(module.register_forward_pre_hook(self._before))
                self._handles.append(module.register_forward_hook(self._after))
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._forget()

    def _before(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._look(module, "input", (tensor for tensor in args if isinstance(tensor, Tensor)))

    def _after(self, module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        self._look(module, "output", (tensor for _, tensor in tensors_in(output)))

    def _look(self, module: nn.Module, role: str, tensors: Iterable[Tensor]) -> None:
        if torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1 or len(self._pending) >= _MOST:
            return
        if torch._C._get_tracing_state() is not None or torch._C._functorch.peek_interpreter_stack() is not None:
            return
        for tensor in tensors:
            converted = role == "input" and _becomes_float16(module, tensor)
            looked_at = self._first_step or converted or tensor.dtype is torch.float16
            if looked_at and has_range(tensor) and not tensor.is_complex() and (converted or self._is_new(tensor)):
                self._measure(module, role, tensor.detach(), converted)

    def _measure(self, module: nn.Module, role: str, values: Tensor, converted: bool) -> None:
        with torch.no_grad():
            minimum, maximum = torch.aminmax(values)
            extremes = minimum, maximum, (values == minimum).sum()
        dtype = torch.float16 if converted else values.dtype
        self._pending.append(_Pending(self.subject.module_paths[module], role, dtype, converted, extremes))

    def _is_new(self, tensor: Tensor) -> bool:
        known = self._seen.get(id(tensor))
        self._seen[id(tensor)] = weakref.ref(tensor)
        return known is None or known() is not tensor

    def end_step(self, _step: int, /) -> None:
        values = _read([scalar for pending in self._pending for scalar in pending.extremes])
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
        self._forget()

    def _forget(self) -> None:
        self._pending = []
        self._seen.clear()

    @property
    def observation(self) -> DtypePeaks:
        return self._last


def _becomes_float16(module: nn.Module, tensor: Tensor) -> bool:
    device = tensor.device.type
    return (
        tensor.dtype in (torch.float32, torch.bfloat16)
        and isinstance(module, _MULTIPLIES)
        and torch.amp.is_autocast_available(device)
        and torch.is_autocast_enabled(device)
        and torch.get_autocast_dtype(device) is torch.float16
    )


def _read(scalars: list[Tensor]) -> list[float]:
    if len({scalar.device for scalar in scalars}) > 1:
        scalars = [scalar.cpu() for scalar in scalars]
    return [float(value) for value in torch.stack([scalar.double() for scalar in scalars]).tolist()] if scalars else []
