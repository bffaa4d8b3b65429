"""Inspect each operation of a pass in eval mode: which ones draw random numbers, and which multiply by them.

check() makes the pass; under watch(), the first two that the loop makes without gradients are inspected.
"""

from __future__ import annotations

import dataclasses
import linecache
import re
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import nn

from debugkit._torch_private import TorchDispatchMode, in_backward, is_compiled, schema_of
from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.interventions.module_stack import ModuleStack
from debugkit.interventions.passes import enter_eval_mode
from debugkit.probe import Probe
from debugkit.randomness import same_randomness
from debugkit.recorders.module_calls import ModuleCalls, follow_modules
from debugkit.recorders.patches import Patches
from debugkit.rules.dk506_random_in_eval import EvalDropout, RandomnessInEval
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_BERNOULLI = frozenset(("bernoulli", "bernoulli_"))
_FUSED = frozenset(("native_dropout", "_fused_dropout"))
_KINDS = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
_COMPOSITE = frozenset(f"{kind}{ending}" for kind in _KINDS for ending in ("", "_"))
"""In inference mode they arrive as they are, elsewhere as their parts."""
_NOISE_SLOPE = frozenset(("rrelu_with_noise", "rrelu_with_noise_functional", "rrelu_with_noise_", "rrelu", "rrelu_"))
_PRODUCTS = frozenset(("mul", "mul_"))
_LITERAL_TRUE = re.compile(r"(=|,)\s*True\s*[,)]")
_PASSES = 2
"""Passes of a loop that are inspected."""
_RESULT_IS_A_MASK = frozenset(("div", "div_", "mul", "mul_", "_to_copy", "view", "_unsafe_view", "reshape", "expand"))


def draw_in_eval(setup: TrainingSetup) -> RandomnessInEval:
    """Compute the loss once in eval mode, without gradients."""
    enter_eval_mode(setup)
    with ModuleStack(setup) as running, same_randomness(0), torch.no_grad():
        batch = setup.fresh_batch()
        draws = _DrawRecorder(lambda: running.innermost)
        with draws:
            setup.loss(batch)
    return draws.observation


class EvalDrawsProbe(Probe[RandomnessInEval]):
    """Attaches a dispatch mode and module hooks for two passes. Until then the model has hooks only in eval mode."""

    def __init__(self, setup: TrainingSetup) -> None:
        if is_compiled(setup.model):
            raise NotExamined("The model is compiled, so its operations cannot be recorded: use debugkit.check().")
        super().__init__(setup)
        self._calls = ModuleCalls([("", setup.model)], before=self._before, after=self._after, also_raised=True)
        self._running: list[str] = []
        self._modules = follow_modules(setup.model, self._running)
        self._draws = _DrawRecorder(lambda: self._running[-1] if self._running else None)
        self._patches = Patches()
        self._inspects = False
        self._passes = 0

    def __enter__(self) -> Self:
        self._patches = Patches()
        self._patches.around_overrides(nn.Module, "train", after=self._mode_is_set)
        self._mode_is_set(self.setup.model)
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.__exit__(None, None, None)
        self._calls.remove()
        self._leave()

    def _mode_is_set(self, module: nn.Module, *_: Any, **__: Any) -> None:
        """`module.train()` or `.eval()` was called."""
        if module is not self.setup.model:
            return
        if module.training or self._passes == _PASSES:
            self._calls.remove()
        elif not self._calls:
            self._calls.__enter__()

    def loop_ended(self) -> None:
        """A validation after the last step counts, too."""

    @property
    def observation(self) -> RandomnessInEval:
        if not self._passes:
            raise NotExamined("The loop made no pass in eval mode without gradients.")
        return self._draws.observation

    def _before(self, _path: str, model: nn.Module, *_: Any) -> None:
        if torch.is_grad_enabled() or self._inspects or self._passes == _PASSES or torch.compiler.is_compiling():
            return
        if model is not self.setup.model or in_backward() or any(module.training for module in model.modules()):
            return
        self._inspects = True
        self._modules.__enter__()
        self._draws.__enter__()  # type: ignore[no-untyped-call]

    def _after(self, *_: Any) -> None:
        if self._inspects:
            self._leave()
            self._passes += 1
            if self._passes == _PASSES:
                self._calls.remove()

    def _leave(self) -> None:
        if self._inspects:
            self._inspects = False
            self._draws.leave()
            self._modules.remove()
            self._running.clear()


class _DrawRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Finds dropout, also dropout written by hand: a random 0/1 tensor that another tensor is multiplied by."""

    def __init__(self, innermost: Callable[[], str | None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._innermost = innermost
        self.error: Exception | None = None
        self.found: dict[tuple[str | None, SourceLine | None], EvalDropout] = {}
        self.others = 0
        self._masks: dict[int, tuple[torch.Tensor, float | None]] = {}  # by address; held, so that no address is reused

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if self.error is None:
            try:
                self._inspect(func, args, kwargs, output)
            except Exception as error:  # the program continues
                self.error = error
        return output

    @property
    def observation(self) -> RandomnessInEval:
        if self.error is not None:
            raise self.error
        return RandomnessInEval(tuple(self.found.values()), self.others)

    def leave(self) -> None:
        """Leave the mode, and release the masks."""
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._masks.clear()

    def _inspect(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        name = func.overloadpacket.__name__
        given = _named(func, args, kwargs)
        if name in _FUSED or name in _COMPOSITE:
            if given.get("train") is not False and given.get("p"):
                self._note(name.strip("_"), given["p"], elementwise=not name.startswith("feature"))
        elif "dropout_p" in given:
            if given["dropout_p"]:
                self._note(name.strip("_"), given["dropout_p"], elementwise=True)
        elif name in _NOISE_SLOPE:
            if given.get("training"):
                self._note(name, None, elementwise=True)
        elif name in _BERNOULLI:
            keep = given.get("p")
            self._masks[output.data_ptr()] = (output, 1 - keep if isinstance(keep, float) else None)
        elif torch.Tag.nondeterministic_seeded in func.tags:
            self.others += 1
        if self._masks and name in _PRODUCTS | _RESULT_IS_A_MASK:
            self._follow(name, args, output)

    def _follow(self, name: str, args: tuple[Any, ...], output: Any) -> None:
        given = [tensor for _, tensor in tensors_in(args)]
        masks = [tensor for tensor in given if tensor.data_ptr() in self._masks and tensor.numel()]
        others = [tensor for tensor in given if tensor.data_ptr() not in self._masks and tensor.ndim]
        if not masks or not isinstance(output, torch.Tensor):
            return
        _, rate = self._masks[masks[0].data_ptr()]
        if name in _PRODUCTS and others and others[0].is_floating_point():
            self._note("dropout", rate, elementwise=masks[0].numel() >= others[0].numel())
        elif not others:
            self._masks[output.data_ptr()] = (output, rate)

    def _note(self, operation: str, rate: float | None, elementwise: bool) -> None:
        place = (self._innermost(), user_line())
        known = self.found.get(place)
        if known is not None:
            self.found[place] = dataclasses.replace(known, count=known.count + 1)
            return
        rate = None if rate is None else round(rate, 6)
        self.found[place] = EvalDropout(operation, *place, rate, elementwise, on_request=_is_requested(place[1]))


def _is_requested(line: SourceLine | None) -> bool:
    """Whether the source line passes a literal `True`."""
    return line is not None and bool(_LITERAL_TRUE.search(linecache.getline(line.file, line.line)))


def _named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operation by name, including defaults."""
    declared = schema_of(func).arguments
    named = {argument.name: argument.default_value for argument in declared if argument.has_default_value()}
    named.update({argument.name: value for argument, value in zip(declared, args, strict=False)})
    return {**named, **kwargs}
