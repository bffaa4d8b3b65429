"""Run inference twice, with another target action and other future frames the second time: nothing may move."""

from __future__ import annotations

import re
from typing import Any

import torch

from debugkit.batch_roles import is_index, target, within
from debugkit.experiments import experiment
from debugkit.experiments.passes import distance, minimal_floor
from debugkit.finding import NotExamined
from debugkit.inference_path import act
from debugkit.observations.privileged_inputs import PrivilegedInput, PrivilegedInputs
from debugkit.structure import map_tensors, tensors_in
from debugkit.subject import Subject

_PART = re.compile(r"(?P<key>.+)\[(?P<start>-?\d*):(?P<stop>-?\d*)\]")
_FUTURE = re.compile(r"(^|.*[._])(next|future)([._].*|$)")


@experiment(PrivilegedInputs, cost=3, requires=("batch",))
def change_what_the_robot_lacks(subject: Subject) -> PrivilegedInputs:
    """Two equal inferences, and one for each entry that is changed."""
    entries = _entries(subject)
    if not entries:
        raise NotExamined(
            "The batch has neither a target action nor a declared future: Declare(target=…, future=(…,))."
        )
    before, again = (act(subject, subject.fresh_batch()) for _ in range(2))
    noise = max(distance(tensor, again[path]) for path, tensor in before.items() if path in again)
    tried = []
    for path, reason, part in entries:
        after = act(subject, _changed(subject, path, part))
        moves = {name: distance(tensor, after[name]) for name, tensor in before.items() if name in after}
        output, moved = max(moves.items(), key=lambda move: move[1])
        tried.append(
            PrivilegedInput(path if part is None else f"{path}[{part.start}:{part.stop or ''}]", reason, output, moved)
        )
    return PrivilegedInputs(tuple(tried), max(10 * noise, minimal_floor(subject.model)))


def _entries(subject: Subject) -> list[tuple[str, str, slice | None]]:
    paths = [path for path, tensor in tensors_in(subject.batch) if tensor.ndim and tensor.numel()]
    found: list[tuple[str, str, slice | None]] = []
    goal = target(subject)
    if goal is not None:
        found.append((goal[0], "target", None))
    if not subject.declare.future:
        found += [(path, "future", None) for path in paths if _FUTURE.fullmatch(path)]
    for key in subject.declare.future:
        name, part = _parse(key)
        matching = [path for path in paths if within(path, name)]
        if not matching:
            raise NotExamined(f"The declared future {key!r} is no entry of the batch.")
        found += [(path, "future", part) for path in matching]
    return found


def _parse(key: str) -> tuple[str, slice | None]:
    """`state[1:]` is the entry `state` from time step 1 on, in dimension 1."""
    match = _PART.fullmatch(key)
    if match is None:
        return key, None
    start, stop = (int(match[name]) if match[name] else None for name in ("start", "stop"))
    return match["key"], slice(start, stop)


def _changed(subject: Subject, path: str, part: slice | None) -> Any:
    def change(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name != path:
            return tensor
        if part is None:
            return _other(tensor)
        if tensor.ndim < 2 or not tensor[:, part].numel():
            raise NotExamined(f"{path} has no time steps {part.start}:{part.stop or ''} in dimension 1.")
        tensor[:, part] = _other(tensor[:, part])
        return tensor

    return map_tensors(subject.fresh_batch(), change)


def _other(tensor: torch.Tensor) -> torch.Tensor:
    """Other values of the same kind and size: each sample gets another's, shifted by as much as the values vary."""
    moved = tensor.roll(1, dims=0)
    if tensor.dtype is torch.bool:
        return ~moved
    if is_index(tensor):
        return moved  # ids stay in range
    spread = tensor.detach().float().std(correction=0).nan_to_num(0.0)
    return moved + (spread + 0.1).to(tensor)
