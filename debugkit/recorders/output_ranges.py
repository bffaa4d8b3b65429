"""The range of every module's output, in order, kept on the device until it is read.

Also the only place that determines which module call is the *outermost*: called by the loop, not by another module.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from debugkit._torch_private import in_backward, in_transform, is_compiled, without_torch_function
from debugkit.module_paths import plain_path
from debugkit.recorders.activations import Activations, OutputRange
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.recorders.timeline import Timeline, has_range


class CallListener(Protocol):
    """Receives the calls of modules by the loop: when each begins and when it ends."""

    def leaves_out(self) -> bool:
        """Whether the call that begins now is not recorded."""

    def call_started(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """A call begins; returns its number on the timeline."""

    def call_ended(self, output: Any) -> None:
        """The call has returned `output`, or None if it raised."""


class Running:
    """The module calls that are running, outermost first; shared by all hooked models of a loop."""

    def __init__(self) -> None:
        self.modules: list[nn.Module] = []
        self.call = -1  # the outermost call's number on the timeline
        self.unwatched = False  # the outermost call is not recorded
        self.seen: dict[int, weakref.ref[Tensor]] = {}


class ModuleHooks:
    """Hooks every module of `model`; `.observation` reads the ranges so far.

    Outputs may be nested. Boolean, integer and empty tensors have no range, and a tensor that several modules return is
    measured once. Recomputation by activation checkpointing, tracing, `torch.func` transforms and compiled regions are
    skipped. `look(False)` removes the hooks for the next step. `thorough=False` measures only the result of the
    outermost call, which is enough to detect a NaN and to repeat the step, and hooks only modules that the loop called.

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
        self._called_by_loop: set[int] = set()
        self._calls = ModuleCalls(before=self.started, after=self._after, also_raised=True)

    @property
    def observation(self) -> Activations:
        """The ranges since the last read; this waits for the device."""
        ranges, _ = self.timeline.read()
        return Activations(tuple(OutputRange(r.entry.name, r.minimum, r.maximum) for r in ranges))

    def __enter__(self) -> Self:
        few = not self.thorough and bool(self._called_by_loop)
        for path, module in self.model.named_modules():
            if not few or id(module) in self._called_by_loop:
                self._hook(plain_path(self.prefix + path), module)
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.remove()
        self.running.modules.clear()
        self.running.seen.clear()

    def look(self, active: bool, *, thorough: bool = True) -> None:
        """Set how the next step is recorded. A compiled model keeps its hooks, because it would be recompiled."""
        changes, self.active = active != self.active, active
        changes |= thorough != self.thorough
        self.thorough = thorough
        if not changes:
            return
        if self._calls and not is_compiled(self.model):
            self.__exit__()
        if active and not self._calls:
            self.__enter__()

    def rename(self, prefix: str) -> None:
        """Use another prefix from now on."""
        self.prefix = prefix
        if self._calls and not is_compiled(self.model):
            self.__exit__()
            self.__enter__()

    def hooks_on(self, module: nn.Module) -> bool:
        """Whether `module` is hooked."""
        return id(module) in self._hooked

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The model's parameters with the paths that findings use."""
        for path, parameter in self.model.named_parameters():
            yield plain_path(self.prefix + path), parameter

    def started(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module's forward begins. Called by the hooks, or directly for a call that began before they existed."""
        if torch.compiler.is_compiling() or self.paused or in_backward():
            return
        running = self.running
        if not running.modules:
            running.seen.clear()
            self._called_by_loop.add(id(module))
            left_out = self.listener is not None and self.active and self.listener.leaves_out()
            running.unwatched = left_out or not self.active or in_transform()
            if self.listener is not None and not running.unwatched:
                with without_torch_function():
                    running.call = self.listener.call_started(path, module, args, kwargs)
        running.modules.append(module)

    def ended(self, path: str, module: nn.Module, output: Any) -> None:
        """A module's forward has ended; `output` is None if it raised."""
        if torch.compiler.is_compiling() or self.paused or in_backward():
            return
        running = self.running
        if module not in running.modules:
            return
        while running.modules.pop() is not module:
            pass  # calls that ended by an exception that was caught further up
        if running.unwatched:
            return
        if self.thorough or not running.modules:
            with without_torch_function():
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
        if self._calls.attach(path, module):
            self._hooked.add(id(module))

    def _after(self, path: str, module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        self.ended(path, module, output)
