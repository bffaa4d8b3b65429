"""Run inference again with another target action, and with other future frames: the result must not change."""

from __future__ import annotations

import re
from typing import Any

import torch

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import target, within
from debugkit.interventions.batch_variations import of_another_sample
from debugkit.interventions.inference_path import act
from debugkit.interventions.passes import distance, minimal_floor
from debugkit.preserve_state import same_start
from debugkit.rules.dk404_privileged_input import PrivilegedInput, PrivilegedInputs
from debugkit.setup import TrainingSetup
from debugkit.structure import map_tensors, tensors_in

_PART = re.compile(r"(?P<key>.+)\[(?P<start>-?\d*):(?P<stop>-?\d*)\]")
_FUTURE = re.compile(r"(^|.*[._])(next|future)([._].*|$)")


def change_what_the_robot_lacks(setup: TrainingSetup) -> PrivilegedInputs:
    """Run two identical inferences, and one for each changed entry."""
    entries = _entries(setup)
    if not entries:
        raise NotExamined(
            "The batch has neither a target action nor a declared future: Declare(target=…, future=(…,))."
        )

    def run(batch: Any) -> dict[str, torch.Tensor]:
        with same_start(setup):
            return act(setup, batch)

    before, again = (run(setup.fresh_batch()) for _ in range(2))
    noise = max(distance(tensor, again[path]) for path, tensor in before.items() if path in again)
    tried = []
    for path, reason, part in entries:
        after = run(_changed(setup, path, part))
        moves = {name: distance(tensor, after[name]) for name, tensor in before.items() if name in after}
        output, moved = max(moves.items(), key=lambda move: move[1])
        tried.append(
            PrivilegedInput(path if part is None else f"{path}[{part.start}:{part.stop or ''}]", reason, output, moved)
        )
    return PrivilegedInputs(tuple(tried), max(10 * noise, minimal_floor(setup.model)))


def _entries(setup: TrainingSetup) -> list[tuple[str, str, slice | None]]:
    paths = [path for path, tensor in tensors_in(setup.batch) if tensor.ndim and tensor.numel()]
    found: list[tuple[str, str, slice | None]] = []
    goal = target(setup)
    if goal is not None:
        found.append((goal[0], "target", None))
    if not setup.declare.future:
        found += [(path, "future", None) for path in paths if _FUTURE.fullmatch(path)]
    for key in setup.declare.future:
        name, part = _parse(key)
        matching = [path for path in paths if within(path, name)]
        if not matching:
            raise NotExamined(f"The declared future {key!r} is not in the batch.")
        found += [(path, "future", part) for path in matching]
    return found


def _parse(key: str) -> tuple[str, slice | None]:
    """`state[1:]` is the entry `state` from time step 1 on, in dimension 1."""
    match = _PART.fullmatch(key)
    if match is None:
        return key, None
    start, stop = (int(match[name]) if match[name] else None for name in ("start", "stop"))
    return match["key"], slice(start, stop)


def _changed(setup: TrainingSetup, path: str, part: slice | None) -> Any:
    def change(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name != path:
            return tensor
        if part is None:
            return _other(tensor)
        if tensor.ndim < 2 or not tensor[:, part].numel():
            raise NotExamined(f"{path} has no time steps {part.start}:{part.stop or ''} in dimension 1.")
        tensor[:, part] = _other(tensor[:, part])
        return tensor

    return map_tensors(setup.fresh_batch(), change)


def _other(tensor: torch.Tensor) -> torch.Tensor:
    """Other values of the same kind and size: those of another sample, shifted by the standard deviation."""
    moved = of_another_sample(tensor)
    return ~moved if tensor.dtype is torch.bool else moved
