"""The record of a loop, divided at the steps of one optimizer: the events between one `step()` and the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.loop.optimizer_events import LoopEvent, OptimizerEvents


@dataclass(frozen=True)
class Interval:
    """All events after the previous `step()` of an optimizer, and the step that ended the interval."""

    events: tuple[LoopEvent, ...]
    step: LoopEvent

    def last(self, kind: str, optimizer: int | None = None) -> int | None:
        """The index in `events` of the last event of a kind (of one optimizer, if given)."""
        places = [i for i, event in enumerate(self.events) if event.kind == kind and _concerns(event, optimizer)]
        return places[-1] if places else None

    def first(self, kind: str, optimizer: int | None = None) -> int | None:
        """The index in `events` of the first event of a kind (of one optimizer, if given)."""
        places = (i for i, event in enumerate(self.events) if event.kind == kind and _concerns(event, optimizer))
        return next(places, None)


def intervals(seen: OptimizerEvents, optimizer: int) -> Iterator[Interval]:
    """The complete intervals of one optimizer, oldest first. An interval whose start was dropped is left out."""
    since: list[LoopEvent] = []
    complete = bool(seen.events) and seen.events[0].order == 0
    for event in seen.events:
        if event.kind == "step" and optimizer in event.optimizers:
            if complete:
                yield Interval(tuple(since), event)
            since, complete = [], True
        else:
            since.append(event)


def steps_alone(seen: OptimizerEvents, optimizer: int) -> bool:
    """Whether no other optimizer steps between the first and the last step of this one, as in a stage of a run."""
    own = [event.optimizers == (optimizer,) for event in seen.events if event.kind == "step"]
    return True in own and all(own[own.index(True) : len(own) - own[::-1].index(True)])


def name_of(seen: OptimizerEvents, optimizer: int) -> str:
    """`AdamW`, with its number if there are several optimizers."""
    label = seen.labels[optimizer]
    return f"{label} (optimizer {optimizer})" if len(seen.labels) > 1 else label


def _concerns(event: LoopEvent, optimizer: int | None) -> bool:
    return optimizer is None or optimizer in event.optimizers
