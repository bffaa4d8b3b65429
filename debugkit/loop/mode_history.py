"""The train/eval flags at the optimizer's steps, recorded only when they change, and the calls that set eval mode."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Self

from torch import nn

from debugkit._torch_private import SENSITIVE_TO_MODE
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.interventions.program_lines import files_on_the_stack, only_call
from debugkit.loop.training_modes import ModeAtStep, TrainingModes
from debugkit.recorders.output_ranges import ModuleHooks
from debugkit.recorders.patches import Patches

_REMEMBERED = 64


class ModeHistory:
    """Call `note` at each step; `.observation` has one entry for each change. The calls are seen inside the block."""

    def __init__(self) -> None:
        self._patches = Patches()
        self._setting = 0  # `train()` calls itself for each part of a module
        self._eval_calls: list[tuple[weakref.ref[nn.Module], SourceLine | None]] = []  # of different modules
        self._changes: list[ModeAtStep] = []
        self._last: tuple[bool, int] | None = None
        self._sensitive: list[nn.Module] | None = None
        self._watched = 0
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
            self._eval_calls = [*others[-_REMEMBERED:], (weakref.ref(module), user_line())]

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

    def note(self, models: Sequence[ModuleHooks], step: int) -> None:
        """An optimizer has stepped."""
        if not models:
            return
        if self._sensitive is None or self._watched != len(models):
            self._watched = len(models)
            self._sensitive = list(dict.fromkeys(m for hooks in models for m in sensitive_in(hooks.model)))
        now = (models[0].model.training, sum(not module.training for module in self._sensitive))
        self._steps, self._last_step = self._steps + 1, step
        if now != self._last and len(self._changes) < _REMEMBERED:
            at = user_line() if now[0] else self._set_to_eval_at(models[0].model) or user_line()
            self._changes.append(ModeAtStep(step, now[0], len(self._sensitive), now[1], at))
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
