"""Counts the non-zero and the subnormal values of float16 gradients: of modules' outputs and of parameters."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from debugkit._torch_private import in_backward, in_transform
from debugkit.probe import SAMPLED_EVERY, THOROUGH_STEPS, Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.recorders.scalars import read_scalars
from debugkit.rules.dk209_underflow import HalfGradient, HalfGradients, HalfStep
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_STEPS = 3
_MOST = 4096  # gradients of one step
_SMALLEST_NORMAL = torch.finfo(torch.float16).tiny  # 6.1e-5


class _Pending(NamedTuple):
    module: str
    parameter: str | None
    numel: int
    counts: tuple[Tensor, Tensor]  # non-zero, subnormal


class HalfGradientsProbe(Probe[HalfGradients]):
    """Two scalars for each gradient, kept on the device until the step ends. Costs nothing without float16.

    Gradients are measured as they are during backward: scaled, if the loop scales its loss.
    """

    complete_after = "backward"
    watch_first = THOROUGH_STEPS
    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._calls = ModuleCalls(setup.named_modules, after=self._after)
        self._pending: list[_Pending] = []
        self._losses: list[Tensor] = []
        self._steps: deque[HalfStep] = deque(maxlen=_STEPS)
        self._half = {
            id(p): name for name, p in setup.model.named_parameters() if p.dtype is torch.float16 and p.requires_grad
        }

    def __enter__(self) -> Self:
        self._calls.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._calls.remove()
        self._pending, self._losses = [], []

    def _after(self, path: str, module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or in_backward():
            return
        if in_transform():
            return
        if any(True for _ in module.children()):
            return  # a container returns the outputs of its parts
        for _, tensor in tensors_in(output):
            if type(tensor) is Tensor and tensor.dtype is torch.float16 and tensor.requires_grad:
                tensor.register_hook(self._count(path))  # type: ignore[no-untyped-call]

    def _count(self, path: str) -> Any:
        def count(gradient: Tensor) -> None:
            self._record(path, None, gradient)

        return count

    def _record(self, module: str, parameter: str | None, gradient: Tensor) -> None:
        if gradient.dtype is not torch.float16 or gradient.layout is not torch.strided or len(self._pending) >= _MOST:
            return
        if not self._calls:
            return  # the graph outlived the probe
        with torch.no_grad():
            size = gradient.detach().abs()
            counts = (size > 0).sum(), ((size > 0) & (size < _SMALLEST_NORMAL)).sum()
        self._pending.append(_Pending(module, parameter, gradient.numel(), counts))

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        self._losses.append(losses[0].detach().abs().max())

    def after_backward(self) -> None:
        if not self._half:
            return
        for path, parameter in self.setup.model.named_parameters():
            if id(parameter) in self._half and parameter.grad is not None:
                self._record(path.rpartition(".")[0], self._half[id(parameter)], parameter.grad)

    def end_step(self, step: int, /) -> None:
        pending, self._pending = self._pending, []
        losses, self._losses = self._losses, []
        if not pending:
            return
        values = read_scalars([*losses, *(count for each in pending for count in each.counts)])
        counts = [int(value) for value in values[len(losses) :]]
        self._steps.append(
            HalfStep(
                step=step,
                zero_loss=not any(value > 0.0 for value in values[: len(losses)]),
                gradients=tuple(
                    HalfGradient(each.module, each.parameter, each.numel, counts[2 * i], counts[2 * i + 1])
                    for i, each in enumerate(pending)
                ),
            )
        )

    @property
    def observation(self) -> HalfGradients:
        return HalfGradients(len(self._half), tuple(self._steps))
