"""Counts the hooks on each module and parameter after a step, by the code of the hook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

from torch import Tensor, nn

from debugkit._torch_private import HOOKS, hooks_on
from debugkit.finding import SourceLine
from debugkit.frames import code_of, is_users
from debugkit.module_paths import plain_path
from debugkit.probe import Probe
from debugkit.rules.dk605_hooks_accumulate import HookCounts, RisingHooks
from debugkit.setup import TrainingSetup

_STEPS = 10
_NAMED = 64


class _Key(NamedTuple):
    owner: str
    is_parameter: bool
    kind: str
    code: CodeType


class HooksProbe(Probe[HookCounts]):
    """Keeps numbers, and no hook."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._steps = 0
        self._counts: Counter[_Key] = Counter()
        self._rises: Counter[_Key] = Counter()

    def end_step(self, _step: int, /) -> None:
        if self._steps >= _STEPS:
            return
        counts = Counter(_keys(self.setup.model))
        if self._steps:
            self._rises = Counter(
                {key: self._rises[key] + 1 for key, count in counts.items() if count > self._counts[key]}
            )
        self._counts = counts
        self._steps += 1

    @property
    def observation(self) -> HookCounts:
        return HookCounts(
            self._steps,
            tuple(
                RisingHooks(
                    owner=key.owner,
                    is_parameter=key.is_parameter,
                    kind=key.kind,
                    function=key.code.co_name,
                    count=self._counts[key],
                    rises=rises,
                    at=SourceLine(key.code.co_filename, key.code.co_firstlineno, key.code.co_name),
                )
                for key, rises in list(self._rises.items())[:_NAMED]
            ),
        )


def _keys(model: nn.Module) -> Iterator[_Key]:
    for path, module in model.named_modules():
        yield from _of(path, module)
    for path, parameter in model.named_parameters():
        yield from _of(path, parameter)


def _of(path: str, owner: nn.Module | Tensor) -> Iterator[_Key]:
    for attribute, kind in HOOKS.items():
        for hook in hooks_on(owner, attribute):
            code = code_of(hook)
            if code is not None and is_users(code.co_filename):
                yield _Key(plain_path(path), isinstance(owner, Tensor), kind, code)
