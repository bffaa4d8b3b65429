"""Several environments in one process, as in stable_baselines3."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class DummyVecEnv:
    def __init__(self, makers: Sequence[Callable[[], Any]]) -> None:
        self.envs = [make() for make in makers]
        self.num_envs = len(self.envs)
        self.action_space, self.observation_space = self.envs[0].action_space, self.envs[0].observation_space

    def reset(self) -> Any:
        return np.stack([env.reset() for env in self.envs])

    def step(self, actions: Any) -> Any:
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        rows = [self._step(env, action) for env, action in zip(self.envs, self._actions, strict=True)]
        observations, rewards, done, infos = zip(*rows, strict=True)
        return np.stack(observations), np.array(rewards, dtype=np.float32), np.array(done), list(infos)

    def _step(self, env: Any, action: Any) -> Any:
        observation, reward, done, info = env.step(action)
        return (env.reset() if done else observation), reward, done, info

    def close(self) -> None:
        for env in self.envs:
            env.close()


SubprocVecEnv = DummyVecEnv


class VecEnvWrapper:
    def __init__(self, venv: Any, observation_space: Any = None, action_space: Any = None) -> None:
        self.venv, self.num_envs = venv, venv.num_envs
        self.observation_space = observation_space or venv.observation_space
        self.action_space = action_space or venv.action_space

    def reset(self) -> Any:
        return self.venv.reset()

    def step(self, actions: Any) -> Any:
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        return self.venv.step_wait()

    def close(self) -> None:
        self.venv.close()
