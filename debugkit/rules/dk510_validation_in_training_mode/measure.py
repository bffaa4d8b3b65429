"""Record passes without gradients in training mode, and whether they advanced BatchNorm's counters."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from debugkit._torch_private import BATCH_NORMS, in_backward, version_of
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.loop.mode_history import sensitive_in
from debugkit.module_paths import plain_path
from debugkit.probe import Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.rules.dk510_validation_in_training_mode import PASSES, PassesInTrainingMode, PassesWithoutGradients
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_STEPS_BETWEEN = 2
"""Fewer training steps since the last such passes: they belong to each step."""


@dataclass
class _Block:
    """Passes in a row."""

    at: SourceLine | None
    recalibrates: bool
    passes: int = 0
    same_input: bool = False
    dropouts: int = 0
    updated: dict[str, None] = field(default_factory=dict)


class PassesProbe(Probe[PassesWithoutGradients]):
    """Observes the whole run through the hooks of the model itself."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        paths = {module: plain_path(path) for path, module in setup.model.named_modules()}
        sensitive = list(dict.fromkeys(sensitive_in(setup.model)))
        self._norms = {paths[module]: module for module in sensitive if _keeps_statistics(module)}
        self._dropouts = [module for module in sensitive if isinstance(getattr(module, "p", None), float)]
        watched = [("", setup.model)] if self._norms or self._dropouts else []
        self._calls = ModuleCalls(watched, before=self._before, after=self._after, also_raised=True)
        self._counters: dict[str, int] = {}
        self._called = self._steps = self._since = self._validations = 0
        self._input: weakref.ref[Tensor] | None = None
        self._block: _Block | None = None
        self._running = self._before_first_step = False
        self._first: PassesInTrainingMode | None = None

    def __enter__(self) -> Self:
        self._calls.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._calls.remove()

    def before_backward(self, _losses: Sequence[Tensor], /) -> None:
        self._close()

    def end_step(self, _step: int, /) -> None:
        self._close()
        self._steps += 1
        self._since += 1

    def loop_ended(self) -> None:
        self._close()

    @property
    def observation(self) -> PassesWithoutGradients:
        sensitive = len(self._norms) + len(self._dropouts)
        return PassesWithoutGradients(
            self._steps, sensitive, self._before_first_step, self._validations, self._first, self._called
        )

    def _before(self, _path: str, model: nn.Module, args: Any, kwargs: Any) -> None:
        if self._is_not_seen(model):
            return
        self._called += 1
        if torch.is_grad_enabled() or not model.training:
            self._close()
            return
        given = next((tensor for _, tensor in tensors_in((args, kwargs)) if tensor.ndim), None)
        if given is None or len(given) == 1:
            return
        if self._block is None:
            self._block = _Block(user_line(), self._are_new())
        same = self._input is not None and self._input() is given
        self._block.same_input |= same and self._block.passes > 0
        self._input, self._running = weakref.ref(given), True

    def _after(self, _path: str, model: nn.Module, *_: Any) -> None:
        if self._is_not_seen(model):
            return
        now = {path: version_of(norm.num_batches_tracked) for path, norm in self._norms.items()}  # type: ignore[arg-type]
        block = self._block
        if self._running and block is not None:
            block.passes += 1
            before = self._counters
            advanced = (path for path in now if self._norms[path].training and before.get(path, now[path]) != now[path])
            block.updated |= dict.fromkeys(advanced)
            block.dropouts = sum(dropout.training for dropout in self._dropouts)
        self._counters, self._running = now, False

    def _is_not_seen(self, model: nn.Module) -> bool:
        """Whether this is a call of a copy, which has the same hooks, or one that autograd or the compiler makes."""
        return model is not self.setup.model or torch.compiler.is_compiling() or in_backward()

    def _are_new(self) -> bool:
        """Whether the statistics were reset, loaded or averaged, so that these passes may be meant to fill them."""
        return any(norm.momentum is None for norm in self._norms.values()) or any(
            self._counters.get(path) not in (None, version_of(norm.num_batches_tracked))  # type: ignore[arg-type]
            for path, norm in self._norms.items()
        )

    def _close(self) -> None:
        block, self._block = self._block, None
        if block is None:
            return
        since, self._since = self._since, 0
        if block.passes < PASSES or block.same_input or block.recalibrates or not (block.updated or block.dropouts):
            return
        if self._steps == 0:
            self._before_first_step = True
        elif since >= _STEPS_BETWEEN:
            self._validations += 1
            updated = tuple(block.updated)
            self._first = self._first or PassesInTrainingMode(
                self._steps, block.passes, updated, block.dropouts, block.at
            )


def _keeps_statistics(module: nn.Module) -> bool:
    counts = getattr(module, "num_batches_tracked", None) is not None
    return counts and isinstance(module, BATCH_NORMS) and getattr(module, "momentum", None) != 0
