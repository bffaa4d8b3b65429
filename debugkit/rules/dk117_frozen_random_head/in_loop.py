"""Find frozen heads and a frozen layer in the first steps of a loop, and whether they stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor, nn

from debugkit.finding import NotExamined
from debugkit.probe import Probe
from debugkit.rules.dk117_frozen_random_head import FrozenAlone, Head, Heads
from debugkit.rules.dk117_frozen_random_head.measure import (
    HeadsProbe,
    is_linear,
    only_frozen,
    own_parameters,
    read_the_frozen_layer,
    weight_of,
)
from debugkit.setup import TrainingSetup

_STEPS = 8
"""In which all parts of a model have trained that train in turn, such as a discriminator with five steps for one."""
_SAMPLE = 256


class HeadsInLoopProbe(HeadsProbe):
    """Observes eight steps. A head counts if it is frozen in all of them and its weights stay the same."""

    watch_steps = _STEPS

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._steps = 0
        self._trainable = 0
        self._stepped: list[torch.optim.Optimizer] = []
        self._frozen: dict[str, Head] = {}
        self._began: dict[str, Tensor] = {}
        self._trained: set[str] = set()

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        if self._steps < _STEPS:
            for path, node in self.nearest([loss.grad_fn for loss in losses if loss.grad_fn is not None]):
                layer = self.layers[path]
                if not is_linear(layer) or path in self._frozen or path in self._trained:
                    continue
                if any(own.requires_grad for own in own_parameters(layer)):
                    self._trained.add(path)
                else:
                    self._frozen[path], self._began[path] = self.head(path, node), _sample(layer)
            trainable = sum(parameter.requires_grad for parameter in self.setup.model.parameters())
            self._trainable = max(self._trainable, trainable)
        self.forget()

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        if self._steps < _STEPS and not any(optimizer is one for one in self._stepped):
            self._stepped.append(optimizer)

    def end_step(self, _step: int, /) -> None:
        self._steps += 1
        if self._steps > _STEPS:
            return
        layers = {path: self.layers[path] for path in self._frozen}
        self._trained |= {path for path, one in layers.items() if any(p.requires_grad for p in own_parameters(one))}
        if self._steps == _STEPS:
            self.seen = self._stayed()

    @property
    def optimizers(self) -> Sequence[torch.optim.Optimizer]:
        return [*self.setup.optimizers, *self._stepped]

    @property
    def observation(self) -> Heads:
        _require_steps(self._steps)
        return super().observation

    def _stayed(self) -> Heads:
        """The heads whose weights are the same as in the first step."""
        layers = [(path, self.layers[path]) for path in self._frozen if path not in self._trained]
        kept = [path for path, layer in layers if self._began[path].equal(_sample(layer))]
        heads = (replace(self._frozen[path], resting=self.is_resting(self.layers[path])) for path in kept)
        return Heads(tuple(heads), self._trainable)


class FrozenAloneProbe(Probe[FrozenAlone]):
    """Observes the first backward pass, where the bias of the layer shows whether the loss reaches it."""

    watch_steps = _STEPS

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._path, self._layer = only_frozen(setup)
        self._biases = [own for own in own_parameters(self._layer) if own.requires_grad]
        if not self._biases:
            raise NotExamined("Whether the loss reaches a layer that is frozen as a whole takes one more pass.")
        self._heads = HeadsProbe(setup)
        self._alone: FrozenAlone | None = None
        self._why = "backward was not called, so there was no graph to walk."
        self._began: Tensor | None = None
        self._reached = False
        self._steps = 0

    def __enter__(self) -> Self:
        if self._steps == 0:
            self._heads.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._heads.__exit__()

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        if self._began is None:
            self._began = _sample(self._layer)
            last = any(self._path in self._heads.last_layers(loss) for loss in losses)
            try:
                self._alone = replace(read_the_frozen_layer(self.setup)[0], last=last)
            except NotExamined as why:
                self._why = str(why)
        self._heads.forget()

    def after_backward(self) -> None:
        if self._steps == 0 and not self._reached:
            self._reached = any(bool(own.grad.any()) for own in self._biases if own.grad is not None)

    def end_step(self, _step: int, /) -> None:
        self._steps += 1
        if self._steps == 1:
            self.__exit__()
        if self._steps == _STEPS and self._alone is not None and self._began is not None:
            stays = not weight_of(self._layer).requires_grad and self._began.equal(_sample(self._layer))
            self._alone = replace(self._alone, reached=self._reached) if stays else None
            self._why = "The layer trains later, or its weights are written."

    @property
    def observation(self) -> FrozenAlone:
        if self._alone is None:
            raise NotExamined(self._why)
        _require_steps(self._steps)
        return self._alone


def _require_steps(steps: int) -> None:
    """Raises NotExamined in the first steps, after which a part of the model may still be trained."""
    if steps < _STEPS:
        raise NotExamined(f"The run is too short: {steps} of {_STEPS} steps have ended.")


@torch.no_grad()
def _sample(layer: nn.Module) -> Tensor:
    """Some of the values of its frozen parameters, copied."""
    own = [one.detach().flatten() for one in own_parameters(layer) if not one.requires_grad and one.numel()]
    return torch.cat([one[:: -(-len(one) // _SAMPLE)].double() for one in own])
