"""Observe what the first steps of a loop compute with the statistics that the model holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch

from debugkit.finding import NotExamined
from debugkit.probe import THOROUGH_STEPS, Probe
from debugkit.recorders.function_calls import FunctionCalls, attach, detach
from debugkit.rules.dk402_normaliser_degenerate import NormalisedValues, Normalisers
from debugkit.rules.dk402_normaliser_degenerate.arithmetic import Arithmetic, by_line
from debugkit.rules.dk402_normaliser_degenerate.measure import computed_values, followed_pairs, owners_of
from debugkit.setup import TrainingSetup

_SETTLED = 8
"""Steps after which statistics that have not changed are taken to be constants."""


class NormalisersProbe(Probe[Normalisers]):
    """Follows the statistics in three steps, through lines and methods alike, and calls none of the methods itself.

    The statistics are compared with what they were before the first step: those that follow the data, as of the
    observations of an agent, are none of the data that came first.
    """

    watch_steps = _SETTLED

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._owners = list(owners_of(setup))
        self._pairs = [pair for index, owner in enumerate(self._owners) for pair in followed_pairs(index, owner)]
        if not self._pairs:
            raise NotExamined("No statistics (mean and std, min and max, q01 and q99) were found on any module.")
        self._before = [(one.clone(), two.clone()) for _, one, two in self._pairs]
        self._arithmetic = Arithmetic(self._pairs)
        self._mode: FunctionCalls | None = None
        self._steps = 0
        self._values: tuple[NormalisedValues, ...] | None = None
        self._ended = False

    def __enter__(self) -> Self:
        if self._values is None:
            self._mode = attach(self._arithmetic)
        return self

    def __exit__(self, *_: object) -> None:
        self._detach()

    def _detach(self) -> None:
        if self._mode is not None:
            detach(self._arithmetic, self._mode)
            self._mode = None
        self._arithmetic.forget()

    def before_backward(self, _losses: Sequence[torch.Tensor], /) -> None:
        self._arithmetic.forget()

    def end_step(self, _step: int, /) -> None:
        self._steps += 1
        if self._steps == THOROUGH_STEPS:
            self._summarise()

    def loop_ended(self) -> None:
        self._ended = True
        if self._steps and self._values is None:
            self._summarise()

    def _summarise(self) -> None:
        self._detach()
        if self._arithmetic.error is not None:
            raise self._arithmetic.error
        found = [one for one in by_line(self._arithmetic.found) if len(one.values)]
        self._arithmetic.found.clear()
        self._values = tuple(computed_values(one, self._owners) for one in found)

    @property
    def observation(self) -> Normalisers:
        if self._values is None or (self._steps < _SETTLED and not self._ended):
            raise NotExamined(f"The run is too short: {self._steps} of {_SETTLED} steps have ended.")
        kept = {
            (self._owners[pair.owner].module, self._owners[pair.owner].name, pair.names)
            for (pair, *now), before in zip(self._pairs, self._before, strict=True)
            if all(map(torch.equal, now, before))
        }
        values = (one for one in self._values if (one.module, one.owner, one.names) in kept)
        return Normalisers((), tuple(values))
