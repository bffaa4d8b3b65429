"""Compares the model's tensors with the declared checkpoint, without a forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from debugkit.finding import NotExamined
from debugkit.module_paths import plain_path, renaming
from debugkit.rules.dk114_checkpoint_not_loaded import CheckpointMatch, Mismatch
from debugkit.setup import TrainingSetup


def compare_the_checkpoint(setup: TrainingSetup) -> CheckpointMatch:
    """Compare by name, and by content where no name matches. Raises NotExamined if no checkpoint was declared."""
    if setup.declare.checkpoint is None:
        raise NotExamined("The model's checkpoint is not declared: pass declare=Declare(checkpoint=…).")
    saved = _read(setup.declare.checkpoint)
    model = {plain_path(name): tensor for name, tensor in setup.model.state_dict(keep_vars=True).items()}
    both = [name for name in saved if name in model and isinstance(model[name], Tensor)]
    mismatched = [name for name in both if saved[name].shape != model[name].shape]
    different = [name for name in both if name not in mismatched and not _equal(saved[name], model[name])]
    elsewhere = _elsewhere(saved, model, [name for name in saved if name not in both])
    unexpected = [name for name in saved if name not in both and name not in elsewhere]
    missing = _missing(model, set(both) | set(elsewhere.values()), setup.declare.fresh)
    stepped = any(optimizer.state for optimizer in setup.optimizers)
    return CheckpointMatch(
        tensors=len(saved),
        loaded=len(both) - len(mismatched) - len(different) + len(elsewhere),
        missing=tuple(missing),
        unexpected=tuple(unexpected),
        different=tuple(different),
        mismatched=tuple(Mismatch(n, tuple(saved[n].shape), tuple(model[n].shape)) for n in mismatched),
        renaming=renaming(unexpected, missing),
        trained_since="the optimizer has taken steps" if stepped else None,
    )


def _read(source: Any) -> dict[str, Tensor]:
    if isinstance(source, Mapping):
        found: Any = source
    else:
        path = Path(source)
        if not path.is_file():
            raise NotExamined(f"The declared checkpoint {path} is not a file.")
        if path.suffix == ".safetensors":
            try:
                from safetensors.torch import load_file
            except ImportError:
                raise NotExamined("Reading a .safetensors checkpoint requires safetensors: install it.") from None
            found = load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
            break
    tensors = {plain_path(str(name)): value for name, value in found.items() if isinstance(value, Tensor)}
    if not tensors:
        raise NotExamined("The declared checkpoint holds no named tensors.")
    return tensors


def _equal(saved: Tensor, held: Tensor) -> bool:
    """Whether both are equal after rounding to the model's precision."""
    held = held.detach()
    if held.is_meta or saved.shape != held.shape:
        return False
    return bool(torch.equal(saved.to(held.device, held.dtype), held))


def _elsewhere(saved: Mapping[str, Tensor], model: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Tensors that the model holds under another name: an adapter's `base_layer`, a wrapper's prefix."""
    by_shape: dict[torch.Size, list[str]] = {}
    for name, tensor in model.items():
        if isinstance(tensor, Tensor) and name not in saved:
            by_shape.setdefault(tensor.shape, []).append(name)
    found: dict[str, str] = {}
    for name in names:
        for candidate in by_shape.get(saved[name].shape, []):
            if (
                candidate not in found.values()
                and _same_part(name, candidate)
                and _equal(saved[name], model[candidate])
            ):
                found[name] = candidate
                break
    return found


def _same_part(saved: str, held: str) -> bool:
    """Whether the last parts of the names match. Content is not enough: fresh norms and biases are all equal."""
    return saved.rpartition(".")[2] == held.rpartition(".")[2]


def _missing(model: Mapping[str, Any], present: set[str], fresh: Iterable[str]) -> list[str]:
    """Tensors that the checkpoint lacks. A tied tensor is present if one of its names is."""
    found = {id(model[name]) for name in present}
    return [
        name
        for name, tensor in model.items()
        if isinstance(tensor, Tensor)
        and name not in present
        and tensor.is_floating_point()
        and id(tensor) not in found
        and not any(fnmatchcase(name, pattern) for pattern in fresh)
    ]
