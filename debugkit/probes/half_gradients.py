"""Counts the non-zero and the subnormal values of float16 gradients: of modules' outputs and of parameters."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from debugkit.observations.half_gradients import HalfGradient, HalfGradients, HalfStep
from debugkit.probes import SAMPLED_EVERY, Probe, probe
from debugkit.structure import tensors_in
from debugkit.subject import Subject

_STEPS = 3
_MOST = 4096  # gradients of one step
_SMALLEST_NORMAL = torch.finfo(torch.float16).tiny  # 6.1e-5


class _Pending(NamedTuple):
    module: str
    parameter: str | None
    numel: int
    counts: tuple[Tensor, Tensor]  # non-zero, subnormal


@probe(HalfGradients, complete_after="backward", watch_every=SAMPLED_EVERY)
class HalfGradientsProbe(Probe[HalfGradients]):
    """Two scalars a gradient, on the device until the step ends. Costs nothing where nothing is float16.

    Gradients are seen as they pass: scaled, where the loop scales its loss.
    """

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._handles: list[RemovableHandle] = []
        self._pending: list[_Pending] = []
        self._losses: list[Tensor] = []
        self._steps: deque[HalfStep] = deque(maxlen=_STEPS)
        self._half = {
            id(p): name for name, p in subject.model.named_parameters() if p.dtype is torch.float16 and p.requires_grad
        }

    def __enter__(self) -> Self:
        for module in self.subject.module_paths:
            if not isinstance(module, torch.jit.ScriptModule):
                self._handles.append(module.register_forward_hook(self._after))
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._pending, self._losses = [], []

    def _after(self, module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1:
            return
        if torch._C._get_tracing_state() is not None or torch._C._functorch.peek_interpreter_stack() is not None:
            return
        if any(True for _ in module.children()):
            return  # what a container returns is its parts' output
        for _, tensor in tensors_in(output):
            if type(tensor) is Tensor and tensor.dtype is torch.float16 and tensor.requires_grad:
                tensor.register_hook(self._count(self.subject.module_paths[module]))  # type: ignore[no-untyped-call]

    def _count(self, path: str) -> Any:
        def count(gradient: Tensor) -> None:
            self._note(path, None, gradient)

        return count

    def _note(self, module: str, parameter: str | None, gradient: Tensor) -> None:
        if gradient.dtype is not torch.float16 or gradient.layout is not torch.strided or len(self._pending) >= _MOST:
            return
        if not self._handles:
            return  # a graph that outlived the watching
        with torch.no_grad():
            size = gradient.detach().abs()
            counts = (size > 0).sum(), ((size > 0) & (size < _SMALLEST_NORMAL)).sum()
        self._pending.append(_Pending(module, parameter, gradient.numel(), counts))

    def before_backward(self, loss: Tensor, /) -> None:
        self._losses.append(loss.detach().abs().max())

    def after_backward(self) -> None:
        if not self._half:
            return
        for path, parameter in self.subject.model.named_parameters():
            if id(parameter) in self._half and parameter.grad is not None:
                self._note(path.rpartition(".")[0], self._half[id(parameter)], parameter.grad)

    def end_step(self, step: int, /) -> None:
        pending, self._pending = self._pending, []
        losses, self._losses = self._losses, []
        if not pending:
            return
        values = _read([*losses, *(count for each in pending for count in each.counts)])
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


def _read(scalars: list[Tensor]) -> list[float]:
    if len({scalar.device for scalar in scalars}) > 1:
        scalars = [scalar.cpu() for scalar in scalars]
    return [float(value) for value in torch.stack([scalar.double() for scalar in scalars]).tolist()]
