"""Observe the calls of `backward()` between two steps: on means or not, and what happens to the gradients then."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from debugkit._torch_private import in_backward, is_compiled, version_of
from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.probe import Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.recorders.patches import Patches
from debugkit.rules.dk507_accumulation_scale import AccumulatedStep, AccumulatedSteps, FrameworkScale
from debugkit.rules.dk507_accumulation_scale.frameworks import framework_scale
from debugkit.rules.dk507_accumulation_scale.means import is_unscaled_mean
from debugkit.setup import TrainingSetup

_STEPS = 8
_LARGEST_COPY = 10_000  # elements of the gradient whose values are compared
_SCALE_FREE = ("ada", "lamb", "lars", "lion", "muon", "rms", "rprop", "prodigy", "shampoo", "soap", "sophia", "sign")
"""Parts of the names of optimizers whose update does not change if all gradients are multiplied by one number."""

Versions = dict[int, tuple[int, int]]
"""Of each gradient, by the number of its parameter: the tensor, and how often it was changed in place."""


@dataclass
class _Since:
    """The calls of `backward()` since the last step."""

    calls: int = 0
    means: bool = True
    lines: set[SourceLine | None] = field(default_factory=set)
    reached: frozenset[int] | None = None
    """The parameters that each call gave a gradient to."""
    at: SourceLine | None = None
    frameworks: set[FrameworkScale | None] = field(default_factory=set)


class AccumulatedStepsProbe(Probe[AccumulatedSteps]):
    """Observes eight steps. Of one small gradient the values are copied, and read when the step has ended."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        if is_compiled(setup.model):
            raise NotExamined("The model is compiled, so its calls cannot be counted.")
        self._parameters = [p for p in setup.model.parameters() if p.requires_grad]
        small = [p for p in self._parameters if p.numel() <= _LARGEST_COPY]
        self._sample = max(small, key=lambda p: p.numel(), default=None)
        self._calls = ModuleCalls([("", setup.model)], before=self._called)
        self._patches = Patches()
        self._is_weighted = False  # the running backward() was given a gradient of its loss
        self._forwards = 0
        self._since = _Since()
        self._before: Versions = {}
        self._after: Versions = {}
        self._copy: tuple[Tensor, Tensor, int] | None = None  # a gradient, its values, and its version
        self._factor: Tensor | None = None
        self._in_step = False
        self._stepped: set[int] = set()
        self._scale_free = False
        self._steps: list[AccumulatedStep] = []

    def __enter__(self) -> Self:
        self._calls.__enter__()
        self._patches = Patches()
        self._patches.around(torch.autograd, "backward", before=self._given)
        return self

    def __exit__(self, *error: object) -> None:
        self._calls.remove()
        self._patches.__exit__(None, None, None)
        self._copy = self._factor = None

    def _called(self, _path: str, _module: nn.Module, _args: Any, _kwargs: Any) -> None:
        if torch.is_grad_enabled() and not in_backward():
            self._forwards += 1

    def _given(self, _tensors: Any, grad_tensors: Any = None, *_: Any, **__: Any) -> None:
        self._is_weighted |= grad_tensors is not None and not in_backward()  # checkpointing gives them

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        if self._in_step or self._done:
            return
        since, self._before = self._since, self._versions()
        since.calls += 1
        line = user_line()
        since.at = since.at or line
        since.lines.add(line)
        since.means &= (
            self._forwards > 0
            and len(losses) == 1
            and len(since.lines) == 1
            and line is not None
            and (since.calls == 1 or self._before == self._after)
            and is_unscaled_mean(losses[0].grad_fn)
        )
        since.frameworks.add(framework_scale(losses[0]) if self._forwards and len(losses) == 1 else None)
        self._forwards = 0

    def after_backward(self) -> None:
        if self._in_step or self._done:
            return
        since, self._after = self._since, self._versions()
        reached = frozenset(key for key, seen in self._after.items() if seen != self._before.get(key))
        since.means &= since.reached in (None, reached) and not self._is_weighted
        self._is_weighted = False
        since.reached = reached
        gradient = None if self._sample is None else self._sample.grad
        self._copy = None
        known = since.means or None not in since.frameworks
        if gradient is not None and known and not gradient.is_sparse:
            self._copy = gradient, gradient.detach().clone(), version_of(gradient)

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        if self._done:
            return
        self._in_step = True
        self._stepped.add(id(optimizer))
        self._scale_free = any(part in type(optimizer).__name__.lower() for part in _SCALE_FREE)
        gradient = None if self._sample is None else self._sample.grad
        if self._copy is not None and gradient is self._copy[0]:
            changes = version_of(gradient) - self._copy[2]
            self._factor = _factor(self._copy[1], gradient.detach()) if changes <= 1 else None

    def after_optimizer_step(self, _optimizer: torch.optim.Optimizer, /) -> None:
        self._in_step = False

    def end_step(self, _step: int, /) -> None:
        if self._done:
            return
        since, factor = self._since, self._factor
        if since.calls:
            value = math.nan if factor is None else float(factor)
            framework = since.frameworks.pop() if len(since.frameworks) == 1 else None
            self._steps.append(AccumulatedStep(since.calls, since.means, value, since.at, framework))
        self._since, self._copy, self._factor = _Since(), None, None
        if self._done:
            self.__exit__()

    @property
    def _done(self) -> bool:
        return len(self._steps) == _STEPS

    @property
    def observation(self) -> AccumulatedSteps:
        return AccumulatedSteps(tuple(self._steps), len(self._stepped), self._scale_free)

    def _versions(self) -> Versions:
        gradients = ((number, p.grad) for number, p in enumerate(self._parameters))
        return {number: (id(grad), version_of(grad)) for number, grad in gradients if grad is not None}


def _factor(before: Tensor, now: Tensor) -> Tensor:
    """The number by which all elements were multiplied; NaN if there is none."""
    before, now = before.double(), now.double()
    square = before.square().sum()
    factor = (before * now).sum() / square
    apart = (now - factor * before).square().sum()
    return torch.where(apart <= 1e-6 * factor.square() * square, factor, math.nan)
