"""The roles of the entries of a batch: token ids, labels, target action, modalities. `padding` has its masks.

They are declared with `Declare`, or found by the names that Hugging Face, LeRobot and most data sets use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, tensors_in

ACTION_NAMES = ("action", "actions")
PAD_NAMES = ("action_is_pad", "actions_is_pad")
"""Where the action's steps are padding."""
SHORT_PAD_NAMES = (*PAD_NAMES, "actions_id_pad", "is_pad")
"""The same, with names that only a (B, H) mask of booleans may have."""
_MODALITIES = (
    ("text", r"(.*[._])?(input_ids|instruction|language|prompt|text|tokens?)([._].*)?"),
    ("image", r"(.*[._])?(pixel_values(_videos)?|images?|rgb|camera|video|frames?)([._].*)?"),
    ("state", r"(.*[._])?(state|proprio|proprioception|joints?|qpos)([._].*)?"),
    ("audio", r"(.*[._])?(input_features|input_values|audio)([._].*)?"),
)
BESIDE_TEXT = ("attention_mask", "token_type_ids", "position_ids")
_NO_MODALITY = re.compile(
    r"(.*[._])?(is_pad|masks?|ids?|index|idx|next|future|labels?|sizes?|thw|lengths?|num|count|timestamps?|mean|std)"
    r"([._].*)?|.*_(is_)?pad"
)


def entry(setup: TrainingSetup, names: tuple[str, ...]) -> tuple[str, torch.Tensor] | None:
    """The first tensor of the batch whose path, or its last part, is one of `names`."""
    found = list(tensors_in(setup.batch))
    for name in names:
        for path, tensor in found:
            if path == name or path.rpartition(".")[2] == name:
                return path, tensor
    return None


def labels(setup: TrainingSetup) -> tuple[str, torch.Tensor] | None:
    """The integer targets."""
    declared = setup.declare.labels
    found = entry(setup, (declared,) if declared else ("labels", "label", "targets"))
    return found if found is not None and is_index(found[1]) else None


def token_ids(setup: TrainingSetup) -> tuple[str, torch.Tensor] | None:
    """The (B, L) token ids of the text: by their name, or the only entry whose ids, or next ids, are the labels."""
    found = entry(setup, ("input_ids", "ids", "tokens", "idx"))
    if found is not None:
        return found if is_index(found[1]) and found[1].ndim == 2 else None
    learnt = labels(setup)
    if learnt is None or learnt[1].ndim != 2:
        return None
    path, label = learnt
    others = [(name, tensor) for name, tensor in tensors_in(setup.batch) if name != path and is_index(tensor)]
    repeated = [one for one in others if repeats_ids(label, one[1], label >= 0)]
    return repeated[0] if len(repeated) == 1 else None


def repeats_ids(label: torch.Tensor, ids: torch.Tensor, counted: torch.Tensor) -> bool:
    """Whether labels (B, L) are the ids of the same positions, or the next ones, at all positions that count."""
    if label.shape != ids.shape or not bool(counted.any()):
        return False
    same = bool((label == ids)[counted].all())
    return same or bool((label[:, :-1] == ids[:, 1:])[counted[:, :-1]].all())


def target(setup: TrainingSetup) -> tuple[str, torch.Tensor] | None:
    """The target action."""
    declared = setup.declare.target
    return entry(setup, (declared,) if declared else ACTION_NAMES)


def modalities(setup: TrainingSetup) -> dict[str, tuple[str, ...]]:
    """Each input that must matter, with its paths; text includes its mask and its positions."""
    paths = [path for path, _ in _rows(setup)]
    if setup.declare.modalities:
        chosen = {key: tuple(path for path in paths if within(path, key)) for key in setup.declare.modalities}
    else:
        chosen = {path: (path,) for path in paths if _modality(path) is not None}
    beside = tuple(path for path in paths if path.rpartition(".")[2] in BESIDE_TEXT)
    return {
        name: (*parts, *(path for path in beside if path not in parts)) if _modality(name) == "text" else parts
        for name, parts in chosen.items()
    }


def special_ids(setup: TrainingSetup) -> frozenset[int]:
    """Token ids with a special meaning in a configuration: padding, end, image placeholder."""
    found: set[int] = set()
    for module in setup.model.modules():
        config = getattr(module, "config", None)
        for part in (config, getattr(config, "text_config", None)):
            for name, value in vars(part).items() if hasattr(part, "__dict__") else ():
                if name.endswith(("_token_id", "_token_index")):
                    found |= {item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int)}
    return frozenset(found)


def within(path: str, key: str) -> bool:
    """Whether a tensor's path is the key, or is nested under it."""
    return path == key or path.startswith(f"{key}.") or path.endswith(f".{key}")


def is_index(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds integers, such as ids and labels."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def _modality(path: str) -> str | None:
    lowered = path.lower()
    kind = next((name for name, pattern in _MODALITIES if re.fullmatch(pattern, lowered)), None)
    if kind is None or lowered.endswith("input_ids"):
        return kind
    return None if _NO_MODALITY.fullmatch(lowered) else kind


def _rows(setup: TrainingSetup) -> Iterator[tuple[str, torch.Tensor]]:
    size = batch_size(setup.batch)
    yield from ((path, tensor) for path, tensor in tensors_in(setup.batch) if tensor.shape[:1] == (size,))
