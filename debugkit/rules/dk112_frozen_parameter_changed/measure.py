"""Copies every frozen tensor and compares it bit for bit after the forward pass and after the optimizer's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import Self

import torch
from torch import nn

from debugkit.finding import NotExamined
from debugkit.interventions.trainable_twins import has_trainable_twin, trainable_twins
from debugkit.module_paths import plain_path
from debugkit.probe import Probe
from debugkit.rules.dk112_frozen_parameter_changed import Cause, FrozenChange, FrozenTensors
from debugkit.setup import TrainingSetup


class FrozenTensorsProbe(Probe[FrozenTensors]):
    """Frozen are parameters without `requires_grad` or not declared trainable, and their modules' floating buffers.

    What is frozen is read at each attachment, because a later stage of a training may thaw it, and at each comparison:
    a critic may be frozen only while its actor trains.
    """

    watch_steps = 1

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._frozen: dict[str, torch.Tensor] = {}
        self._most_frozen = 0
        self._twins: dict[str, list[torch.Tensor]] = {}
        self._copies: dict[str, torch.Tensor] = {}
        self._changes: dict[str, FrozenChange] = {}

    def __enter__(self) -> Self:
        self._frozen = _frozen_tensors(self.setup)
        self._most_frozen = max(self._most_frozen, len(self._frozen))
        self._twins = _twins(self.setup, self._frozen)
        self._copies = {path: tensor.detach().clone() for path, tensor in self._frozen.items()}
        return self

    def __exit__(self, *error: object) -> None:
        self._copies.clear()

    def before_backward(self, _losses: Sequence[torch.Tensor], /) -> None:
        self._compare("forward")

    def before_optimizer_step(self, _optimizer: torch.optim.Optimizer, /) -> None:
        self._compare("forward")

    def after_optimizer_step(self, _optimizer: torch.optim.Optimizer, /) -> None:
        self._compare("optimizer")

    @property
    def observation(self) -> FrozenTensors:
        if not self._most_frozen:
            raise NotExamined("Nothing in the model is frozen.")
        kept_up = self._statistics_of_its_own()
        changes = (change for change in self._changes.values() if not _is_kept_up(change, kept_up))
        return FrozenTensors(self._most_frozen, tuple(changes))

    def _statistics_of_its_own(self) -> set[str]:
        """Paths of the modules, other than torch's norms, that wrote to their own buffers in the forward pass."""
        modules = {path: module for module, path in self.setup.module_paths.items()}
        written = {change.module for change in self._changes.values() if change.kind == "buffer"}
        return {path for path in written if not type(modules[path]).__module__.startswith("torch.")}

    def _follows_its_twin(self, path: str, before: torch.Tensor, now: torch.Tensor) -> bool:
        """Whether a parameter moved towards the trainable module that it is the moving average of."""
        if not isinstance(self._frozen[path], nn.Parameter):
            return False
        twins = (twin.detach() for twin in self._twins.get(path, ()))
        return any(_is_between(now, before, twin) for twin in twins if twin.shape == now.shape)

    def _compare(self, cause: Cause) -> None:
        still = _frozen_tensors(self.setup) if self._copies else {}
        self._copies = {path: copy for path, copy in self._copies.items() if path in still}
        for path, before in list(self._copies.items()):
            now = self._frozen[path].detach()
            if path in self._changes or torch.equal(_bits(now), _bits(before)):
                continue
            if cause == "forward" and self._follows_its_twin(path, before, now):
                self._copies[path] = now.clone()
                continue
            different = now != before
            self._changes[path] = FrozenChange(
                path=path,
                module=path.rpartition(".")[0],
                kind="parameter" if isinstance(self._frozen[path], nn.Parameter) else "buffer",
                cause=cause,
                changed=int(different.sum()),
                numel=now.numel(),
                largest=float((now - before).abs().max()),
            )


def _is_kept_up(change: FrozenChange, modules: set[str]) -> bool:
    """Whether a module maintains the tensor itself, without gradients: a codebook that follows by moving averages."""
    return change.cause == "forward" and (change.module in modules or change.module.rpartition(".")[0] in modules)


def _frozen_tensors(setup: TrainingSetup) -> dict[str, torch.Tensor]:
    patterns = setup.declare.trainable
    named = {plain_path(path): parameter for path, parameter in setup.model.named_parameters()}
    frozen: dict[str, torch.Tensor] = {
        path: parameter
        for path, parameter in named.items()
        if not parameter.requires_grad or (patterns is not None and not any(fnmatch(path, p) for p in patterns))
    }
    modules = {path: module for module, path in setup.module_paths.items()}
    for path, buffer in setup.model.named_buffers():
        owner = plain_path(path).rpartition(".")[0]
        own = [name for name in named if name.startswith(f"{owner}." if owner else "")]
        if buffer.is_floating_point() and own and all(name in frozen for name in own):
            tower = _tower(owner, set(frozen), set(named))
            if not has_trainable_twin(modules[tower], setup.model):
                frozen[plain_path(path)] = buffer
    return {path: tensor for path, tensor in frozen.items() if tensor.numel() and not tensor.is_meta}


def _twins(setup: TrainingSetup, frozen: Mapping[str, torch.Tensor]) -> dict[str, list[torch.Tensor]]:
    """For each frozen parameter, the same parameter of the trainable modules that its tower can be a copy of."""
    modules = {path: module for module, path in setup.module_paths.items()}
    named = {plain_path(path) for path, _ in setup.model.named_parameters()}
    below: dict[str, list[str]] = {}
    for path in named & set(frozen):
        below.setdefault(_tower(path.rpartition(".")[0], set(frozen), named), []).append(path)
    found: dict[str, list[torch.Tensor]] = {}
    for tower, paths in below.items():
        for twin in trainable_twins(modules[tower], setup.model) if tower else ():
            parameters = {plain_path(path): parameter for path, parameter in twin.named_parameters()}
            for path in paths:
                if (parameter := parameters.get(path.removeprefix(f"{tower}."))) is not None:
                    found.setdefault(path, []).append(parameter)
    return found


def _is_between(now: torch.Tensor, before: torch.Tensor, twin: torch.Tensor) -> bool:
    """Whether each number lies between its old value and the twin's, apart from rounding."""
    low, high = torch.minimum(before, twin), torch.maximum(before, twin)
    slack = 4 * torch.finfo(now.dtype).eps * torch.maximum(low.abs(), high.abs())
    return bool(((now >= low - slack) & (now <= high + slack)).all())


def _tower(owner: str, frozen: set[str], named: set[str]) -> str:
    """The outermost ancestor of a module all of whose parameters are frozen."""
    tower = owner
    while tower:
        parent = tower.rpartition(".")[0]
        below = {name for name in named if name.startswith(f"{parent}." if parent else "")}
        if not below <= frozen:
            break
        tower = parent
    return tower


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes, so that NaN equals itself and -0 does not equal 0."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)
