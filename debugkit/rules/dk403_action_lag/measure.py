"""Correlate the changes of the state with the actions, at several lags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import ACTION_NAMES, target
from debugkit.interventions.program_lines import batches_made_at
from debugkit.interventions.recorded_frames import STATE_NAMES, episode_of, named
from debugkit.loader_samples import can_be_read_once, left_as_it_was
from debugkit.rules.dk403_action_lag import ActionLag
from debugkit.setup import TrainingSetup

_LAGS = tuple(range(-5, 6))
_FEWEST = 32
_MOST_FRAMES = 256


def correlate_actions(setup: TrainingSetup) -> ActionLag:
    """Use trajectories (B, T, D) of the batch, or consecutive frames of a data set with an episode index."""
    source, episodes = _episodes(setup)
    best: tuple[float, ActionLag] | None = None
    for relative in (True, False):
        found = _correlate(source, episodes, relative)
        peak = max(found.correlation)
        if best is None or peak > best[0]:
            best = peak, found
    assert best is not None
    action = target(setup)
    if source == "batch":
        return replace(best[1], path=action[0] if action is not None else None)
    return replace(best[1], made_at=batches_made_at(setup.loaders[source]))


def _episodes(setup: TrainingSetup) -> tuple[str, list[tuple[torch.Tensor, torch.Tensor]]]:
    """(state (T, D), action (T, D)) of each episode, from the first source with enough steps. Raises NotExamined."""
    for source, episodes in _sources(setup):
        if sum(max(0, len(state) - 2 * max(_LAGS)) for state, _ in episodes) >= _FEWEST:
            return source, episodes
    raise NotExamined(
        f"There are no {_FEWEST} consecutive steps of state and action: the batch has no trajectories (B, T, D), "
        "and no data set has frames with state, action and episode_index."
    )


def _sources(setup: TrainingSetup) -> Iterator[tuple[str, list[tuple[torch.Tensor, torch.Tensor]]]]:
    state, action = named(setup.batch, STATE_NAMES), target(setup)
    together = state is not None and action is not None and state.shape[:2] == action[1].shape[:2]
    if together and state is not None and action is not None and state.ndim == action[1].ndim == 3:
        width = min(state.shape[-1], action[1].shape[-1])
        yield "batch", [(s[:, :width], a[:, :width]) for s, a in zip(state, action[1], strict=True)]
    for role, loader in setup.loaders.items():
        data = getattr(loader, "dataset", None)
        if not can_be_read_once(loader) and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
            with left_as_it_was(loader):
                episodes = _of_data_set(data)
            yield role, episodes


def _of_data_set(data: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    episodes: dict[int | str, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    for index in range(min(len(data), _MOST_FRAMES)):
        frame = data[index]
        if not isinstance(frame, Mapping):
            return []
        state, action = named(frame, STATE_NAMES), named(frame, ACTION_NAMES)
        episode = episode_of(frame)
        if state is None or action is None or episode is None or state.ndim != 1 or action.ndim not in (1, 2):
            return []
        width = min(state.shape[0], action.shape[-1])
        now = action if action.ndim == 1 else action[0]  # the first step of a chunk
        episodes.setdefault(episode, []).append((state[:width], now[:width]))
    return [
        (torch.stack([state for state, _ in frames]), torch.stack([action for _, action in frames]))
        for frames in episodes.values()
    ]


def _correlate(source: str, episodes: list[tuple[torch.Tensor, torch.Tensor]], relative: bool) -> ActionLag:
    """Correlate the state's change from t to t + 1 with the action at t - lag, or with the change of the target."""
    edge = max(_LAGS)
    changes: list[torch.Tensor] = []
    commands: dict[int, list[torch.Tensor]] = {lag: [] for lag in _LAGS}
    for state, action in episodes:
        state, action = state.double(), action.double()
        if len(state) < 2 * edge + 2:
            continue
        commanded = action if relative else torch.cat([action[:1] * 0, action[1:] - action[:-1]])
        inner = range(edge, len(state) - edge - 1)
        changes.append(torch.stack([state[t + 1] - state[t] for t in inner]))
        for lag in _LAGS:
            commands[lag].append(torch.stack([commanded[t - lag] for t in inner]))
    change = torch.cat(changes)  # (N, D)
    moving = change.std(0) > 1e-9
    correlation = [_mean_correlation(change[:, moving], torch.cat(commands[lag])[:, moving]) for lag in _LAGS]
    return ActionLag(source, len(change), _LAGS, tuple(correlation), relative, int(moving.sum()))


def _mean_correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    if not one.numel():
        return 0.0
    one, other = one - one.mean(0), other - other.mean(0)
    scale = one.norm(dim=0) * other.norm(dim=0)
    return float(((one * other).sum(0) / scale.clamp_min(1e-12)).mean())
