"""Read frames of each source of a data set, and compare their actions dimension by dimension."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset

from debugkit.finding import NotExamined, SourceLine
from debugkit.interventions.batch_roles import ACTION_NAMES, PAD_NAMES
from debugkit.interventions.program_lines import own_definition
from debugkit.interventions.recorded_frames import STATE_NAMES, episode_of, named
from debugkit.kolmogorov_smirnov import distance_between
from debugkit.loader_samples import can_be_read_once, left_as_it_was
from debugkit.rules.dk408_mirrored_action import Source, SourcesOfActions, TwoSources
from debugkit.setup import TrainingSetup

_FEWEST = 32
_MOST_OF_A_PART = 128
_MOST_OF_A_WHOLE = 512
_MOST_OF_ALL_PARTS = 1024
_MOST_PARTS = 16
_SOURCE_NAMES = ("source", "robot", "robot_type", "embodiment", "dataset", "dataset_name", "dataset_index")
_NAMES_OF_A_PART = ("repo_id", "name")
_SAME = 1e-3
_STILL = 1e-9


def compare_sources(setup: TrainingSetup) -> SourcesOfActions:
    """Use the first loader whose data set has two sources."""
    declared = setup.declare.target
    names = (declared,) if declared else ACTION_NAMES
    for role, loader in setup.loaders.items():
        data = getattr(loader, "dataset", None)
        if can_be_read_once(loader) or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
            continue
        with left_as_it_was(loader):
            recordings = _recordings(data, names)
        if recordings:
            sources = tuple(Source(name, len(frames), frames[0].made_at) for name, frames in recordings.items())
            path = next(iter(recordings.values()))[0].path
            return SourcesOfActions(role, path, sources, tuple(_compared(list(recordings.values()))))
    raise NotExamined(
        f"No data set has {_FEWEST} frames with a state and an action from each of two sources: parts of a "
        "ConcatDataset, or values of an entry such as `robot`."
    )


@dataclass(frozen=True, eq=False)
class _Frame:
    """One frame that has a state and an action."""

    part: str
    """The name of its part of the data set; empty if there is one part."""
    source: str | None
    """The source that the frame itself names."""
    made_at: SourceLine | None
    path: str
    """Path of the action."""
    state: Tensor
    """(S,)"""
    action: Tensor
    """(A,)"""
    number: int
    """Which part it is from."""
    index: int
    episode: int | str | None

    @property
    def shapes(self) -> tuple[int, int]:
        return self.state.shape[0], self.action.shape[0]


def _recordings(data: Any, names: tuple[str, ...]) -> dict[str, list[_Frame]]:
    """The frames of each source that has enough of them, if there are two such sources."""
    frames = list(_frames(data, names))
    for names_of in ([frame.source for frame in frames], [frame.part for frame in frames]):
        found: dict[str, list[_Frame]] = {}
        for frame, name in zip(frames, names_of, strict=True):
            if name and frame.shapes == frames[0].shapes:
                found.setdefault(name, []).append(frame)
        enough = {name: each for name, each in found.items() if len(each) >= _FEWEST}
        if len(enough) > 1:
            return enough
    return {}


def _frames(data: Any, names: tuple[str, ...]) -> Iterator[_Frame]:
    """Frames from all over each part, in their order, without those whose action is padding."""
    parts = _spread([part for part in _parts(data) if len(part[2]) > 1], _MOST_PARTS)
    most = min(_MOST_OF_A_PART, _MOST_OF_ALL_PARTS // len(parts)) if len(parts) > 1 else _MOST_OF_A_WHOLE
    for number, (name, part, indices) in enumerate(parts):
        made_at = own_definition(getattr(type(part), "__getitem__", None))
        for index in _pairs(indices, most):
            frame = part[index]
            if not isinstance(frame, Mapping):
                return
            found = _state_and_action(frame, names)
            if found is not None:
                source, episode = _source_of(frame), episode_of(frame)
                yield _Frame(name, source, made_at, *found, number=number, index=index, episode=episode)


def _parts(data: Any, indices: Sequence[int] | None = None) -> Iterator[tuple[str, Any, Sequence[int]]]:
    """The name, the data set and the indices of each part, also of a subset of several parts."""
    if isinstance(data, Subset):
        chosen = data.indices if indices is None else [data.indices[index] for index in indices]
        yield from _parts(data.dataset, chosen)
    elif isinstance(data, ConcatDataset):
        first = 0
        for number, (part, end) in enumerate(zip(data.datasets, data.cumulative_sizes, strict=True)):
            own = None if indices is None else [index - first for index in indices if first <= index < end]
            for name, inner, inner_indices in _parts(part, own):
                yield _name_of(inner) or name or f"datasets[{number}]", inner, inner_indices
            first = end
    else:
        yield "", data, range(len(data)) if indices is None else sorted(indices)


def _name_of(part: Any) -> str | None:
    names = (getattr(part, name, None) for name in _NAMES_OF_A_PART)
    return next((name for name in names if isinstance(name, str) and name), None)


def _spread(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many items, evenly spread."""
    count = min(len(items), most)
    return [items[round(at)] for at in torch.linspace(0, len(items) - 1, count).tolist()] if count else []


def _pairs(indices: Sequence[int], most: int) -> list[int]:
    """At most so many indices: evenly spread ones and the next one of each."""
    first = _spread(range(len(indices) - 1), most // 2)
    return sorted({indices[position + step] for position in first for step in (0, 1)})


def _source_of(frame: Mapping[str, Any]) -> str | None:
    name = next((name for name in _SOURCE_NAMES if name in frame), None)
    if name is None:
        return None
    value = frame[name]
    if isinstance(value, str):
        return value
    number = value.item() if getattr(value, "ndim", None) == 0 else value
    return f"{name}={number}" if isinstance(number, int) else None


def _state_and_action(frame: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, Tensor, Tensor] | None:
    """The path of the action, the state (S,) and the first action (A,); None without them, or if it is padding."""
    state = named(frame, STATE_NAMES)
    path, action = next(((name, found) for name in names if (found := named(frame, (name,))) is not None), ("", None))
    if state is None or action is None or state.ndim not in (1, 2) or action.ndim not in (1, 2):
        return None
    pad = next((frame[name] for name in PAD_NAMES if name in frame), None)
    if pad is not None and bool(torch.as_tensor(pad).reshape(-1)[:1].any()):
        return None
    state, action = (state if state.ndim == 1 else state[-1]), (action if action.ndim == 1 else action[0])
    finite = bool(state.isfinite().all()) and bool(action.isfinite().all())
    return (path, state.detach().cpu().double(), action.detach().cpu().double()) if finite else None


def _compared(recordings: Sequence[Sequence[_Frame]]) -> Iterator[TwoSources]:
    states = [torch.stack([frame.state for frame in frames]) for frames in recordings]
    actions = [torch.stack([frame.action for frame in frames]) for frames in recordings]
    responses = [_responses(*each) for each in zip(recordings, states, actions, strict=True)]
    state_width, width = recordings[0][0].shapes
    for one, other in itertools.combinations(range(len(recordings)), 2):
        for dimension in range(width):
            high, shares = _two_values(actions[one][:, dimension], actions[other][:, dimension])
            apart, mirrored = float("nan"), float("nan")
            if state_width == width:
                own, others = states[one][:, dimension], states[other][:, dimension]
                low_end, high_end = torch.cat([own, others]).aminmax()
                apart = distance_between(own, others)
                mirrored = distance_between(own, low_end + high_end - others)
            found = _same_kind(responses[one][dimension], responses[other][dimension])
            yield TwoSources(dimension, one, other, high, shares, apart, mirrored, found)


def _two_values(one: Tensor, other: Tensor) -> tuple[float | None, tuple[float, float]]:
    """The higher value and its share in each source; None and 0 unless both have the same two values."""
    low, high = torch.cat([one, other]).aminmax()
    shares = []
    for values in (one, other):
        is_low, is_high = ((values - end).abs() <= _SAME * (high - low) for end in (low, high))
        if not bool((is_low ^ is_high).all()) or not bool(is_low.any()) or not bool(is_high.any()):
            return None, (0.0, 0.0)
        shares.append(float(is_high.double().mean()))
    return float(high), (shares[0], shares[1])


def _responses(frames: Sequence[_Frame], state: Tensor, action: Tensor) -> list[tuple[float, bool]]:
    """For each dimension: the correlation of action and change of the state, and whether the action is a change.

    An action is taken as a change of the state or as a target position, whichever correlates better.
    """
    pairs = [
        at
        for at, (frame, after) in enumerate(itertools.pairwise(frames))
        if frame.episode is not None
        and (frame.number, frame.episode, frame.index + 1) == (after.number, after.episode, after.index)
    ]
    now = torch.tensor(pairs, dtype=torch.long)
    width = min(state.shape[1], action.shape[1])
    change = (state[now + 1] - state[now])[:, :width]
    kinds = ((action[now][:, :width], True), ((action[now + 1] - action[now])[:, :width], False))
    found = []
    for dimension in range(action.shape[1]):
        both = [
            (_correlation(commanded[:, dimension], change[:, dimension]) if dimension < width else float("nan"), kind)
            for commanded, kind in kinds
        ]
        found.append(max(both, key=lambda each: abs(each[0]) if each[0] == each[0] else -1.0))
    return found


def _correlation(one: Tensor, other: Tensor) -> float:
    moves = other.abs() > _STILL
    one, other = one[moves], other[moves]
    if len(one) < _FEWEST or float(one.std()) <= _STILL or float(other.std()) <= _STILL:
        return float("nan")
    return float(torch.corrcoef(torch.stack([one, other]))[0, 1])


def _same_kind(one: tuple[float, bool], other: tuple[float, bool]) -> tuple[float, float]:
    return (one[0], other[0]) if one[1] == other[1] else (float("nan"), float("nan"))
