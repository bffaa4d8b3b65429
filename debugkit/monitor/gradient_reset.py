"""Whether an optimizer's gradients were reset between two of its steps, seen at the parameters themselves.

However a loop resets gradients (`optimizer.zero_grad()`, `model.zero_grad()`, `p.grad = None`, `p.grad.zero_()`), the
next gradient to arrive finds None or zeros. Looking at every arrival since the previous step, and asking whether *one*
found that, tells accumulation and a GAN's foreign gradients (which arrive, and are then wiped) from forgetting.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from debugkit.finding import SourceLine
from debugkit.monitor.timeline import Range, Timeline, has_range
from debugkit.observations.optimizer_events import GradientUse

_LOOKED_AT = 3  # parameters of each optimizer: a loop resets all of them or none
_REMEMBERED = 256
_MOST_KEPT = 100_000  # elements of a parameter that are kept, to see whether it moves


@dataclass
class _Use:
    """What happened to each looked-at parameter of one optimizer since its previous step."""

    arrivals: dict[int, int] = field(default_factory=dict)
    found_clean: set[int] = field(default_factory=set)
    at: SourceLine | None = None
    stepped: bool = False
    unchanged: bool = False


class GradientResets:
    """`look_at(number, optimizer)` for each optimizer, `stepped(...)` after each of its steps; `close()` at the end."""

    def __init__(self, timeline: Timeline, is_paused: Callable[[], bool]) -> None:
        self._timeline = timeline
        self._is_paused = is_paused
        self._uses: dict[tuple[int, int], _Use] = {}
        self._order: deque[tuple[int, int]] = deque()
        self._steps: dict[int, int] = {}
        self._handles: list[RemovableHandle] = []
        self._watched: dict[int, list[weakref.ref[Tensor]]] = {}
        self._starts: dict[int, list[Tensor]] = {}
        self._held: dict[int, list[tuple[Tensor, int] | None]] = {}

    def look_at(self, number: int, optimizer: torch.optim.Optimizer) -> None:
        """Hook a few small parameters of `optimizer`."""
        self._steps[number] = 0
        parameters = {id(p): p for group in optimizer.param_groups for p in group["params"]}
        leaves = [p for p in parameters.values() if p.requires_grad and p.is_leaf]
        smallest = sorted(leaves, key=lambda p: p.numel())[:_LOOKED_AT]
        small = [p for p in smallest if p.numel() <= _MOST_KEPT]
        self._watched[number] = [weakref.ref(parameter) for parameter in small]
        self._starts[number] = [parameter.detach().clone() for parameter in small]
        for index, parameter in enumerate(smallest):
            self._handles.append(parameter.register_hook(self._hook_for(number, index, weakref.ref(parameter))))

    def close(self) -> None:
        """Remove every hook."""
        for handle in self._handles:
            handle.remove()
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

    def absorb(self, ranges: list[Range]) -> None:
        """Take in what was read from the device since: the gradients that were found by new ones."""
        for entry_range in ranges:
            if entry_range.entry.kind == "held_gradient" and entry_range.minimum == entry_range.maximum == 0.0:
                number, step, index = map(int, entry_range.entry.name.split(":"))
                if (number, step) in self._uses:
                    self._uses[number, step].found_clean.add(index)

    def uses(self) -> tuple[GradientUse, ...]:
        """The finished uses, oldest first. Read the timeline and `absorb` before."""
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

    def moved(self, number: int) -> bool:
        """Whether a looked-at parameter has changed, by whatever hand; waits for the device."""
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

    def _hook_for(self, number: int, index: int, parameter: weakref.ref[Tensor]) -> Callable[[Tensor], None]:
        def arrives(_gradient: Tensor) -> None:
            held = parameter()
            if held is None or self._is_paused():
                return
            use = self._use(number)
            use.arrivals[index] = use.arrivals.get(index, 0) + 1
            if held.grad is None:
                use.found_clean.add(index)
            elif has_range(held.grad) and index not in use.found_clean:
                self._timeline.record("held_gradient", f"{number}:{self._steps[number]}:{index}", held.grad)
            elif not has_range(held.grad):
                use.found_clean.add(index)  # cannot be measured: in doubt, say nothing

        return arrives


def _gradient_now(parameter: Tensor | None) -> tuple[Tensor, int] | None:
    """A parameter's gradient, and how often it was written to. It is held: an address may be given out again."""
    gradient = None if parameter is None else parameter.grad
    return None if gradient is None else (gradient, gradient._version)


def _is_same(now: tuple[Tensor, int] | None, before: tuple[Tensor, int] | None) -> bool:
    if now is None or before is None:
        return now is before
    return now[0] is before[0] and now[1] == before[1]
