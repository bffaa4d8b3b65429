"""Record what `training_step` returns, on any module with the interface of a LightningModule; imports no framework."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any, Self

import torch

from debugkit.finding import NotExamined, SourceLine
from debugkit.probe import Probe
from debugkit.rules.dk906_step_returns_no_loss import StepReturns
from debugkit.setup import TrainingSetup

_NAME = "training_step"
_ABSENT = object()


class StepReturnsProbe(Probe[StepReturns]):
    """Observes the whole run. The module's method is wrapped in its `__dict__`, and restored on exit."""

    partial = True

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        model: Any = setup.model
        if not (callable(getattr(model, _NAME, None)) and callable(getattr(model, "configure_optimizers", None))):
            raise NotExamined("The model is not a LightningModule: it has no training_step or no configure_optimizers.")
        if getattr(model, "automatic_optimization", True) is not True:
            raise NotExamined("The module uses manual optimization, which ignores the result of training_step.")
        self._calls = self._nothing = self._detached = 0
        self._returned_as = ""
        self._ended = False
        self._at: SourceLine | None = None
        self._previous: Any = _ABSENT
        self._wrapper: Any = None

    def __enter__(self) -> Self:
        model: Any = self.setup.model
        step = getattr(model, _NAME)
        self._at = _definition(step)

        @functools.wraps(step)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            returned = step(*args, **kwargs)
            if torch.is_grad_enabled():
                self._note(returned)
            return returned

        self._previous, self._wrapper = vars(model).get(_NAME, _ABSENT), recorded
        vars(model)[_NAME] = recorded
        return self

    def __exit__(self, *error: object) -> None:
        own = vars(self.setup.model)
        if self._wrapper is not None and own.get(_NAME) is self._wrapper:
            if self._previous is _ABSENT:
                del own[_NAME]
            else:
                own[_NAME] = self._previous
        self._wrapper = None

    def loop_ended(self) -> None:
        self._ended = True

    def loop_failed(self) -> None:
        self._ended = True

    @property
    def observation(self) -> StepReturns:
        if not self._calls:
            raise NotExamined("training_step was not called.")
        return StepReturns(self._calls, self._nothing, self._detached, self._returned_as, self._at, self._ended)

    def _note(self, returned: Any) -> None:
        self._calls += 1
        loss = returned.get("loss") if isinstance(returned, Mapping) else returned
        if loss is None:
            self._nothing += 1
            self._returned_as = self._returned_as or "None"
        elif not (isinstance(loss, torch.Tensor) and loss.requires_grad):
            self._detached += 1
            self._returned_as = "a tensor" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"


def _definition(step: Any) -> SourceLine | None:
    """The line of the method's `def`, below its decorators."""
    function = inspect.unwrap(getattr(step, "__func__", step))
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:
        return SourceLine(code.co_filename, code.co_firstlineno, code.co_name)
    below = next((n for n, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def "))), 0)
    return SourceLine(code.co_filename, first + below, code.co_name)
