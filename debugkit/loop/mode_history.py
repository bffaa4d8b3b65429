"""The train/eval flags at the optimizer's steps, recorded only when they change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from debugkit._torch_private import SENSITIVE_TO_MODE
from debugkit.frames import user_line
from debugkit.interventions.program_lines import files_on_the_stack, only_call
from debugkit.loop.training_modes import ModeAtStep, TrainingModes
from debugkit.recorders.output_ranges import ModuleHooks

_REMEMBERED = 64


class ModeHistory:
    """Call `note` at each step; `.observation` has one entry for each change."""

    def __init__(self) -> None:
        self._changes: list[ModeAtStep] = []
        self._last: tuple[bool, int] | None = None
        self._sensitive: list[nn.Module] | None = None
        self._watched = 0
        self._steps = self._last_step = 0

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
            at = user_line() if now[0] else only_call("eval", files_on_the_stack()) or user_line()
            self._changes.append(ModeAtStep(step, now[0], len(self._sensitive), now[1], at))
        self._last = now


def sensitive_in(module: nn.Module) -> Iterator[nn.Module]:
    """Modules that behave differently in eval mode, except those in a part whose parameters are all frozen."""
    parameters = list(module.parameters())
    if parameters and not any(parameter.requires_grad for parameter in parameters):
        return
    if isinstance(module, SENSITIVE_TO_MODE) and getattr(module, "p", 1.0) != 0.0:
        yield module
    for child in module.children():
        yield from sensitive_in(child)
