"""The last module calls of a forward pass with the extremes of their weights, inputs and outputs.

The same report as transformers' DebugUnderflowOverflow, but for nested outputs and tensors of any dtype.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn

from debugkit._torch_private import without_dispatch_modes
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.recorders.timeline import has_range
from debugkit.step_replay.nonfinite import Extremes, Frame
from debugkit.structure import tensors_in


class FrameRecorder:
    """`with FrameRecorder(model, last=21) as recorder: model(x)`, then `recorder.frames`, oldest first.

    `running` is the list of the paths of the modules that are running. With `stop_at`, recording ends with the first
    frame for which it returns True; `stopped` is then True.
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
        self._calls = ModuleCalls(before=self._before, after=self._after, also_raised=True)

    def __enter__(self) -> Self:
        for path, module in self.model.named_modules():
            self._calls.attach(self._prefix + path, module)
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.remove()

    def _before(self, path: str, *_: Any) -> None:
        self.running.append(path)

    def _after(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self.running and self.running[-1] == path:
            self.running.pop()
        if not self.stopped:
            self._record(path, module, args, kwargs, output)

    def _record(self, path: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        # Measured outside every dispatch mode, because these operations are not the model's.
        with torch.no_grad(), without_dispatch_modes():
            measured = (
                *_extremes("", dict(module.named_parameters(recurse=False))),
                *_extremes("input", (*args, *kwargs.values())),
                *_extremes("output", output),
            )
        frame = Frame(path, type(module).__name__, tuple(measured))
        self.frames.append(frame)
        self.stopped = self._stop_at is not None and self._stop_at(frame)


def render_frames(frames: tuple[Frame, ...]) -> str:
    """A table for the terminal: one block per module call, with the absolute minimum and maximum of each tensor."""
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
