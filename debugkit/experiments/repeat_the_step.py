"""Run the same forward and backward twice from the same seed, and find what first comes out different."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from debugkit.experiments import experiment
from debugkit.experiments.bit_digest import digest
from debugkit.experiments.module_stack import ModuleStack
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.held_generators import held_generators_restored
from debugkit.observations.repeated_step import Divergence, RepeatedStep
from debugkit.restore import restored, same_randomness
from debugkit.structure import tensors_in
from debugkit.subject import Subject

_SEED = 0


@experiment(RepeatedStep, cost=6, requires=("batch",))
def repeat_the_step(subject: Subject) -> RepeatedStep:
    """Two forward and backward passes; two more forward passes, operation by operation, where they differ."""
    first, second = _Trace.of(subject), _Trace.of(subject)
    forward = _differences(first.outputs, second.outputs)
    backward = _differences(first.gradients, second.gradients)
    compared = len(first.outputs) + len(first.gradients)
    different = len(forward) + len(backward)
    if forward:
        where = _first_operation(subject)
        return RepeatedStep(compared, different if where else 0, where)
    divergence = Divergence("backward", _module_of(backward[0]), parameter=backward[0]) if backward else None
    return RepeatedStep(compared, different, divergence)


@contextlib.contextmanager
def _from_the_same_start(subject: Subject) -> Iterator[None]:
    with held_generators_restored(subject), restored(subject), same_randomness(_SEED):
        yield


@dataclass
class _Trace:
    """Digests of a step, in the order in which they came."""

    outputs: list[tuple[str, bytes]] = field(default_factory=list)
    gradients: list[tuple[str, bytes]] = field(default_factory=list)

    @classmethod
    def of(cls, subject: Subject) -> _Trace:
        trace = cls()
        with _from_the_same_start(subject), trace._hooked(subject):
            loss = subject.loss()
            trace.outputs.append(("loss", digest(loss)))
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
        return trace

    @contextlib.contextmanager
    def _hooked(self, subject: Subject) -> Iterator[None]:
        handles = [
            module.register_forward_hook(self._output_of(path))
            for module, path in subject.module_paths.items()
            if not isinstance(module, torch.jit.ScriptModule)
        ]
        handles += [
            parameter.register_post_accumulate_grad_hook(self._gradient_of(subject.parameter_paths[id(parameter)]))  # type: ignore[no-untyped-call]
            for parameter in subject.model.parameters()
            if parameter.requires_grad
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _output_of(self, path: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda _module, _inputs, output: self.outputs.append((path, digest(output)))

    def _gradient_of(self, path: str) -> Callable[[torch.Tensor], None]:
        return lambda parameter: self.gradients.append((path, digest(parameter.grad)))


def _differences(first: list[tuple[str, bytes]], second: list[tuple[str, bytes]]) -> list[str]:
    different = [one[0] for one, other in zip(first, second, strict=False) if one != other]
    return different or ([max(first, second, key=len)[-1][0]] if len(first) != len(second) else [])


def _module_of(parameter: str) -> str:
    return parameter.rpartition(".")[0]


def _first_operation(subject: Subject) -> Divergence | None:
    """The first operation with another result; None where it drew on from a generator that was seeded once."""
    runs = []
    for _ in range(2):
        with _from_the_same_start(subject), ModuleStack(subject) as running, _OperationRecorder(running) as recorder:
            subject.loss()
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
