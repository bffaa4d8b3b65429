"""The range of every module's output, in order, kept on the device until someone asks.

Also the one place that knows which module call is the *outermost*: called by the loop, not by another module.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from debugkit.monitor.timeline import Timeline, has_range
from debugkit.observations.activations import Activations, OutputRange
from debugkit.subject import plain_path


class CallListener(Protocol):
    """Who is told when the loop calls a module, and when that call is over."""

    def call_started(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """A call begins; returns the number the timeline is to know it by."""

    def call_ended(self, output: Any) -> None:
        """It returned `output`, or None if it raised."""


class Running:
    """The module calls running now, outermost first; shared by all hooked models of a loop."""

    def __init__(self) -> None:
        self.modules: list[nn.Module] = []
        self.call = -1  # the outermost call's number on the timeline
        self.unwatched = False  # the outermost call must be left alone
        self.seen: dict[int, weakref.ref[Tensor]] = {}


class ModuleHooks:
    """Hooks every module of `model`; `.observation` reads the ranges so far.

    Outputs of any nesting are followed; boolean, integer and empty tensors have no range, and a tensor that several
    modules hand on is measured once. Recomputation by activation checkpointing, tracing, `torch.func` transforms and
    compiled regions are passed over. `look(False)` takes the hooks off for the coming step, `thorough=False` measures
    what the outermost call returns and nothing inside it: enough to see that a NaN was made, and to repeat the step.

    >>> with ModuleHooks(nn.Sequential(nn.ReLU())) as hooks:
    ...     _ = hooks.model(torch.tensor([-1.0, 2.0]))
    >>> hooks.observation.outputs
    (OutputRange(module='0', minimum=0.0, maximum=2.0),)
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        timeline: Timeline | None = None,
        listener: CallListener | None = None,
        prefix: str = "",
        running: Running | None = None,
    ) -> None:
        self.model = model
        self.timeline = timeline if timeline is not None else Timeline()
        self.listener = listener
        self.active = True
        self.thorough = True
        self.paused = False  # while the tool itself runs the model
        self.running = running if running is not None else Running()
        self.prefix = prefix
        self._hooked: set[int] = set()  # id() of the modules, which `model` keeps alive
        self._handles: list[RemovableHandle] = []

    @property
    def observation(self) -> Activations:
        """The ranges since the last reading; this waits for the device."""
        ranges, _ = self.timeline.read()
        return Activations(tuple(OutputRange(r.entry.name, r.minimum, r.maximum) for r in ranges))

    def __enter__(self) -> Self:
        for path, module in self.model.named_modules():
            self._hook(plain_path(self.prefix + path), module)
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.running.modules.clear()
        self.running.seen.clear()

    def look(self, active: bool, *, thorough: bool = True) -> None:
        """How the coming step is looked at. A compiled model keeps its hooks, since it would compile again."""
        changes, self.active, self.thorough = active != self.active, active, thorough
        if changes and self._handles and not active and not _is_compiled(self.model):
            self.__exit__()
        elif changes and active and not self._handles:
            self.__enter__()

    def hooks_on(self, module: nn.Module) -> bool:
        """Whether `module` is one of the hooked ones."""
        return id(module) in self._hooked

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The model's parameters with the paths that findings use."""
        for path, parameter in self.model.named_parameters():
            yield plain_path(self.prefix + path), parameter

    def started(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module's forward begins. Called by the hooks; by hand where a call began before they were there."""
        if torch.compiler.is_compiling() or self.paused or torch._C._current_graph_task_id() != -1:
            return
        running = self.running
        if not running.modules:
            running.unwatched = not self.active or _in_transform()
            running.seen.clear()
            if self.listener is not None and not running.unwatched:
                running.call = self.listener.call_started(path, module, args, kwargs)
        running.modules.append(module)

    def ended(self, path: str, module: nn.Module, output: Any) -> None:
        """A module's forward is over; `output` is None where it raised."""
        if torch.compiler.is_compiling() or self.paused or torch._C._current_graph_task_id() != -1:
            return
        running = self.running
        if module not in running.modules:
            return
        while running.modules.pop() is not module:
            pass  # calls that an exception, caught further up, left without their end
        if running.unwatched:
            return
        if self.thorough or not running.modules:
            self._measure(path, output)
        if not running.modules and self.listener is not None:
            self.listener.call_ended(output)

    def _measure(self, path: str, output: Any) -> None:
        if type(output) is Tensor:
            if has_range(output) and self._first_time(output):
                self.timeline.record("output", path, output, self.running.call)
        elif isinstance(output, tuple | list):
            for item in output:
                self._measure(path, item)
        elif isinstance(output, Mapping):
            for item in output.values():
                self._measure(path, item)
        elif hasattr(output, "__dataclass_fields__"):
            for name in output.__dataclass_fields__:
                self._measure(path, getattr(output, name, None))

    def _first_time(self, tensor: Tensor) -> bool:
        known = self.running.seen.get(id(tensor))
        if known is not None and known() is tensor:
            return False
        self.running.seen[id(tensor)] = weakref.ref(tensor)
        return True

    def _hook(self, path: str, module: nn.Module) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            return  # does not take hooks with keyword arguments
        before, after = self._hooks_for(path)
        self._hooked.add(id(module))
        self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        self._handles.append(module.register_forward_hook(after, always_call=True))

    def _hooks_for(self, path: str) -> tuple[Callable[..., None], Callable[..., None]]:
        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.started(path, module, args, kwargs)

        def after(module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
            self.ended(path, module, output)

        return before, after


def _is_compiled(model: nn.Module) -> bool:
    return any(hasattr(part, "_orig_mod") or part._compiled_call_impl is not None for part in model.modules())


def _in_transform() -> bool:
    """Whether values here are symbols of a tracer or of `torch.func`, which must not outlive it."""
    return torch._C._get_tracing_state() is not None or torch._C._functorch.peek_interpreter_stack() is not None
