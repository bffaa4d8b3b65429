"""Compares `requires_grad` of every parameter with the declared patterns and with flags that modules have."""

from __future__ import annotations

from fnmatch import fnmatchcase

import torch
from torch import nn
from torch.optim import Optimizer

from debugkit.finding import NotExamined
from debugkit.module_paths import plain_path
from debugkit.probe import SAMPLED_EVERY, SETTLING_STEPS, Probe
from debugkit.rules.dk113_trainable_set_differs import PlainAttribute, TrainableSet
from debugkit.rules.dk113_trainable_set_differs.plain_attributes import Assigned, assigned, described, of_the_program
from debugkit.setup import TrainingSetup

_STEPS_WITHOUT_THAW = 8
_COMPARED = 8
"""Parameters that are copied to see whether a step changes them."""


def compare_the_trainable_set(setup: TrainingSetup) -> TrainableSet:
    """Raises NotExamined if nothing was declared and no module has a flag."""
    patterns, flags = setup.declare.trainable, assigned(setup)
    if patterns is None and not flags:
        raise NotExamined("The trainable parameters are not declared: pass declare=Declare(trainable=(…)).")
    trainable = sum(parameter.requires_grad for parameter in setup.model.parameters())
    attributes = _contradicting(flags, setup)
    if patterns is None:
        return TrainableSet(trainable, (), (), (), 0, 0, attributes)
    names: dict[int, list[str]] = {}
    for path, parameter in setup.model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(plain_path(path))
    every_name = [name for of_one in names.values() for name in of_one]
    declared = {key for key, own in names.items() if any(fnmatchcase(n, p) for n in own for p in patterns)}
    own = {id(parameter): parameter for parameter in setup.model.parameters()}
    undeclared = [key for key, parameter in own.items() if parameter.requires_grad and key not in declared]
    frozen = [key for key, parameter in own.items() if not parameter.requires_grad and key in declared]
    return TrainableSet(
        trainable=trainable,
        unmatched=tuple(pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in every_name)),
        undeclared=tuple(names[key][0] for key in undeclared),
        frozen=tuple(names[key][0] for key in frozen),
        numel_undeclared=sum(own[key].numel() for key in undeclared),
        numel_frozen=sum(own[key].numel() for key in frozen),
        attributes=attributes,
    )


def _contradicting(flags: list[Assigned], setup: TrainingSetup) -> tuple[PlainAttribute, ...]:
    """Flags that no parameter follows. One that is False counts unless the parameters cannot train, if that is known.

    The gradients are computed only if there is such a flag.
    """
    wrong = of_the_program((flag for flag in flags if flag.contradicts), setup)
    if setup.optimizers:
        wrong = [flag for flag in wrong if flag.value or flag.held_by(setup.optimizers)]
    below = {path: p for flag in wrong if not flag.value for path, p in flag.parameters.items()}
    receiving = _with_gradient(below, setup) if below else None
    if receiving is not None:
        wrong = [flag for flag in wrong if flag.value or receiving & flag.parameters.keys()]

    def trained(flag: Assigned) -> bool | None:
        if flag.value:
            return False
        return None if receiving is None or not setup.optimizers else True

    return described(wrong, trained, setup)


def _with_gradient(parameters: dict[str, nn.Parameter], setup: TrainingSetup) -> set[str] | None:
    """The parameters with a gradient that is not zero in one step; None if it cannot be computed."""
    if setup.batch is None or not setup.knows_loss:
        return None
    try:
        loss = setup.loss()
        if not loss.requires_grad:
            return set()
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    except Exception:  # the observed step tells why
        return None
    each = zip(parameters, gradients, strict=True)
    return {path for path, gradient in each if gradient is not None and bool(gradient.any())}


class PlainAttributesProbe(Probe[TrainableSet]):
    """Under watch(): a flag that is False counts if a step changed the parameters, one that is True after eight steps.

    A flag that some parameter followed in any step is left out from then on. Parameters are copied only in a step in
    which a flag contradicts them.
    """

    watch_first = SETTLING_STEPS
    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._flagged = False
        self._settled: set[tuple[str, str]] = set()
        self._steps: dict[tuple[str, str], int] = {}
        self._found: dict[tuple[str, str], PlainAttribute] = {}
        self._copies: list[tuple[Assigned, list[tuple[nn.Parameter, torch.Tensor]]]] = []

    def __exit__(self, *error: object) -> None:
        self._copies.clear()

    def before_optimizer_step(self, optimizer: Optimizer, /) -> None:
        self._copies.clear()
        flags = assigned(self.setup)
        self._flagged = self._flagged or bool(flags)
        due = []
        for flag in flags:
            key = flag.path, flag.name
            if not flag.contradicts:
                self._settled.add(key)
            elif key in self._settled:
                continue
            elif not flag.value:
                held = [parameter for parameter in flag.held_by([optimizer]).values() if parameter.grad is not None]
                smallest = sorted(held, key=lambda parameter: parameter.numel())[:_COMPARED]
                if smallest:
                    self._copies.append((flag, [(parameter, parameter.detach().clone()) for parameter in smallest]))
            else:
                self._steps[key] = self._steps.get(key, 0) + 1
                if self._steps[key] == _STEPS_WITHOUT_THAW:
                    due.append(flag)
        self._add(due)

    def after_optimizer_step(self, _optimizer: Optimizer, /) -> None:
        copies, self._copies = self._copies, []
        changed = [flag for flag, kept in copies if any(not torch.equal(now.detach(), old) for now, old in kept)]
        self._add(changed)

    def _add(self, flags: list[Assigned]) -> None:
        self._settled |= {(flag.path, flag.name) for flag in flags}  # each is examined once
        for one in described(of_the_program(flags, self.setup), lambda flag: not flag.value, self.setup):
            self._found[one.owners[0], one.name] = one

    @property
    def observation(self) -> TrainableSet:
        if not self._flagged:
            raise NotExamined(
                "No module has an attribute `requires_grad`. Patterns in Declare(trainable=…) are compared by "
                "debugkit.check()."
            )
        trainable = sum(parameter.requires_grad for parameter in self.setup.model.parameters())
        return TrainableSet(trainable, (), (), (), 0, 0, tuple(self._found.values()))
