"""Records which parameters get their gradient through the wrapper, and which parts are called without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from debugkit._torch_private import in_backward
from debugkit.distributed.collectives import REDUCTIONS
from debugkit.distributed.wrappers import is_distributed, wrapped_module, wrappers_of
from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.held_parameters import held_parameters
from debugkit.measurements.wrapper_use import Bypass, WrapperUse, WrapperUses
from debugkit.module_paths import plain_path
from debugkit.probe import Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.recorders.patches import Patches
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in


class WrapperUseProbe(Probe[WrapperUses]):
    """One small hook for each parameter. Raises NotExamined for a model without a wrapper."""

    complete_after = "backward"

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        found = wrappers_of(setup.model)
        if not found:
            raise NotExamined("Neither DistributedDataParallel nor FullyShardedDataParallel wraps this model.")
        self._wrappers = [_Wrapper(wrapper, setup) for wrapper in found]
        self._patches = Patches()

    def __enter__(self) -> Self:
        self._patches = Patches()
        self._patches.__enter__()
        for name in REDUCTIONS if is_distributed() else ():
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
            wrapper.before_step(list(held_parameters(optimizer)))

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
    """The use of one wrapper and of its parts since the last optimizer step."""

    def __init__(self, wrapper: nn.Module, setup: TrainingSetup) -> None:
        self._wrapper = wrapper
        self._finds_unused = bool(getattr(wrapper, "find_unused_parameters", False))
        self._static_graph = bool(getattr(wrapper, "static_graph", False))
        inner = wrapped_module(wrapper)
        self._path = setup.module_paths.get(inner, "")
        prefix = f"{self._path}." if self._path else ""
        ignored = set(getattr(wrapper, "parameters_to_ignore", ()))
        # FullyShardedDataParallel replaces its parameters while it runs, so only its calls are recorded.
        named = inner.named_parameters() if isinstance(wrapper, DistributedDataParallel) else ()
        self._parameters = {
            id(p): (prefix + plain_path(name), p) for name, p in named if p.requires_grad and name not in ignored
        }
        self._parts = {prefix + name: part for name, part in inner.named_children()} | {self._path: inner}
        self._passes = ModuleCalls(
            [("", wrapper)],
            before=self._before_forward,
            after=self._after_forward,
            also_raised=True,
            before_others=True,
        )
        self._direct_calls = ModuleCalls(self._parts.items(), after=self._after_part)
        self._handles: list[RemovableHandle] = []
        self._running = 0
        self._forwarded = False  # a forward through the wrapper ran, and its backward has not run yet
        self._synchronises = True
        self._reached: set[int] = set()
        self._unused: tuple[str, ...] = ()
        self._through: set[int] = set()  # parameters with a gradient through the wrapper, since the last step
        self._past: set[int] = set()  # parameters with a gradient that bypassed the wrapper
        self._called: tuple[str, SourceLine | None] | None = None
        self._bypass: Bypass | None = None
        self._forwards = self.reduced = 0
        self._steps = 0
        self.use: WrapperUse | None = None

    def attach(self) -> None:
        self._passes.__enter__()
        self._direct_calls.__enter__()
        for key, (_, parameter) in self._parameters.items():
            hook = parameter.register_post_accumulate_grad_hook(self._accumulated(key))  # type: ignore[no-untyped-call]
            self._handles.append(hook)

    def detach(self) -> None:
        self._passes.remove()
        self._direct_calls.remove()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before_forward(self, _path: str, wrapper: nn.Module, *_: Any) -> None:
        self._running += 1
        if torch.is_grad_enabled():
            self._forwards += 1
            self._forwarded = True
            self._synchronises = bool(getattr(wrapper, "require_backward_grad_sync", True))
            self._reached = set()

    def _after_forward(self, *_: Any) -> None:
        self._running -= 1

    def _after_part(self, path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        if self._running or not torch.is_grad_enabled() or in_backward():
            return
        at = user_line()
        made = next((t for _, t in tensors_in(output) if t.requires_grad and t.grad_fn is not None), None)
        if made is not None:
            made.register_hook(lambda _: self._record_direct_call(path, at))  # type: ignore[no-untyped-call]

    def _record_direct_call(self, path: str, at: SourceLine | None) -> None:
        """Backward went through a part that was called directly. The outermost such call is kept."""
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
            self._forwarded = False  # else it was the backward of another model

    def before_step(self, parameters: list[Tensor]) -> None:
        """Called before an optimizer uses the gradients of `parameters`."""
        self._steps += 1
        mine = {id(p) for p in parameters if id(p) in self._parameters}
        past = (self._past & mine) - self._through
        if past and not self._through & mine:
            self._record_bypass(past)
        elif not self._parameters and self._called is not None and not self._forwards:
            self._record_bypass(set())
        if mine or not self._parameters:
            self._through -= mine
            self._past -= mine
            self._called, self.reduced = None, 0

    def end_step(self) -> None:
        if not self._steps and self._past and not self._through:
            self._record_bypass(self._past)  # no optimizer was given, so judge by the gradients alone
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

    def _record_bypass(self, keys: set[int]) -> None:
        module, at = self._called or (None, None)
        elements = sum(self._parameters[key][1].numel() for key in keys)
        self._bypass = Bypass(module, at, len(keys), elements, self.reduced)


def _is_inside(path: str, outer: str) -> bool:
    return path != outer and (not outer or path.startswith(f"{outer}."))
