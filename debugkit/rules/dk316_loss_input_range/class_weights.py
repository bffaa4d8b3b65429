"""Counts the labels of each loss that has class weights, in the first steps. The counts stay on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from debugkit._torch_private import is_compiled
from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.probe import FIRST_STEPS, SAMPLED_EVERY, THOROUGH_STEPS
from debugkit.recorders.function_calls import FunctionObserver, detach
from debugkit.recorders.function_probe import FunctionProbe
from debugkit.rules.dk316_loss_input_range import ClassWeights, WeightedLoss
from debugkit.setup import TrainingSetup

_BINARY = "binary_cross_entropy_with_logits"
_WEIGHTS = {"cross_entropy": "weight", "nll_loss": "weight", _BINARY: "pos_weight"}
_MOST_CLASSES = 1000
_MOST_LOSSES = 16
_READ_AFTER = (1, 8, 16, FIRST_STEPS)
"""The steps after which the counts are read, which waits for the device."""


class ClassWeightsProbe(FunctionProbe[ClassWeights, "_Calls"]):
    """Observes functions in the first three steps and, if there was such a loss, in the first 32."""

    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        if is_compiled(setup.model):
            raise NotExamined("The model is compiled, so its operations cannot be recorded: use debugkit.check().")
        super().__init__(setup, _Calls())
        self._steps = 0
        self._read = ClassWeights(())
        self._over = False

    def __enter__(self) -> Self:
        return self if self._over else super().__enter__()

    def end_step(self, _step: int, /) -> None:
        if self._over:
            return
        self._steps += 1
        if self._steps in _READ_AFTER:
            self._read = self.calls.read()
        if self._steps >= FIRST_STEPS or (self._steps >= THOROUGH_STEPS and not self.calls.losses):
            self._end()

    def loop_ended(self) -> None:
        if not self._over:
            self._read = self.calls.read()
            self._end()

    def observed(self) -> ClassWeights:
        return self._read

    def _end(self) -> None:
        self._over = True
        self.calls.losses.clear()
        if self._mode is not None:
            detach(self.calls, self._mode)
            self._mode = None


@dataclass
class _Loss:
    weights: Tensor
    """A copy, with one number for each class."""
    counts: Tensor
    """(labels, others): in the binary loss the positives and negatives of each class, else the labels and 0."""
    unusable: Tensor
    """Whether a target was neither 0 nor 1, or the weights have changed."""
    rows: int = 0


class _Calls(FunctionObserver):
    functions = tuple(_WEIGHTS)

    def __init__(self) -> None:
        self.losses: dict[tuple[SourceLine | None, str, int], _Loss] = {}

    @torch.no_grad()
    def after(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], output: Any, _begun: Any, /) -> None:
        weights = kwargs.get(_WEIGHTS[name])
        if not isinstance(weights, Tensor) or not isinstance(output, Tensor) or not output.requires_grad:
            return
        target = args[1] if len(args) > 1 else kwargs.get("target")
        if not isinstance(target, Tensor) or not target.ndim or not 0 < weights.numel() <= _MOST_CLASSES:
            return
        ignored = kwargs.get("ignore_index", -100)
        counted = _binary(target, weights, kwargs) if name == _BINARY else _of_ids(target, weights, ignored)
        if counted is None:
            return
        counts, unusable = counted
        flat = weights.detach().reshape(-1)
        key = user_line(), name, len(flat)
        if key not in self.losses:
            if len(self.losses) == _MOST_LOSSES:
                return
            self.losses[key] = _Loss(flat.clone(), torch.zeros_like(counts), torch.zeros_like(unusable))
        loss = self.losses[key]
        if loss.counts.device != counts.device:
            return
        loss.counts += counts
        loss.unusable |= unusable | (loss.weights != flat).any()
        loss.rows += target.shape[0]

    def read(self) -> ClassWeights:
        """The losses whose weights were the same in every call."""
        found = []
        for (at, name, _), loss in self.losses.items():
            if not bool(loss.unusable):
                labels, others = loss.counts.tolist()
                negatives = tuple(others) if name == _BINARY else ()
                weights = tuple(loss.weights.double().tolist())
                found.append(WeightedLoss(name, at, weights, tuple(labels), negatives, loss.rows))
        return ClassWeights(tuple(found))


def _binary(target: Tensor, weights: Tensor, kwargs: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
    """The positives and negatives of each class. None if elements are weighted, or the classes are not known."""
    wide = [number for number, size in enumerate(weights.shape) if size > 1]
    axis = target.ndim - weights.ndim + (wide[0] if wide else 0)
    if kwargs.get("weight") is not None or len(wide) > 1 or axis < 0:
        return None
    if wide and target.shape[axis] != weights.numel():
        return None
    rows = target.detach().movedim(axis, 0).flatten(1) if wide and target.ndim > 1 else target.detach().reshape(1, -1)
    if len(rows) != weights.numel():
        return None
    positives, negatives = (rows == 1).sum(1), (rows == 0).sum(1)
    return torch.stack([positives, negatives]), (positives + negatives != rows.shape[1]).any()


def _of_ids(target: Tensor, weights: Tensor, ignored: int) -> tuple[Tensor, Tensor] | None:
    if target.is_floating_point():
        return None
    ids, classes = target.detach().reshape(-1).long(), weights.numel()
    counted = (ids >= 0) & (ids < classes) & (ids != ignored)
    counts = torch.zeros(2, classes, dtype=torch.long, device=ids.device)
    counts[0].scatter_add_(0, ids.clamp(0, classes - 1), counted.long())
    return counts, torch.zeros((), dtype=torch.bool, device=ids.device)
