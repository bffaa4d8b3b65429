"""The last module calls of a forward pass with the extremes of their weights, inputs and outputs.

What transformers' DebugUnderflowOverflow prints, for outputs of any nesting and tensors of any type.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from debugkit.monitor.timeline import has_range
from debugkit.observations.nonfinite import Extremes, Frame
from debugkit.structure import tensors_in


class FrameRecorder:
    """`with FrameRecorder(model, last=21) as recorder: model(x)`, then `recorder.frames`, oldest first.

    `running` is the list of the module paths inside which the program is now. With `stop_at`, recording ends with the
    first frame for which it is true; `stopped` then says so.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        last: int | None = 21,
        prefix: str = "",
        running: list[str] | None = None,
        stop_at: Callable[[Frame], bool] | None = None,
    ) -> None:
        self.model = model
        self.frames: deque[Frame] = deque(maxlen=last)
        self.running = running if running is not None else []
        self.stopped = False
        self._prefix = prefix
        self._stop_at = stop_at
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        for path, module in self.model.named_modules():
            if not isinstance(module, torch.jit.ScriptModule):
                self._hook(self._prefix + path, module)
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hook(self, path: str, module: nn.Module) -> None:
        def before(_module: nn.Module, _args: Any) -> None:
            self.running.append(path)

        def after(called: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if self.running and self.running[-1] == path:
                self.running.pop()
            if not self.stopped:
                self._record(path, called, args, kwargs, output)

        self._handles.append(module.register_forward_pre_hook(before))
        self._handles.append(module.register_forward_hook(after, with_kwargs=True, always_call=True))

    def _record(self, path: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        # Measured where no dispatch mode sees it: this is the tool's work, not the model's.
        with torch.no_grad(), torch.utils._python_dispatch._disable_current_modes():
            measured = (
                *_extremes("", dict(module.named_parameters(recurse=False))),
                *_extremes("input", (*args, *kwargs.values())),
                *_extremes("output", output),
            )
        frame = Frame(path, type(module).__name__, tuple(measured))
        self.frames.append(frame)
        self.stopped = self._stop_at is not None and self._stop_at(frame)


def render_frames(frames: tuple[Frame, ...]) -> str:
    """A table a person reads: one block a module call, absolute minimum and maximum of each tensor."""
    lines = ["abs min  abs max  tensor"]
    for frame in frames:
        lines.append(f"{'':18}{frame.module or '(root)'}  {frame.class_name}")
        lines += [f"{t.minimum:8.2e} {t.maximum:8.2e} {t.name}" for t in frame.tensors]
    return "\n".join(lines)


def _extremes(name: str, value: Any) -> Iterator[Extremes]:
    tensors = [(path, tensor) for path, tensor in tensors_in(value) if has_range(tensor)]
    for path, tensor in tensors:
        label = path if not name else name if len(tensors) == 1 else f"{name}[{path}]"
        low, high = torch.aminmax(_absolute(tensor))
        yield Extremes(label, float(low), float(high))


def _absolute(tensor: Tensor) -> Tensor:
    return tensor.detach().abs()
