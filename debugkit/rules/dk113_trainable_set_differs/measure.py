"""Compares `requires_grad` of every parameter with the declared patterns, without a forward pass."""

from __future__ import annotations

from fnmatch import fnmatchcase

from debugkit.finding import NotExamined
from debugkit.module_paths import plain_path
from debugkit.rules.dk113_trainable_set_differs import TrainableSet
from debugkit.setup import TrainingSetup


def compare_the_trainable_set(setup: TrainingSetup) -> TrainableSet:
    """Raises NotExamined if nothing was declared."""
    patterns = setup.declare.trainable
    if patterns is None:
        raise NotExamined("The trainable parameters are not declared: pass declare=Declare(trainable=(…)).")
    names: dict[int, list[str]] = {}
    for path, parameter in setup.model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(plain_path(path))
    every_name = [name for of_one in names.values() for name in of_one]
    declared = {key for key, own in names.items() if any(fnmatchcase(n, p) for n in own for p in patterns)}
    own = {id(parameter): parameter for parameter in setup.model.parameters()}
    undeclared = [key for key, parameter in own.items() if parameter.requires_grad and key not in declared]
    frozen = [key for key, parameter in own.items() if not parameter.requires_grad and key in declared]
    return TrainableSet(
        trainable=sum(parameter.requires_grad for parameter in own.values()),
        unmatched=tuple(pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in every_name)),
        undeclared=tuple(names[key][0] for key in undeclared),
        frozen=tuple(names[key][0] for key in frozen),
        numel_undeclared=sum(own[key].numel() for key in undeclared),
        numel_frozen=sum(own[key].numel() for key in frozen),
    )
