"""The train/eval flags at the optimizer's steps, recorded only when they change, and the calls that set eval mode."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import nn
from torch.optim import Optimizer

from debugkit._torch_private import SENSITIVE_TO_MODE
from debugkit.finding import SourceLine
from debugkit.frames import own_line, user_line
from debugkit.held_parameters import held_parameters
from debugkit.interventions.program_lines import files_on_the_stack, only_call
from debugkit.loop.training_modes import ModeAtStep, TrainingModes
from debugkit.recorders.output_ranges import ModuleHooks
from debugkit.recorders.patches import Patches

_REMEMBERED = 64


@dataclass(frozen=True)
class _Trained:
    """The first model of which an optimizer holds parameters, and the modules of all such that depend on the mode."""

    of: int
    """How many models were watched."""
    model: nn.Module
    sensitive: tuple[nn.Module, ...]


def _trained_by(optimizer: Optimizer, models: Sequence[nn.Module]) -> _Trained:
    """All models, if the optimizer holds parameters of none: it may have copies of them."""
    held = {id(parameter) for parameter in held_parameters(optimizer)}
    trained = [model for model in models if any(id(parameter) in held for parameter in model.parameters())] or models
    sensitive = dict.fromkeys(module for model in trained for module in sensitive_in(model))
    return _Trained(len(models), trained[0], tuple(sensitive))


class ModeHistory:
    """Call `note` at each step; `.observation` has one entry for each change. The calls are seen inside the block."""

    def __init__(self) -> None:
        self._patches = Patches()
        self._setting = 0  # `train()` calls itself for each part of a module
        self._eval_calls: list[tuple[weakref.ref[nn.Module], SourceLine | None]] = []  # of different modules
        self._changes: list[ModeAtStep] = []
        self._last: tuple[bool, int] | None = None
        self._trained: weakref.WeakKeyDictionary[Optimizer, _Trained] = weakref.WeakKeyDictionary()
        self._steps = self._last_step = 0

    def __enter__(self) -> Self:
        self._patches.around_overrides(nn.Module, "train", before=self._begins, after=self._mode_is_set)
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.__exit__(None, None, None)

    def _begins(self, *_: Any, **__: Any) -> None:
        self._setting += 1

    def _mode_is_set(self, module: nn.Module, *_: Any, **__: Any) -> None:
        self._setting = max(0, self._setting - 1)
        if self._setting == 0 and not module.training:
            others = [call for call in self._eval_calls if call[0]() not in (None, module)]
            self._eval_calls = [*others[-_REMEMBERED:], (weakref.ref(module), own_line())]

    def _eval_call(self, model: nn.Module) -> SourceLine | None:
        """The last call that set the model, or a module that contains it, to eval mode."""
        for called, line in reversed(self._eval_calls):
            module = called()
            if module is not None and any(part is model for part in module.modules()):
                return line
        return None

    @property
    def observation(self) -> TrainingModes:
        return TrainingModes(self._steps, tuple(self._changes), self._last_step)

    def note(self, models: Sequence[ModuleHooks], optimizer: Optimizer, step: int) -> None:
        """An optimizer has stepped. The mode is that of the models that it trains: others may be trained already."""
        if not models:
            return
        trained = self._trained.get(optimizer)
        if trained is None or trained.of != len(models):
            trained = self._trained[optimizer] = _trained_by(optimizer, [hooks.model for hooks in models])
        now = (trained.model.training, sum(not module.training for module in trained.sensitive))
        self._steps, self._last_step = self._steps + 1, step
        if now != self._last and len(self._changes) < _REMEMBERED:
            at = user_line() if now[0] else self._set_to_eval_at(trained.model) or user_line()
            self._changes.append(ModeAtStep(step, now[0], len(trained.sensitive), now[1], at))
        self._last = now

    def _set_to_eval_at(self, model: nn.Module) -> SourceLine | None:
        """The line of the call; of one before the loop was watched, if the program has only one."""
        return self._eval_call(model) or only_call("eval", files_on_the_stack())


def sensitive_in(module: nn.Module) -> Iterator[nn.Module]:
    """Modules that behave differently in eval mode, except those in a part whose parameters are all frozen."""
    parameters = list(module.parameters())
    if parameters and not any(parameter.requires_grad for parameter in parameters):
        return
    if isinstance(module, SENSITIVE_TO_MODE) and getattr(module, "p", 1.0) != 0.0:
        yield module
    for child in module.children():
        yield from sensitive_in(child)
