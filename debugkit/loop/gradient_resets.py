"""Whether an optimizer's gradients were reset between two of its steps, observed at the parameters themselves.

After any kind of reset (`optimizer.zero_grad()`, `model.zero_grad()`, `p.grad = None`, `p.grad.zero_()`), the next
gradient that arrives finds `.grad` None or zero. If no gradient since the previous step found that, the reset was
forgotten. With accumulation at least the first one does, and in a GAN one that arrives after the reset.

Only what is added to `.grad` counts: `torch.autograd.grad()` returns gradients, and the program may assign them.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from debugkit._torch_private import version_of
from debugkit.finding import SourceLine
from debugkit.held_parameters import smallest_trained
from debugkit.loop.optimizer_events import GradientUse
from debugkit.probe import FIRST_STEPS
from debugkit.recorders.timeline import Range, Timeline, has_range

_SAMPLED = 3  # parameters of each optimizer
_REMEMBERED = 256
_LARGEST_COPY = 100_000  # elements of a parameter that is copied, to see whether it changes


@dataclass
class _Use:
    """What happened to each sampled parameter of one optimizer since its previous step."""

    arrivals: dict[int, int] = field(default_factory=dict)
    found_clean: set[int] = field(default_factory=set)
    found_none: dict[int, int] = field(default_factory=dict)
    at: SourceLine | None = None
    stepped: bool = False
    unchanged: bool = False


class GradientResets:
    """Call `sample(number, optimizer)` once, `stepped(…)` after each of its steps, and `close()` at the end."""

    def __init__(self, timeline: Timeline, is_paused: Callable[[], bool]) -> None:
        self._timeline = timeline
        self._is_paused = is_paused
        self._uses: dict[tuple[int, int], _Use] = {}
        self._order: deque[tuple[int, int]] = deque()
        self._steps: dict[int, int] = {}
        self._handles: dict[int, dict[int, tuple[RemovableHandle, RemovableHandle]]] = {}  # by optimizer and parameter
        self._watched: dict[int, list[weakref.ref[Tensor]]] = {}
        self._starts: dict[int, list[Tensor]] = {}
        self._held: dict[int, list[tuple[Tensor, int] | None]] = {}

    def sample(self, number: int, optimizer: torch.optim.Optimizer) -> None:
        """Choose a few small parameters of `optimizer` and hook them."""
        self._steps[number] = 0
        smallest = smallest_trained(optimizer, _SAMPLED)
        small = [p for p in smallest if p.numel() <= _LARGEST_COPY]
        self._watched[number] = [weakref.ref(parameter) for parameter in small]
        self._starts[number] = [parameter.detach().clone() for parameter in small]
        for index, parameter in enumerate(smallest):
            arrives, is_added = self._hooks_for(number, index, weakref.ref(parameter))
            self._handles.setdefault(number, {})[index] = (
                parameter.register_hook(arrives),  # type: ignore[no-untyped-call]
                parameter.register_post_accumulate_grad_hook(is_added),  # type: ignore[no-untyped-call]
            )

    def close(self) -> None:
        """Remove every hook."""
        for handles in self._handles.values():
            _remove(handles)
        self._handles.clear()
        self._held.clear()

    def stepped(self, number: int, at: SourceLine | None) -> None:
        """`optimizer.step()` of this optimizer has run."""
        use = self._use(number)
        use.at, use.stepped = at, True
        held = [_gradient_now(parameter()) for parameter in self._watched.get(number, ())]
        before = self._held.get(number)
        use.unchanged = before is not None and len(held) > 0 and all(map(_is_same, held, before))
        self._held[number] = held
        self._steps[number] += 1
        if self._steps[number] > FIRST_STEPS:
            self._keep_one(self._handles.get(number, {}), use.arrivals)

    @staticmethod
    def _keep_one(handles: dict[int, tuple[RemovableHandle, RemovableHandle]], arrivals: Iterable[int]) -> None:
        """Keep the hooks of one parameter to which a gradient has just come: in tiny models they cost the most."""
        kept = next(iter(arrivals), None)
        if kept in handles and len(handles) > 1:
            _remove({index: handles.pop(index) for index in list(handles) if index != kept})

    def absorb(self, ranges: list[Range]) -> None:
        """Use the ranges that were read from the device: those of `.grad` just before a new gradient was added."""
        for entry_range in ranges:
            if entry_range.entry.kind == "held_gradient" and entry_range.minimum == entry_range.maximum == 0.0:
                number, step, index = map(int, entry_range.entry.name.split(":"))
                if (number, step) in self._uses:
                    self._uses[number, step].found_clean.add(index)

    def uses(self) -> tuple[GradientUse, ...]:
        """The complete uses, oldest first. Read the timeline and call `absorb` before."""
        return tuple(
            GradientUse(
                optimizer=number,
                step=step,
                accumulations=max(use.arrivals.values(), default=0),
                reset=all(index in use.found_clean for index in use.arrivals),
                at=use.at,
                unchanged=use.unchanged,
            )
            for number, step in self._order
            if (use := self._uses[number, step]).stepped
        )

    def fresh(self, number: int) -> int:
        """How often a gradient arrived at a parameter whose `.grad` was None since this optimizer's last step."""
        use = self._uses.get((number, self._steps.get(number, 0)))
        return 0 if use is None else max(use.found_none.values(), default=0)

    def moved(self, number: int) -> bool:
        """Whether a sampled parameter has changed, by the optimizer or by other code; waits for the device."""
        if self._steps.get(number):
            return True
        now = [parameter() for parameter in self._watched.get(number, ())]
        pairs = zip(now, self._starts.get(number, ()), strict=True)
        return any(parameter is None or not torch.equal(parameter.detach(), start) for parameter, start in pairs)

    def _use(self, number: int) -> _Use:
        key = (number, self._steps[number])
        if key not in self._uses:
            self._uses[key] = _Use()
            self._order.append(key)
            if len(self._order) > _REMEMBERED:
                del self._uses[self._order.popleft()]
        return self._uses[key]

    def _hooks_for(
        self, number: int, index: int, parameter: weakref.ref[Tensor]
    ) -> tuple[Callable[[Tensor], None], Callable[[Tensor], None]]:
        """What is called when a gradient arrives, and when it has been added to `.grad`."""
        found: Literal["none", "unknown", "values"] | None = None

        def arrives(_gradient: Tensor) -> None:
            nonlocal found
            found = None
            held = parameter()
            if held is None or self._is_paused():
                return
            if held.grad is None:
                found = "none"
            elif not has_range(held.grad):
                found = "unknown"
            else:
                found = "values"
                if index not in self._use(number).found_clean:
                    self._timeline.record("held_gradient", f"{number}:{self._steps[number]}:{index}", held.grad)

        def is_added(_parameter: Tensor) -> None:
            nonlocal found
            if found is None:
                return
            use = self._use(number)
            use.arrivals[index] = use.arrivals.get(index, 0) + 1
            if found != "values":
                use.found_clean.add(index)  # one that cannot be measured counts as clean, to avoid a false finding
            if found == "none":
                use.found_none[index] = use.found_none.get(index, 0) + 1
            found = None

        return arrives, is_added


def _remove(handles: dict[int, tuple[RemovableHandle, RemovableHandle]]) -> None:
    for pair in handles.values():
        for handle in pair:
            handle.remove()


def _gradient_now(parameter: Tensor | None) -> tuple[Tensor, int] | None:
    """A parameter's gradient and its version. The tensor itself is kept, because its address could be reused."""
    gradient = None if parameter is None else parameter.grad
    return None if gradient is None else (gradient, version_of(gradient))


def _is_same(now: tuple[Tensor, int] | None, before: tuple[Tensor, int] | None) -> bool:
    if now is None or before is None:
        return now is before
    return now[0] is before[0] and now[1] == before[1]
