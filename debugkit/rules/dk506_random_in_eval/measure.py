"""Run one pass in eval mode and inspect each operation: which ones draw random numbers, and which multiply by them."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from debugkit._torch_private import TorchDispatchMode, schema_of
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.interventions.module_stack import ModuleStack
from debugkit.interventions.passes import enter_eval_mode
from debugkit.randomness import same_randomness
from debugkit.rules.dk506_random_in_eval import EvalDropout, RandomnessInEval
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_BERNOULLI = frozenset(("bernoulli", "bernoulli_"))
_FUSED = frozenset(("native_dropout", "_fused_dropout", "alpha_dropout", "feature_dropout"))
_NOISE_SLOPE = frozenset(("rrelu_with_noise", "rrelu_with_noise_functional", "rrelu_with_noise_"))
_PRODUCTS = frozenset(("mul", "mul_"))
_RESULT_IS_A_MASK = frozenset(("div", "div_", "mul", "mul_", "_to_copy", "view", "_unsafe_view", "reshape", "expand"))


def draw_in_eval(setup: TrainingSetup) -> RandomnessInEval:
    """Compute the loss once in eval mode, without gradients."""
    enter_eval_mode(setup)
    with ModuleStack(setup) as running, same_randomness(0), torch.no_grad():
        batch = setup.fresh_batch()
        with _DrawRecorder(running) as draws:
            setup.loss(batch)
    return RandomnessInEval(tuple(draws.found.values()), draws.others)


class _DrawRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Finds dropout, also dropout written by hand: a random 0/1 tensor that another tensor is multiplied by."""

    def __init__(self, running: ModuleStack) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.running = running
        self.found: dict[tuple[str | None, SourceLine | None], EvalDropout] = {}
        self.others = 0
        self._masks: dict[int, tuple[torch.Tensor, float | None]] = {}  # by address; held, so that no address is reused

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        given = _named(func, args, kwargs)
        if name in _FUSED:
            if given.get("train") is not False and given.get("p"):
                self._note(name, given["p"], elementwise=True)
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
        return output

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
        place = (self.running.innermost, user_line())
        known = self.found.get(place)
        if known is not None:
            self.found[place] = dataclasses.replace(known, count=known.count + 1)
        else:
            self.found[place] = EvalDropout(operation, *place, None if rate is None else round(rate, 6), elementwise)


def _named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operation by name, including defaults."""
    declared = schema_of(func).arguments
    named = {argument.name: argument.default_value for argument in declared if argument.has_default_value()}
    named.update({argument.name: value for argument, value in zip(declared, args, strict=False)})
    return {**named, **kwargs}
