"""What the entries of a batch are for: the padding mask, token ids, labels, the target action, the modalities.

Declared by `Declare`, otherwise known by the names that Hugging Face, LeRobot and most data sets give them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from debugkit.structure import batch_size, tensors_in
from debugkit.subject import Subject

ACTION_NAMES = ("action", "actions")
_MODALITIES = (
    ("text", r"(.*[._])?(input_ids|instruction|language|prompt|text|tokens?)([._].*)?"),
    ("image", r"(.*[._])?(pixel_values(_videos)?|images?|rgb|camera|video|frames?)([._].*)?"),
    ("state", r"(.*[._])?(state|proprio|proprioception|joints?|qpos)([._].*)?"),
    ("audio", r"(.*[._])?(input_features|input_values|audio)([._].*)?"),
)
_BESIDE_TEXT = ("attention_mask", "token_type_ids", "position_ids")
_NO_MODALITY = re.compile(
    r"(.*[._])?(is_pad|masks?|ids?|index|idx|next|future|labels?|sizes?|thw|lengths?|num|count|timestamps?|mean|std)"
    r"([._].*)?|.*_(is_)?pad"
)


def entry(subject: Subject, names: tuple[str, ...]) -> tuple[str, torch.Tensor] | None:
    """The first tensor of the batch whose path, or the last part of it, is one of `names`."""
    found = list(tensors_in(subject.batch))
    for name in names:
        for path, tensor in found:
            if path == name or path.rpartition(".")[2] == name:
                return path, tensor
    return None


def padding_mask(subject: Subject) -> tuple[str, torch.Tensor] | None:
    """The (B, L) mask of ones and zeros, 1 where there is content, with its path; None if the batch has none."""
    declared = subject.declare.padding_mask
    found = entry(subject, (declared,) if declared else ("attention_mask",))
    if found is None or found[1].ndim != 2 or found[1].is_complex():
        return None
    return found if bool(((found[1] == 0) | (found[1] == 1)).all()) else None


def labels(subject: Subject) -> tuple[str, torch.Tensor] | None:
    """The integer targets."""
    declared = subject.declare.labels
    found = entry(subject, (declared,) if declared else ("labels", "label", "targets"))
    return found if found is not None and is_index(found[1]) else None


def token_ids(subject: Subject) -> tuple[str, torch.Tensor] | None:
    """The (B, L) token ids of the text."""
    found = entry(subject, ("input_ids", "ids", "tokens", "idx"))
    return found if found is not None and is_index(found[1]) and found[1].ndim == 2 else None


def target(subject: Subject) -> tuple[str, torch.Tensor] | None:
    """The target action."""
    declared = subject.declare.target
    return entry(subject, (declared,) if declared else ACTION_NAMES)


def modalities(subject: Subject) -> dict[str, tuple[str, ...]]:
    """Name of each input that must matter → the paths that make it up: text has its mask and its positions with it."""
    paths = [path for path, _ in _rows(subject)]
    if subject.declare.modalities:
        chosen = {key: tuple(path for path in paths if within(path, key)) for key in subject.declare.modalities}
    else:
        chosen = {path: (path,) for path in paths if _modality(path) is not None}
    beside = tuple(path for path in paths if path.rpartition(".")[2] in _BESIDE_TEXT)
    return {
        name: (*parts, *(path for path in beside if path not in parts)) if _modality(name) == "text" else parts
        for name, parts in chosen.items()
    }


def special_ids(subject: Subject) -> frozenset[int]:
    """Token ids that a configuration gives a meaning of their own: padding, end, image placeholder."""
    found: set[int] = set()
    for module in subject.model.modules():
        config = getattr(module, "config", None)
        for part in (config, getattr(config, "text_config", None)):
            for name, value in vars(part).items() if hasattr(part, "__dict__") else ():
                if name.endswith(("_token_id", "_token_index")):
                    found |= {item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int)}
    return frozenset(found)


def within(path: str, key: str) -> bool:
    """Whether a tensor's path is the key, or something nested under it."""
    return path == key or path.startswith(f"{key}.") or path.endswith(f".{key}")


def is_index(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds whole numbers: ids, labels."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def _modality(path: str) -> str | None:
    lowered = path.lower()
    kind = next((name for name, pattern in _MODALITIES if re.fullmatch(pattern, lowered)), None)
    if kind is None or lowered.endswith("input_ids"):
        return kind
    return None if _NO_MODALITY.fullmatch(lowered) else kind


def _rows(subject: Subject) -> Iterator[tuple[str, torch.Tensor]]:
    size = batch_size(subject.batch)
    yield from ((path, tensor) for path, tensor in tensors_in(subject.batch) if tensor.shape[:1] == (size,))
