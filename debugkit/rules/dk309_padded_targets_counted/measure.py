"""Changes the targets of padded action steps, then which steps are padded. The losses show how the loss averages.

For two halves A and B of the valid steps, a mean over valid steps is the weighted mean of the halves' losses. A mean
over all steps, taken after masking, is their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.interventions.batch_roles import SHORT_PAD_NAMES, entry, target
from debugkit.interventions.passes import Pass, evaluate, floor
from debugkit.rules.dk309_padded_targets_counted import PaddedActions
from debugkit.setup import TrainingSetup
from debugkit.structure import map_tensors

_LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
_SUSPECT = 0.1
"""If the loss is this close to the sum of its halves, one more pass searches for the mean."""


def change_padded_actions(setup: TrainingSetup) -> PaddedActions:
    """Two passes with a row that is all padding, two with other steps marked, and one to find the line of the mean."""
    path, is_pad, action_path, action = _padded_chunk(setup)

    def run(marked: torch.Tensor, targets: torch.Tensor = action) -> Pass:
        given = {path: marked, action_path: targets}
        batch = map_tensors(setup.fresh_batch(), lambda name, tensor: given[name].clone() if name in given else tensor)
        return evaluate(setup, batch, output_needed=False)

    whole, threshold = floor(setup, output_needed=False)
    target_moved = _moved_by_a_padded_row(run, is_pad, action)
    first, second = _halves(~is_pad)
    both, one, two = (float(each.loss) for each in (whole, run(~first), run(~second)))
    sizes = int(first.sum()), int(second.sum())
    weighted = (one * sizes[0] + two * sizes[1]) / sum(sizes)
    additivity = _relative(one + two, both)
    with _MeansOverSteps(is_pad) as means:
        if additivity < _SUSPECT:
            run(is_pad)
    return PaddedActions(
        path=path,
        padded=int(is_pad.sum()),
        steps=is_pad.numel(),
        floor=threshold,
        target_moved=target_moved,
        additivity=additivity,
        weighted=_relative(weighted, both),
        mean_at=means.line,
    )


def _padded_chunk(setup: TrainingSetup) -> tuple[str, torch.Tensor, str, torch.Tensor]:
    found, chunk = entry(setup, SHORT_PAD_NAMES), target(setup)
    if found is None or chunk is None:
        raise NotExamined("The batch has no action together with an action_is_pad.")
    (path, is_pad), (action_path, action) = found, chunk
    if is_pad.dtype is not torch.bool or is_pad.ndim != 2 or action.shape[:2] != is_pad.shape or action.ndim != 3:
        raise NotExamined(f"{path} is not a (B, H) mask of {action_path} (B, H, A).")
    if not bool(is_pad.any()):
        raise NotExamined("No action step of this batch is padding.")
    if int((~is_pad).sum()) < 2:
        raise NotExamined("The batch has fewer than two action steps without padding.")
    return path, is_pad, action_path, action


def _moved_by_a_padded_row(
    run: Callable[[torch.Tensor, torch.Tensor], Pass], is_pad: torch.Tensor, action: torch.Tensor
) -> float:
    """How far the loss moves with the targets of a sample whose steps are all marked as padding; NaN for one sample.

    The whole sample is marked, because in flow matching a step's target is also an input to the other steps of its
    chunk.
    """
    if len(is_pad) < 2:
        return float("nan")
    row = int(is_pad.sum(1).argmax())
    marked, other = is_pad.clone(), action.clone()
    marked[row] = True
    other[row] += 1 + action.abs().max()
    return _relative(float(run(marked, action).loss), float(run(marked, other).loss))


def _halves(valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two disjoint parts of `valid` that together cover it, of different sizes if there are enough steps."""
    order = valid.flatten().nonzero().flatten()
    first = torch.zeros(valid.numel(), dtype=torch.bool, device=valid.device)
    first[order[::3]] = True
    first = first.view(valid.shape)
    return first, valid & ~first


def _relative(one: float, other: float) -> float:
    return abs(one - other) / max(abs(one), abs(other), 1e-12)


class _MeansOverSteps(TorchFunctionMode):
    """Finds the first line that takes a mean over steps of something that is zero exactly where there is padding."""

    def __init__(self, is_pad: torch.Tensor) -> None:
        super().__init__()
        self.is_pad = is_pad
        self.line: SourceLine | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.line is None:
            averaged = _averaged(getattr(func, "__name__", ""), args, kwargs)
            if averaged is not None and self._masked(averaged):
                self.line = user_line()
        return func(*args, **kwargs)

    def _masked(self, tensor: torch.Tensor) -> bool:
        """Whether it is zero at every padded step, non-zero at most others, and not just a mask of zeros and ones."""
        size, steps = self.is_pad.shape
        if tensor.ndim < 2 or tensor.shape[1] != steps or tensor.shape[0] % size or not tensor.is_floating_point():
            return False
        counted = tensor.detach() != 0
        if bool((tensor.detach()[counted] == 1).all()):
            return False
        here = counted.flatten(2).any(-1) if tensor.ndim > 2 else counted  # (k·B, H)
        draws = len(tensor) // size  # a flow-matching head takes several noise draws of each sample
        masks = (self.is_pad.repeat_interleave(draws, 0), self.is_pad.repeat(draws, 1))
        return any(not bool(here[pad].any()) and float(here[~pad].float().mean()) > 0.5 for pad in masks)


def _averaged(name: str, args: Any, kwargs: Any) -> torch.Tensor | None:
    """The tensor whose mean over steps a call takes: its argument, or the difference that a loss function averages."""
    operands = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    if name in _LOSSES and kwargs.get("reduction", "mean") == "mean" and len(operands) == 2:
        first, second = operands
        return first.detach() - second.detach() if first.shape == second.shape else None
    if name != "mean" or len(operands) != 1:
        return None
    tensor = operands[0]
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    dims = range(tensor.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return tensor if tensor.ndim and 1 in [each % tensor.ndim for each in dims] else None
