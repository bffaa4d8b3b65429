"""Records what cross-entropies and KL divergences receive: logits, probabilities or log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.measurements.classification_losses import (
    BlankLabels,
    ClassificationLoss,
    ClassificationLosses,
    LogOfTwoSigmoids,
    SoftTarget,
)
from debugkit.measurements.classification_losses.blank_labels import count_blanks
from debugkit.measurements.classification_losses.logarithms import may_hold_a_logarithm
from debugkit.recorders.function_calls import FunctionObserver
from debugkit.recorders.function_probe import FunctionProbe
from debugkit.setup import TrainingSetup

BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
_LOSSES = ("cross_entropy", "nll_loss", "kl_div", "ctc_loss", *BINARY)
_LOG_SIGMOID = "log_sigmoid"
_CLASSES_LAST = ("kl_div", "ctc_loss")
_OF_LOG_PROBABILITIES = ("nll_loss", "ctc_loss")
_PARTITION = ("logsumexp", "log")
"""With one of these elsewhere in the step, unnormalised scores given to these may be normalised by another term."""
_MADE_BY = {"SoftmaxBackward": "softmax", "LogSoftmaxBackward": "log_softmax", "SigmoidBackward": "sigmoid"}
_VIEWS = ("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "T", "Permute", "Slice", "Select")
_COPIES = ("Clone", "ToCopy", "Index", "Clamp", "Alias", "Expand")
_MASKED = -1e4
"""Lower logits count as masked: masks use -inf, the dtype's minimum, or -1e9."""
_SUM_TOLERANCE = 1e-3


class ClassificationLossesProbe(FunctionProbe[ClassificationLosses, "_Calls"]):
    """Observes each step. The numbers stay on the device until the step ends."""

    watch_steps = 3

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup, _Calls())
        self._last = ClassificationLosses(())

    def end_step(self, _step: int, /) -> None:
        calls = (one.read(self.calls.normalises) for one in self.calls.losses)
        ranges = {at: LogOfTwoSigmoids(at, *numbers.tolist()) for at, numbers in self.calls.sigmoid_twice.items()}
        self._last = ClassificationLosses(
            tuple({(call.at, call.operation): call for call in calls}.values()), tuple(ranges.values())
        )
        self.calls.losses, self.calls.normalises, self.calls.sigmoid_twice = [], False, {}

    def observed(self) -> ClassificationLosses:
        return self._last


@dataclass
class _Call:
    operation: str
    at: SourceLine | None
    shape: tuple[int, ...]
    made_by: str
    weighted: bool
    logarithm: bool
    reduced: bool
    log_target: bool
    numbers: torch.Tensor
    """(finite classes, distributions, mean, pairs, highest), then the fields of `SoftTarget` or, for ctc_loss, of
    `BlankLabels`, on the device."""

    def read(self, normalises: bool) -> ClassificationLoss:
        finite, distributions, mean, pairs, highest, *target = self.numbers.tolist()
        rows, classes = self.shape
        sequences = self.operation == "ctc_loss"
        return ClassificationLoss(
            operation=self.operation,
            at=self.at,
            rows=rows,
            classes=classes,
            finite_classes=int(finite),
            distributions=bool(distributions),
            made_by=self.made_by,
            mean=mean,
            weighted=self.weighted,
            pairs=bool(pairs),
            highest=highest,
            logarithm=self.logarithm or (normalises and self.operation in _OF_LOG_PROBABILITIES),
            reduced=self.reduced,
            log_target=self.log_target,
            target=None if sequences else _soft_target(target),
            blanks=BlankLabels(*map(int, target)) if sequences and target else None,
        )


def _soft_target(numbers: list[float]) -> SoftTarget | None:
    if not numbers:
        return None
    low, high, sum_low, sum_high, fewest = numbers
    return SoftTarget(low, high, sum_low, sum_high, int(fewest))


class _Calls(FunctionObserver):
    functions = (*_PARTITION, *_LOSSES, _LOG_SIGMOID)

    in_transforms = True

    def __init__(self) -> None:
        self.losses: list[_Call] = []
        self.normalises = False
        self.sigmoid_twice: dict[SourceLine | None, torch.Tensor] = {}

    @torch.no_grad()
    def after(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], output: Any, _begun: Any, /) -> None:
        self.normalises |= name in _PARTITION
        if name == _LOG_SIGMOID and isinstance(output, torch.Tensor) and output.requires_grad and output.numel():
            given = args[0] if args else kwargs.get("input")
            if isinstance(given, torch.Tensor) and _origin(given) == "sigmoid":
                self.sigmoid_twice[user_line()] = torch.stack(torch.aminmax(given.detach())).double()
        if name in _LOSSES and isinstance(output, torch.Tensor) and output.requires_grad:
            bound = _bound(args, kwargs)
            if bound is not None:
                plain = output if _is_plain_mean(args, kwargs) else None
                self.losses.append(_measure(name, *bound, kwargs, plain, user_line(), args))


def _bound(args: Any, kwargs: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    values = [*args[:2], *(kwargs[key] for key in ("input", "log_probs", "target", "targets") if key in kwargs)]
    if len(values) != 2 or not all(isinstance(value, torch.Tensor) for value in values):
        return None
    return (values[0], values[1]) if values[0].ndim and values[0].numel() else None


def _is_plain_mean(args: Any, kwargs: Any) -> bool:
    """Whether the result of `cross_entropy` is the mean over the rows that are not ignored, without weights."""
    more = kwargs.keys() - {"input", "target", "ignore_index", "reduction"}
    return len(args) <= len(("input", "target")) and not more and kwargs.get("reduction", "mean") == "mean"


def _measure(
    name: str,
    given: torch.Tensor,
    target: torch.Tensor,
    kwargs: Any,
    loss: torch.Tensor | None,
    at: SourceLine | None,
    args: Sequence[Any] = (),
) -> _Call:
    """`loss` is the call's result if it is the plain mean."""
    rows = _rows_of_classes(name, given.detach())  # (N, C)
    lowest, highest = torch.aminmax(rows)
    if rows.device.type == "cpu" and lowest > _MASKED:  # reading it does not wait
        finite = torch.tensor(rows.shape[1])
    else:
        finite = (rows > _MASKED).sum(1).min()
    inside = (lowest >= 0) & (highest <= 1 + _SUM_TOLERANCE)
    sums_to_one = ((rows.sum(1) - 1).abs() <= _SUM_TOLERANCE).all()
    ids = target.reshape(-1)
    is_ids = name == "cross_entropy" and not target.is_floating_point() and ids.numel() == len(rows)
    mean = rows.new_full((), float("nan"))
    pairs = torch.zeros((), dtype=torch.bool, device=rows.device)
    if is_ids:
        ignored = kwargs.get("ignore_index", -100)
        mean = F.cross_entropy(rows.float(), ids, ignore_index=ignored) if loss is None else loss.detach().float()
        pairs = (ids == torch.arange(len(ids), device=ids.device)).all() & (rows.shape[0] == rows.shape[1])
    measured = [finite, inside & sums_to_one, mean, pairs, highest]
    measured += count_blanks(target, args, kwargs) if name == "ctc_loss" else _target_values(name, target)
    weight = kwargs.get("weight")
    return _Call(
        name,
        at,
        (len(rows), rows.shape[1]),
        _origin(given),
        weighted=weight is not None or bool(kwargs.get("label_smoothing")),
        logarithm=may_hold_a_logarithm(given.grad_fn),
        reduced=weight is None and kwargs.get("reduction", "mean") != "none",
        log_target=bool(kwargs.get("log_target")),
        numbers=torch.stack([value.to(rows.device, torch.float64) for value in measured]),
    )


def _target_values(name: str, target: torch.Tensor) -> list[torch.Tensor]:
    """The fields of `SoftTarget`; empty for class ids."""
    if not target.is_floating_point() or not target.numel() or not target.ndim:
        return []
    rows = _rows_of_classes(name, target.detach())
    nonzero = (rows != 0).sum(1)
    used, sums = nonzero > 0, rows.float().sum(1)
    low = torch.where(used, sums, float("inf")).min()
    high = torch.where(used, sums, float("-inf")).max()
    return [rows.min(), rows.max(), low, high, torch.where(used, nonzero, rows.shape[1]).min()]


def _rows_of_classes(name: str, given: torch.Tensor) -> torch.Tensor:
    """(N, C, …) as (rows, C), and (…, C) for kl_div and ctc_loss. For a binary loss each number is a separate row."""
    if name in BINARY:
        return given.reshape(-1, 1)
    if name in _CLASSES_LAST:
        return given.reshape(-1, given.shape[-1])
    classes_last = given[None] if given.ndim == 1 else given.movedim(1, -1)
    return classes_last.reshape(-1, classes_last.shape[-1])


def _origin(tensor: torch.Tensor) -> str:
    """The operation that made the values, followed through views, copies and indexing."""
    node = tensor.grad_fn
    while node is not None:
        kind = node.name().rstrip("0123456789")
        if kind in _MADE_BY:
            return _MADE_BY[kind]
        if kind.removesuffix("Backward") not in (*_VIEWS, *_COPIES) or not node.next_functions:
            return ""
        node = node.next_functions[0][0]
    return ""
