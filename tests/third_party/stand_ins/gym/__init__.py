"""A stand-in for gym before 0.26, over gymnasium: reset() returns the observation, step() four values."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space

__all__ = [
    "ActionWrapper",
    "Env",
    "ObservationWrapper",
    "RewardWrapper",
    "Space",
    "Wrapper",
    "make",
    "spaces",
    "wrappers",
]
__version__ = "0.21.0"
_NAMES = {"Pendulum-v0": "Pendulum-v1", "CartPole-v0": "CartPole-v0"}


class Env:
    """What every environment and wrapper of this module is."""

    metadata: ClassVar[dict[str, Any]] = {}
    reward_range = (-float("inf"), float("inf"))


class _Old(Env):
    """One of gymnasium's environments with the earlier interface."""

    def __init__(self, name: str) -> None:
        self._env = gymnasium.make(_NAMES.get(name, name))
        self._seed: int | None = None
        self.action_space, self.observation_space = self._env.action_space, self._env.observation_space
        self.spec = self._env.spec

    @property
    def unwrapped(self) -> _Old:
        return self

    def seed(self, seed: int | None = None) -> list[int | None]:
        self._seed = seed
        return [seed]

    def reset(self) -> Any:
        observation, _ = self._env.reset(seed=self._seed)
        self._seed = None
        return observation

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        if isinstance(self.action_space, spaces.Box):
            action = np.asarray(action, dtype=np.float32).reshape(self.action_space.shape)
        observation, reward, ended, cut, info = self._env.step(action)
        return observation, float(reward), bool(ended or cut), info

    def render(self, *_args: Any, **_options: Any) -> None:
        return None

    def close(self) -> None:
        self._env.close()


class Wrapper(Env):
    def __init__(self, env: Any) -> None:
        self.env = env
        self.action_space, self.observation_space = env.action_space, env.observation_space

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["env"], name)

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def reset(self) -> Any:
        return self.env.reset()

    def step(self, action: Any) -> Any:
        return self.env.step(action)


class ObservationWrapper(Wrapper):
    def observation(self, observation: Any) -> Any:
        return observation

    def reset(self) -> Any:
        return self.observation(self.env.reset())

    def step(self, action: Any) -> Any:
        observation, *rest = self.env.step(action)
        return (self.observation(observation), *rest)


class ActionWrapper(Wrapper):
    def action(self, action: Any) -> Any:
        return action

    def step(self, action: Any) -> Any:
        return self.env.step(self.action(action))


class RewardWrapper(Wrapper):
    def reward(self, reward: float) -> float:
        return reward

    def step(self, action: Any) -> Any:
        observation, reward, done, info = self.env.step(action)
        return observation, self.reward(reward), done, info


def make(name: str) -> Env:
    """The environment of that name."""
    return wrappers.TimeLimit(_Old(name))


core = sys.modules[__name__]
"""`gym.core.Wrapper` is this module's."""

from . import wrappers  # noqa: E402 - its classes are wrappers
