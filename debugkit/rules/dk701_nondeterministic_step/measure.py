"""Run the same forward and backward twice with the same seed, and find the first result that differs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from debugkit._torch_private import TorchDispatchMode
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.interventions.bit_digest import digest
from debugkit.interventions.held_generators import States, held_generators, held_generators_restored
from debugkit.interventions.module_stack import ModuleStack
from debugkit.loader_samples import generator_state
from debugkit.preserve_state import preserved
from debugkit.randomness import same_randomness
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.rules.dk701_nondeterministic_step import Divergence, RepeatedStep
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_SEED = 0
_LONGEST_SEED = 64
"""In bits: what people write, and what `torch.initial_seed()` returns."""


def repeat_the_step(setup: TrainingSetup) -> RepeatedStep:
    """Run forward and backward twice; if they differ, run forward twice more and compare each operation."""
    unseeded = [(generator, state) for generator, state in held_generators(setup) if _is_unseeded(generator)]
    first, second = _Trace.of(setup), _Trace.of(setup)
    forward = _differences(first.outputs, second.outputs)
    backward = _differences(first.gradients, second.gradients)
    compared = len(first.outputs) + len(first.gradients)
    different = len(forward) + len(backward)
    if forward:
        where = _first_operation(setup)
        return RepeatedStep(compared, different if where else 0, where)
    if backward:
        where = Divergence("backward", _module_of(backward[0]), parameter=backward[0])
        return RepeatedStep(compared, different, where)
    return RepeatedStep(compared, 0, Divergence("unseeded", None) if unseeded and _draws(setup, unseeded) else None)


def _is_unseeded(generator: Any) -> bool:
    """Whether it is a NumPy generator whose entropy of 128 bits came from the operating system. A seed is shorter."""
    seeds = getattr(getattr(generator, "bit_generator", None), "seed_seq", None)
    entropy = getattr(seeds, "entropy", None)
    return isinstance(entropy, int) and entropy.bit_length() > _LONGEST_SEED


def _draws(setup: TrainingSetup, generators: States) -> bool:
    """Whether a step draws from one of these generators."""
    with held_generators_restored(setup), preserved(setup), same_randomness(_SEED):
        setup.loss()
        return any(generator_state(generator) != state for generator, state in generators)


@contextlib.contextmanager
def _from_the_same_start(setup: TrainingSetup) -> Iterator[None]:
    with held_generators_restored(setup), preserved(setup), same_randomness(_SEED):
        yield


@dataclass
class _Trace:
    """Digests of the results of a step, in the order of computation."""

    outputs: list[tuple[str, bytes]] = field(default_factory=list)
    gradients: list[tuple[str, bytes]] = field(default_factory=list)

    @classmethod
    def of(cls, setup: TrainingSetup) -> _Trace:
        trace = cls()
        with _from_the_same_start(setup), trace._hooked(setup):
            loss = setup.loss()
            trace.outputs.append(("loss", digest(loss)))
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
        return trace

    @contextlib.contextmanager
    def _hooked(self, setup: TrainingSetup) -> Iterator[None]:
        handles = [
            parameter.register_post_accumulate_grad_hook(self._gradient_of(setup.parameter_paths[id(parameter)]))  # type: ignore[no-untyped-call]
            for parameter in setup.model.parameters()
            if parameter.requires_grad
        ]
        try:
            with ModuleCalls(setup.named_modules, after=self._output):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _output(self, path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        self.outputs.append((path, digest(output)))

    def _gradient_of(self, path: str) -> Callable[[torch.Tensor], None]:
        return lambda parameter: self.gradients.append((path, digest(parameter.grad)))


def _differences(first: list[tuple[str, bytes]], second: list[tuple[str, bytes]]) -> list[str]:
    different = [one[0] for one, other in zip(first, second, strict=False) if one != other]
    return different or ([max(first, second, key=len)[-1][0]] if len(first) != len(second) else [])


def _module_of(parameter: str) -> str:
    return parameter.rpartition(".")[0]


def _first_operation(setup: TrainingSetup) -> Divergence | None:
    """The first operation with a different result; None if it draws from a seeded generator that was not reset."""
    runs = []
    for _ in range(2):
        with _from_the_same_start(setup), ModuleStack(setup) as running, _OperationRecorder(running) as recorder:
            setup.loss()
        runs.append(recorder.operations)
    for one, other in zip(*runs, strict=False):
        if one.name != other.name:
            return Divergence("outside", one.module, one.name, one.at)
        if one.output == other.output or one.allocates:
            continue
        if one.draws:
            same_generator = one.generator_seed is not None and one.generator_seed == other.generator_seed
            return None if same_generator else Divergence("draw", one.module, one.name, one.at)
        source = "kernel" if one.inputs == other.inputs else "outside"
        return Divergence(source, one.module, one.name, one.at)  # type: ignore[arg-type]
    return None


@dataclass(frozen=True, slots=True)
class _Operation:
    name: str
    module: str | None
    at: SourceLine | None
    inputs: tuple[bytes, ...]
    output: bytes
    draws: bool
    generator_seed: int | None

    @property
    def allocates(self) -> bool:
        return "empty" in self.name


class _OperationRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, running: ModuleStack) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.running = running
        self.operations: list[_Operation] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = tuple(digest(value) for value in (*args, *kwargs.values()))
        output = func(*args, **kwargs)
        generator = kwargs.get("generator")
        self.operations.append(
            _Operation(
                name=func.overloadpacket.__name__,
                module=self.running.innermost,
                at=user_line(),
                inputs=given,
                output=digest([tensor for _, tensor in tensors_in(output)]),
                draws=torch.Tag.nondeterministic_seeded in func.tags,
                generator_seed=generator.initial_seed() if isinstance(generator, torch.Generator) else None,
            )
        )
        return output
