"""Hears which parameters got their gradient through the wrapper, and which parts were called without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from debugkit.distributed.wrappers import is_distributed, wrapped_module, wrappers_of
from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.monitor.patches import Patches
from debugkit.observations.wrapper_use import Bypass, WrapperUse, WrapperUses
from debugkit.probes import Probe, probe
from debugkit.structure import tensors_in
from debugkit.subject import Subject, plain_path

_REDUCTIONS = ("all_reduce", "all_reduce_coalesced", "all_gather", "reduce", "reduce_scatter_tensor")


@probe(WrapperUses, complete_after="backward")
class WrapperUseProbe(Probe[WrapperUses]):
    """One small hook a parameter; silent for a model that nothing wraps."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        found = wrappers_of(subject.model)
        if not found:
            raise NotExamined("Neither DistributedDataParallel nor FullyShardedDataParallel wraps this model.")
        self._wrappers = [_Wrapper(wrapper, subject) for wrapper in found]
        self._patches = Patches()

    def __enter__(self) -> Self:
        self._patches = Patches()
        self._patches.__enter__()
        for name in _REDUCTIONS if is_distributed() else ():
            for owner in (torch.distributed, torch.distributed.distributed_c10d):
                self._patches.around(owner, name, before=self._reduced)
        for wrapper in self._wrappers:
            wrapper.attach()
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.__exit__(None, None, None)
        for wrapper in self._wrappers:
            wrapper.detach()

    def after_backward(self) -> None:
        for wrapper in self._wrappers:
            wrapper.backward_ended()

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        for wrapper in self._wrappers:
            wrapper.stepped([p for group in optimizer.param_groups for p in group["params"]])

    def end_step(self, _step: int, /) -> None:
        for wrapper in self._wrappers:
            wrapper.end_step()

    @property
    def observation(self) -> WrapperUses:
        return WrapperUses(tuple(use for wrapper in self._wrappers if (use := wrapper.use) is not None))

    def _reduced(self, tensor: Any, *_: Any, **__: Any) -> None:
        count = sum(part.numel() for _, part in tensors_in(tensor))
        for wrapper in self._wrappers:
            wrapper.reduced += count


class _Wrapper:
    """What one wrapper and what is inside it did since the last optimizer step."""

    def __init__(self, wrapper: nn.Module, subject: Subject) -> None:
        self._wrapper = wrapper
        self._finds_unused = bool(getattr(wrapper, "find_unused_parameters", False))
        self._static_graph = bool(getattr(wrapper, "static_graph", False))
        inner = wrapped_module(wrapper)
        self._path = subject.module_paths.get(inner, "")
        prefix = f"{self._path}." if self._path else ""
        ignored = set(getattr(wrapper, "parameters_to_ignore", ()))
        # FullyShardedDataParallel changes its parameters while it runs: only its calls are heard.
        named = inner.named_parameters() if isinstance(wrapper, DistributedDataParallel) else ()
        self._parameters = {
            id(p): (prefix + plain_path(name), p) for name, p in named if p.requires_grad and name not in ignored
        }
        self._parts = {prefix + name: part for name, part in inner.named_children()} | {self._path: inner}
        self._handles: list[RemovableHandle] = []
        self._running = 0
        self._forwarded = False  # a forward through the wrapper, whose backward is still to come
        self._synchronises = True
        self._reached: set[int] = set()
        self._unused: tuple[str, ...] = ()
        self._through: set[int] = set()  # since the last step: got a gradient after a forward through the wrapper
        self._past: set[int] = set()  # and those that got one without it
        self._called: tuple[str, SourceLine | None] | None = None
        self._bypass: Bypass | None = None
        self._forwards = self.reduced = 0
        self._steps = 0
        self.use: WrapperUse | None = None

    def attach(self) -> None:
        hook = self._handles.append
        hook(self._wrapper.register_forward_pre_hook(self._before_forward, prepend=True))
        hook(self._wrapper.register_forward_hook(self._after_forward, always_call=True))
        for path, part in self._parts.items():
            hook(part.register_forward_hook(self._called_alone(path)))
        for key, (_, parameter) in self._parameters.items():
            hook(parameter.register_post_accumulate_grad_hook(self._accumulated(key)))  # type: ignore[no-untyped-call]

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before_forward(self, wrapper: nn.Module, _args: Any) -> None:
        self._running += 1
        if torch.is_grad_enabled():
            self._forwards += 1
            self._forwarded = True
            self._synchronises = bool(getattr(wrapper, "require_backward_grad_sync", True))
            self._reached = set()

    def _after_forward(self, *_: Any) -> None:
        self._running -= 1

    def _called_alone(self, path: str) -> Callable[..., None]:
        def after(_module: nn.Module, _args: Any, output: Any) -> None:
            if self._running or not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
                return
            at = user_line()
            made = next((t for _, t in tensors_in(output) if t.requires_grad and t.grad_fn is not None), None)
            if made is not None:
                made.register_hook(lambda _: self._gradient_came(path, at))  # type: ignore[no-untyped-call]

        return after

    def _gradient_came(self, path: str, at: SourceLine | None) -> None:
        """Backward went through a part that was called by itself; the outermost such call is kept."""
        if not self._forwarded and (self._called is None or _is_inside(self._called[0], path)):
            self._called = (path, at)

    def _accumulated(self, key: int) -> Callable[[Tensor], None]:
        def after(_parameter: Tensor) -> None:
            if self._forwarded:
                self._reached.add(key)
                self._through.add(key)
            else:
                self._past.add(key)

        return after

    def backward_ended(self) -> None:
        if self._forwarded and self._reached:
            missed = [name for key, (name, _) in self._parameters.items() if key not in self._reached]
            self._unused = tuple(missed)
        if self._reached or not self._parameters:
            self._forwarded = False  # else it was another model's backward, and this one's is still to come

    def stepped(self, parameters: list[Tensor]) -> None:
        """An optimizer is about to use the gradients of these."""
        self._steps += 1
        mine = {id(p) for p in parameters if id(p) in self._parameters}
        past = (self._past & mine) - self._through
        if past and not self._through & mine:
            self._note(past)
        elif not self._parameters and self._called is not None and not self._forwards:
            self._note(set())
        if mine or not self._parameters:
            self._through -= mine
            self._past -= mine
            self._called, self.reduced = None, 0

    def end_step(self) -> None:
        if not self._steps and self._past and not self._through:
            self._note(self._past)  # no optimizer was given: the gradients stand for the step
        self.use = WrapperUse(
            kind=type(self._wrapper).__name__,
            module=self._path,
            rank=torch.distributed.get_rank() if is_distributed() else 0,
            world_size=torch.distributed.get_world_size() if is_distributed() else 1,
            parameters=len(self._parameters),
            finds_unused=self._finds_unused,
            static_graph=self._static_graph,
            synchronises=self._synchronises,
            forwards=self._forwards,
            unused=self._unused,
            bypass=self._bypass,
        )
        self._unused, self._bypass, self._forwards, self._steps = (), None, 0, 0

    def _note(self, keys: set[int]) -> None:
        module, at = self._called or (None, None)
        elements = sum(self._parameters[key][1].numel() for key in keys)
        self._bypass = Bypass(module, at, len(keys), elements, self.reduced)


def _is_inside(path: str, outer: str) -> bool:
    return path != outer and (not outer or path.startswith(f"{outer}."))
