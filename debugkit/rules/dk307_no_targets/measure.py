"""Reads the labels and the target action of the batch, and of the loader where all of a batch are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import entry, is_index, labels, target
from debugkit.interventions.passes import distance, evaluate, outputs_differ, quiet_floor, require_finite
from debugkit.interventions.program_lines import batches_made_at
from debugkit.loader_samples import batches_of
from debugkit.measurements.classification_losses.measure import BINARY
from debugkit.rules.dk307_no_targets import EqualTargets, Targets, TargetValues
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, map_tensors, tensors_in

_MOST = 512
_OTHER_NAMES = ("target",)
_SAID_OF_ALL = (0.0, 1.0, -1.0)
_NO_EQUAL = "The targets of the batch are not one equal number for each sample."


def read_the_targets(setup: TrainingSetup) -> Targets:
    """Count the ignored labels, and the different values of the others."""
    found = [entry for entry in (labels(setup), target(setup)) if entry is not None and entry[1].numel()]
    if not found:
        raise NotExamined("The batch has neither labels nor a target action: pass Declare(labels=…) or target=….")
    made_at = batches_made_at(setup.loaders.get("train"))
    return Targets(tuple(_read(path, tensor) for path, tensor in found), made_at)


def read_the_loader(setup: TrainingSetup) -> EqualTargets:
    """Read on until a sample has another target. Two passes tell whether the loss, and only the loss, reads it."""
    loader = setup.loaders.get("train")
    if loader is None:
        raise NotExamined("No training loader was given: pass dataloader=.")
    path, value, is_said_of_all = _equal_in_the_batch(setup)
    samples, complete = 0, True
    with batches_of(loader, _MOST) as batches:
        for batch in batches:
            tensor = dict(tensors_in(batch)).get(path)
            if tensor is None or not _is_one_number(tensor, batch_size(batch)) or bool((tensor != value).any()):
                raise NotExamined(_NO_EQUAL)
            samples += len(tensor)
            if samples >= _MOST:
                complete = next(batches, None) is None
                break
    other = 0.5 if value in _SAID_OF_ALL else value + 1  # also a target that a binary cross-entropy accepts
    is_class = _require_that_only_the_loss_reads_it(setup, path, other)
    if is_said_of_all and not is_class:
        raise NotExamined(_NO_EQUAL)
    return EqualTargets(
        path=path,
        value=value,
        samples=samples,
        complete=complete,
        random_order=isinstance(getattr(loader, "sampler", None), torch.utils.data.RandomSampler),
        made_at=batches_made_at(loader),
    )


def _equal_in_the_batch(setup: TrainingSetup) -> tuple[str, float, bool]:
    """The path and value of a target that all samples of the batch have, while an input differs. Raises NotExamined.

    Third, whether the value is a class only if a binary loss reads it: otherwise it may state what all samples have in
    common.
    """
    size = batch_size(setup.batch)
    found = dict(tensors_in(setup.batch))
    for path, tensor in _candidates(setup):
        if not _is_one_number(tensor, size) or len(torch.unique(tensor)) != 1:
            continue
        value = float(tensor.flatten()[0])
        means_nothing = value < 0 if is_index(tensor) else value != value
        others = [other for name, other in found.items() if name != path and other.shape[:1] == (size,)]
        if not means_nothing and any(bool((other != other[:1]).any()) for other in others):
            return path, value, not is_index(tensor) and value in _SAID_OF_ALL
    raise NotExamined(_NO_EQUAL)


def _candidates(setup: TrainingSetup) -> Iterator[tuple[str, torch.Tensor]]:
    for found in (labels(setup), entry(setup, ("labels", "label", "targets", *_OTHER_NAMES))):
        if found is not None:
            yield found
    if isinstance(setup.batch, list | tuple) and len(setup.batch) == 2 and isinstance(setup.batch[1], torch.Tensor):
        yield "1", setup.batch[1]  # (inputs, target), by convention


class _BinaryTargets(TorchFunctionMode):
    """`only` is whether there were calls of a binary cross-entropy, all with targets of this value alone."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value
        self._equal: list[bool] = []

    @property
    def only(self) -> bool:
        return bool(self._equal) and all(self._equal)

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") in BINARY:
            target = args[1] if len(args) > 1 else (kwargs or {}).get("target")
            self._equal.append(isinstance(target, torch.Tensor) and bool((target == self._value).all()))
        return func(*args, **(kwargs or {}))


def _is_one_number(tensor: torch.Tensor, size: int | None) -> bool:
    """Whether there is one number for each sample."""
    kind = not tensor.is_complex() and tensor.dtype is not torch.bool
    return kind and size is not None and size > 1 and tensor.shape[:1] == (size,) and tensor.numel() == size


def _require_that_only_the_loss_reads_it(setup: TrainingSetup, path: str, other: float) -> bool:
    """Raises NotExamined unless `other` as the target of all samples changes the loss and not the outputs.

    Returns whether the loss is a binary cross-entropy, which received it.
    """
    before, threshold = quiet_floor(setup)
    require_finite(before.loss)
    if not before.outputs:
        raise NotExamined("The model returns only its loss, so it cannot be told whether the label is an input.")

    def change(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name != path:
            return tensor
        return torch.where(tensor > 0, tensor - 1, tensor + 1) if is_index(tensor) else torch.full_like(tensor, other)

    changed: Any = map_tensors(setup.fresh_batch(), change)
    binary = _BinaryTargets(other)
    with binary:
        after = evaluate(setup, changed, output_needed=False)
    if outputs_differ(before.outputs, after.outputs, threshold) is not False:
        raise NotExamined("The label changes what the model returns: it is an input.")
    if distance(before.loss, after.loss) <= threshold:
        raise NotExamined("The loss does not read the target.")
    return binary.only


def _read(path: str, tensor: torch.Tensor) -> TargetValues:
    flat = tensor.detach().flatten()
    counted = flat[flat >= 0] if is_index(tensor) else flat
    return TargetValues(
        path=path,
        total=flat.numel(),
        ignored=flat.numel() - counted.numel(),
        distinct=len(torch.unique(counted)),
        value=float(counted[0]) if len(counted) else float("nan"),
        whole_numbers=is_index(tensor),
        rows=tensor.shape[0] if tensor.ndim else 1,
        per_token=tensor.ndim > 1,
    )
