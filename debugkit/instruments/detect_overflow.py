"""detect_overflow: how close each module comes to the largest value of a dtype, and which one exceeds it first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from debugkit.finding import NotExamined
from debugkit.plain_data import PlainData
from debugkit.preserve_state import preserved
from debugkit.setup import LossFn, TrainingSetup
from debugkit.step import quiet_eager
from debugkit.step_replay.call_frames import FrameRecorder, render_frames
from debugkit.step_replay.nonfinite import Frame

_NEAR = 0.1  # of the dtype's largest value: one more factor of ten in a batch is nothing unusual


@dataclass(frozen=True)
class Overflow(PlainData):
    """The result of `detect_overflow`: one forward pass compared with `limit`, the largest value of `dtype`.

    `first` is the path of the first module with a NaN, an Inf or a value beyond the limit; None if there is none.
    `near` are modules whose largest absolute output exceeds a tenth of the limit, with that value. `frames` are the
    last module calls, up to the first beyond the limit if there is one.
    """

    dtype: str
    limit: float
    first: str | None
    near: tuple[tuple[str, float], ...]
    frames: tuple[Frame, ...]

    def __str__(self) -> str:
        told = (
            f"{self.first or '(root)'} is the first beyond {self.limit:.4g}, the largest {self.dtype}."
            if self.first is not None
            else f"Every value is below {self.limit:.4g}, the largest {self.dtype}."
        )
        near = "".join(f"\n  {path or '(root)'}: {value:.4g}" for path, value in self.near)
        return f"{told}\n{render_frames(self.frames)}" + (f"\nNear the limit:{near}" if near else "")


def detect_overflow(
    model: nn.Module,
    batch: Any,
    loss_fn: LossFn | None = None,
    *,
    dtype: torch.dtype | None = None,
    last: int | None = 21,
) -> Overflow:
    """Run one forward pass and compare the weights, inputs and outputs of every module with the range of `dtype`.

    `dtype` is the one you want to train in, float16 by default, so a float32 model can be examined before it is
    converted. `last` is how many module calls to keep, None for all. `loss_fn(model, batch)` returns a scalar tensor;
    the default is `model(**batch).loss`. The model is restored.

    Raises NotExamined if there is no scalar loss or if `dtype` is not a floating dtype.

    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    >>> _ = nn.init.constant_(model[0].weight, 300.0), nn.init.constant_(model[1].weight, 300.0)
    >>> overflow = detect_overflow(model, torch.ones(1, 2), lambda model, batch: model(batch).sum())
    >>> overflow.first, overflow.near
    ('1', (('1', 360000.0),))
    """
    compared = dtype or torch.float16
    if not compared.is_floating_point:
        raise NotExamined(f"{compared} has no overflow to Inf: pass torch.float16, torch.bfloat16 or torch.float32.")
    limit = torch.finfo(compared).max
    setup = TrainingSetup.of(model, batch, loss_fn)
    everything = FrameRecorder(model, last=None)
    with preserved(setup), quiet_eager(model), everything:
        setup.loss()
    frames = list(everything.frames)
    stop = next((i for i, frame in enumerate(frames) if _beyond(frame, limit)), None)
    shown = frames if stop is None else frames[: stop + 1]
    near: dict[str, float] = {}
    for frame in frames:
        value = _largest_output(frame)
        if value > _NEAR * limit and value not in near.values():  # a container hands on what its last part made
            near[frame.module] = value
    return Overflow(
        dtype=str(compared).removeprefix("torch."),
        limit=limit,
        first=None if stop is None else frames[stop].module,
        near=tuple(near.items()),
        frames=tuple(shown if last is None else shown[-last:]),
    )


def _beyond(frame: Frame, limit: float) -> bool:
    return any(math.isnan(tensor.maximum) or tensor.maximum > limit for tensor in frame.tensors)


def _largest_output(frame: Frame) -> float:
    values = [tensor.maximum for tensor in frame.tensors if tensor.name.startswith("output")]
    return max((value for value in values if math.isfinite(value)), default=0.0)
