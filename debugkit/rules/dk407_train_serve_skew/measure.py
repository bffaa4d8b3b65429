"""Prepare one raw frame with the declared training path and with the serving path, and compare the results."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

from debugkit.finding import NotExamined
from debugkit.frames import definition_line, one_line
from debugkit.interventions.batch_roles import ACTION_NAMES, PAD_NAMES
from debugkit.interventions.passes import RELATIVE_FLOOR, distance
from debugkit.randomness import same_randomness
from debugkit.rules.dk407_train_serve_skew import PreparedEntry, PreparedFrames
from debugkit.setup import TrainingSetup

_TARGETS = (*ACTION_NAMES, *PAD_NAMES, "labels", "label", "target")


def prepare_one_frame(setup: TrainingSetup) -> PreparedFrames:
    """Run each path twice, with different seeds, to detect entries that are random."""
    declare = setup.declare
    if declare.training_path is None or declare.serving_path is None or declare.raw_frame is None:
        raise NotExamined("No paths were declared: Declare(training_path=…, serving_path=…, raw_frame=…).")
    training, drawn = _prepared(declare.training_path, declare.raw_frame, "training")
    serving, drawn_serving = _prepared(declare.serving_path, declare.raw_frame, "serving")
    random = drawn | drawn_serving
    targets = {declare.target, declare.labels, *_TARGETS}
    paths = [path for path in {**training, **serving} if path not in random]
    entries = []
    compared = 0
    for path in paths:
        if path not in serving and (path in targets or path.rpartition(".")[2] in targets):
            continue  # the robot has no targets
        compared += 1
        found = _difference(training.get(path), serving.get(path))
        if found is not None:
            entries.append(PreparedEntry(path, *found))
    if not compared:
        raise NotExamined("Every entry that the two paths return is random, so nothing can be compared.")
    at = definition_line(declare.serving_path)
    return PreparedFrames(tuple(entries), compared, tuple(sorted(random)), RELATIVE_FLOOR, at)


def _prepared(path: Callable[..., Any], frame: Any, name: str) -> tuple[dict[str, Any], set[str]]:
    """What a path returns, by entry, and which entries are random."""
    runs = []
    for seed in (0, 1):
        try:
            with torch.no_grad(), same_randomness(seed):
                runs.append(dict(_leaves(path(copy.deepcopy(frame)))))
        except Exception as error:
            raise NotExamined(f"The {name} path raised {one_line(error)}.") from error
    first, second = runs
    return first, {entry for entry in first if _difference(first[entry], second.get(entry)) is not None}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Tensors, arrays, numbers and texts, by path."""
    if hasattr(value, "items") and hasattr(value, "keys"):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and any(not isinstance(item, int | float) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}" if path else str(index))
    elif isinstance(value, torch.Tensor | int | float | bool | list | tuple) or hasattr(value, "__array__"):
        yield path, torch.as_tensor(value).detach().cpu()
    elif isinstance(value, str) or value is None:
        yield path, value


def _difference(training: Any, serving: Any) -> tuple[str, float] | None:
    """The difference in words and as a number; None for two equal entries."""
    if not isinstance(training, torch.Tensor) or not isinstance(serving, torch.Tensor):
        if training == serving and type(training) is type(serving):
            return None
        return f"{_show(training)} in training, {_show(serving)} in serving", float("inf")
    training, serving = _without_batch(training, serving)
    if training.shape != serving.shape:
        return f"shape {tuple(training.shape)} in training, {tuple(serving.shape)} in serving", float("inf")
    if training.is_floating_point() != serving.is_floating_point():
        return f"{training.dtype} in training, {serving.dtype} in serving", float("inf")
    moved = distance(training, serving)
    allowed = RELATIVE_FLOOR if training.is_floating_point() else 0.0
    if moved <= allowed:
        return None
    if not training.is_floating_point():
        return f"{int((training != serving).sum())} of {training.numel()} values differ", moved
    return f"values differ by up to {moved:.2g} of their size", moved


def _without_batch(training: torch.Tensor, serving: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both tensors without a leading batch dimension of one, which only one of the paths may add."""
    if serving.ndim == training.ndim + 1 and serving.shape[0] == 1:
        return training, serving[0]
    if training.ndim == serving.ndim + 1 and training.shape[0] == 1:
        return training[0], serving
    return training, serving


def _show(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
