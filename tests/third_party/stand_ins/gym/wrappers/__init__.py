"""The wrappers that the scripts import. gymnasium already ends the episodes in time."""

from __future__ import annotations

from typing import Any

from gym import Wrapper


class TimeLimit(Wrapper):
    def __init__(self, env: Any, max_episode_steps: int | None = None) -> None:
        super().__init__(env)
        self._max_episode_steps = max_episode_steps or env.spec.max_episode_steps


class Monitor(Wrapper):
    def __init__(self, env: Any, *_args: Any, **_options: Any) -> None:
        super().__init__(env)


class RecordEpisodeStatistics(Wrapper):
    pass
