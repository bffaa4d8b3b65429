"""Remember which tensors a `state_dict()` returned, and look at what is loaded later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from debugkit._torch_private import version_of
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.probe import Probe
from debugkit.recorders.by_tensor import ByTensor
from debugkit.recorders.guard import guarded
from debugkit.recorders.optimizer_steps import OptimizerSteps
from debugkit.recorders.patches import Patches
from debugkit.rules.dk513_kept_weights_not_copied import KeptWeights, OwnWeightsLoaded
from debugkit.setup import TrainingSetup

_REMEMBERED = 16


@dataclass(frozen=True)
class _Kept:
    """When a `state_dict()` returned the tensor. `version` is the number of its changes in place until then."""

    at: SourceLine | None
    version: int
    steps: int
    loads: int


class KeptWeightsProbe(Probe[KeptWeights]):
    """Compares addresses and counters of changes, and no values."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._kept: ByTensor[_Kept] = ByTensor()
        self._own: dict[tuple[SourceLine | None, SourceLine | None], OwnWeightsLoaded] = {}
        self._steps = self._loads = 0
        self._patches = Patches()
        self._hooks = OptimizerSteps()

    def __enter__(self) -> Self:
        self._patches = Patches()
        self._patches.around(nn.Module, "state_dict", returned=self._keeps)
        self._patches.around(nn.Module, "load_state_dict", before=self._begins_to_load)
        self._hooks = OptimizerSteps(after=guarded(self._stepped))
        self._hooks.attach()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.remove()
        self._patches.__exit__(None, None, None)

    def loop_ended(self) -> None:
        self._kept = ByTensor()

    @property
    def observation(self) -> KeptWeights:
        return KeptWeights(self._loads, tuple(self._own.values()))

    def _stepped(self, *_: Any) -> None:
        self._steps += 1

    def _keeps(self, result: Any, _module: nn.Module, *args: Any, **kwargs: Any) -> None:
        if args or kwargs.get("destination") is not None:
            return  # the part of a module that is being read
        at = user_line()
        for tensor in _tensors(result):
            self._kept[tensor] = _Kept(at, version_of(tensor), self._steps, self._loads)

    def _begins_to_load(self, module: nn.Module, state_dict: Any, *_: Any, **__: Any) -> None:
        if (found := self._own_weights(module, state_dict)) is not None and len(self._own) < _REMEMBERED:
            self._own.setdefault((found.kept_at, found.loaded_at), found)
        self._loads += 1

    def _own_weights(self, module: nn.Module, state_dict: Any) -> OwnWeightsLoaded | None:
        tensors = _tensors(state_dict)
        kept = [known for tensor in tensors if (known := self._kept.get(tensor)) is not None]
        if not kept or len(kept) < len(tensors):
            return None
        first = kept[0]
        if (first.steps, first.loads) == (self._steps, self._loads):
            return None
        own = {one.data_ptr() for one in (*module.parameters(), *module.buffers()) if is_plain(one)}
        changed = [version_of(one) > known.version for one, known in zip(tensors, kept, strict=True)]
        if not any(changed) or not all(one.data_ptr() in own for one in tensors):
            return None
        return OwnWeightsLoaded(
            module=type(module).__name__,
            tensors=len(tensors),
            steps=self._steps - first.steps,
            loads=self._loads - first.loads,
            kept_at=first.at,
            loaded_at=user_line(),
        )


def _tensors(state: Any) -> list[Tensor]:
    values = state.values() if isinstance(state, Mapping) else ()
    return [one for one in values if isinstance(one, Tensor) and is_plain(one) and one.numel()]


def is_plain(tensor: Tensor) -> bool:
    """Whether it has an address: no distributed, fake or otherwise wrapped tensor."""
    return type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided and not tensor.is_meta
