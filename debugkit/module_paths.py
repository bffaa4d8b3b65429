"""Dotted paths of modules and parameters, as shown in findings. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


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


def renaming(unexpected: Sequence[str], missing: Sequence[str]) -> tuple[str, str] | None:
    """The replacement of a prefix that turns most unexpected names into missing ones, and None without one."""
    if not unexpected or not missing:
        return None
    wanted = set(missing)
    first = unexpected[0]
    parts = first.split(".")
    for kept in range(len(parts), 0, -1):
        rest = ".".join(parts[-kept:])
        for name in missing:
            if name == rest or name.endswith(f".{rest}"):
                before, after = first[: len(first) - len(rest)], name[: len(name) - len(rest)]
                moved = [after + other[len(before) :] for other in unexpected if other.startswith(before)]
                if sum(other in wanted for other in moved) * 2 > len(unexpected):
                    return before, after
    return None
