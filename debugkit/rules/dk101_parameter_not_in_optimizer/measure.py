"""Compares the model's trainable parameters with those that the optimizers hold, and records which got a gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from debugkit.interventions.program_lines import built_at
from debugkit.interventions.unregistered_parameters import outside_names
from debugkit.measurements.autograd_graph.measure import walk
from debugkit.measurements.found_optimizers import FoundOptimizers
from debugkit.probe import SAMPLED_EVERY, SETTLING_STEPS, Probe
from debugkit.recorders.master_weights import masters
from debugkit.rules.dk101_parameter_not_in_optimizer import ForgottenParameter, OptimizerCoverage
from debugkit.setup import TrainingSetup


class OptimizerCoverageProbe(Probe[OptimizerCoverage]):
    """Observes backward and the steps of all optimizers, also of those that were not passed in."""

    complete_after = "backward"
    watch_first = SETTLING_STEPS
    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._reached: set[int] = set()  # id() of parameters
        self._found = FoundOptimizers(setup)
        self._optimizers = self._found.known
        self._outside: dict[int, tuple[str, int]] = {}  # id() of a parameter → the name of its holder, and its size

    def before_backward(self, losses: Sequence[torch.Tensor], /) -> None:
        own = {id(parameter) for parameter in self.setup.model.parameters()}
        leaves = (getattr(node, "variable", None) for node in walk(losses).nodes)
        others = [leaf for leaf in leaves if isinstance(leaf, torch.nn.Parameter) and id(leaf) not in own]
        self._outside = outside_names(self.setup, others) if others else {}

    def after_backward(self) -> None:
        self._reached |= {id(p) for p in self.setup.model.parameters() if p.grad is not None}

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        self._found.stepped(optimizer)

    def loop_ended(self) -> None:
        self._found.ended()

    @property
    def observation(self) -> OptimizerCoverage:
        self._found.require_all()
        groups = [
            (f"{type(optimizer).__name__} group {index}", group["params"])
            for optimizer in self._optimizers
            for index, group in enumerate(optimizer.param_groups)
        ]
        tensors = [parameter for _, parameters in groups for parameter in parameters]
        held = {id(parameter) for parameter in tensors} | masters(self.setup.model.parameters(), tensors).keys()
        # A module on the meta device holds no numbers: torch.func.functional_call runs it with others.
        trainable = {id(p): p for p in self.setup.model.parameters() if p.requires_grad and not p.is_meta}
        paths = self.setup.parameter_paths
        return OptimizerCoverage(
            optimizers=len(self._optimizers),
            trainable=len(trainable),
            forgotten=tuple(
                ForgottenParameter(paths[key], parameter.numel(), key in self._reached)
                for key, parameter in trainable.items()
                if key not in held
            ),
            empty_groups=tuple(name for name, parameters in groups if not parameters),
            outside=tuple(
                ForgottenParameter(name, numel, True) for key, (name, numel) in self._outside.items() if key not in held
            ),
            built_at=built_at(self._optimizers[0], self.setup) if len(self._optimizers) == 1 else None,
        )
