"""Dotted paths of modules and parameters, as shown in findings. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterable


def plain_path(path: str) -> str:
    """A dotted path without the parts that torch.compile and wrappers such as FSDP insert."""
    wrappers = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
    return ".".join(part for part in path.split(".") if part not in wrappers)


def shared_module(paths: Iterable[str]) -> str:
    """The innermost module that contains all these parameters; `""` for the root.

    >>> shared_module(["vision.blocks.0.weight", "vision.blocks.1.weight"])
    'vision.blocks'
    """
    holders = [path.split(".")[:-1] for path in paths]
    shared: list[str] = []
    for parts in zip(*holders, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)
