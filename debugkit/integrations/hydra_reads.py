"""A DictConfig that records which of its keys are read. In every other way it behaves like the original config.

It is a copy whose containers are subclasses of OmegaConf's, so `isinstance(cfg, DictConfig)`, interpolations, struct
mode, `instantiate` and `**cfg.model` behave as before. OmegaConf accesses every child through one method, and the
subclass records the key there. Printing, saving, copying and merging a config use the same method. They are recognised
by the OmegaConf function that the program called, and do not count as reads.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from omegaconf import DictConfig, Node
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

from debugkit.rules.dk902_config_key_never_read import ConfigReads

_LOG = "_debugkit_reads"
_NO_READ = frozenset(
    {
        "_get_node",
        "__deepcopy__",
        "__eq__",
        "__ne__",
        "__repr__",
        "__str__",
        "__setattr__",
        "__setitem__",
        "__delitem__",
        "merge",
        "unsafe_merge",
        "merge_with",
        "update",
        "save",
        "to_yaml",
        "resolve",
        "masked_copy",
        "missing_keys",
        "set_struct",
        "is_missing",
        "is_interpolation",
    }
)
"""Functions of OmegaConf that access values without the program using them."""
_WHOLE = frozenset({"to_container", "to_object"})
"""Functions that convert a config to plain data. They read every key of a part. For the whole config, it is unknown."""


class _Reads:
    """The keys of one config that were read. All its containers share this record."""

    def __init__(self, leaves: tuple[str, ...]) -> None:
        self.leaves = leaves
        self.read: set[str] = set()
        self.in_vain: dict[str, None] = {}
        self.converted = False
        self.paused = False

    def note(self, key: str, found: Node | None) -> None:
        by, of = _called(sys._getframe(2))
        if self.paused or by in _NO_READ:
            return
        if by in _WHOLE and of == "":
            self.converted = True
        elif found is None:
            hidden = key.rpartition(".")[2].startswith("_")  # Hydra looks up _target_, notebooks _repr_html_
            if by in ("get", "__getattr__", "__getitem__", "select") and not hidden:
                self.in_vain[key] = None
        elif not isinstance(found, DictConfig):
            self.read.add(key)


class TrackedDictConfig(DictConfig):
    """A DictConfig that is part of a tracked configuration."""

    def _get_node(self, key: Any, *args: Any, **keywords: Any) -> Any:
        reads, path = self.__dict__[_LOG]
        name = key.value if isinstance(key, enum.Enum) else key  # Hydra's own keys, such as _target_, are an enum
        below = f"{path}.{name}" if path else str(name)
        try:
            node = super()._get_node(key, *args, **keywords)
        except (ConfigKeyError, ConfigAttributeError):
            reads.note(below, None)
            raise
        if type(node) is DictConfig:
            _track(node, reads, below)
        reads.note(below, node)
        return node

    def __deepcopy__(self, memo: dict[int, Any]) -> TrackedDictConfig:
        reads, path = self.__dict__[_LOG]
        plain = super().__deepcopy__(memo)
        _track(plain, reads, path)
        return plain  # type: ignore[return-value]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != _LOG}

    def __reduce__(self) -> tuple[Any, ...]:
        return DictConfig, (None,), self.__getstate__()  # other processes get a plain config


def track_reads(cfg: DictConfig) -> DictConfig:
    """A copy of `cfg` that records which keys are read. Use it instead of `cfg`, then call `check_config(cfg)`.

    The copy is a DictConfig. Reads in other processes, and reads of plain data made from it, are not recorded. A list
    counts as one key. Raises TypeError if `cfg` is not a DictConfig.
    """
    if not isinstance(cfg, DictConfig):
        raise TypeError(f"track_reads() takes the DictConfig that Hydra hands to main, not a {type(cfg).__name__}.")
    if isinstance(cfg, TrackedDictConfig):
        return cfg
    tracked = copy.deepcopy(cfg)
    _track(tracked, _Reads(tuple(_leaves(cfg))), "")
    return tracked


def reads_of(cfg: object) -> ConfigReads | None:
    """The keys of a tracked config that were read so far; None if it is not tracked."""
    if not isinstance(cfg, TrackedDictConfig):
        return None
    reads, _ = cfg.__dict__[_LOG]
    return ConfigReads(reads.leaves, frozenset(reads.read), tuple(reads.in_vain), reads.converted)


@contextlib.contextmanager
def unnoticed(cfg: object) -> Iterator[None]:
    """Access a config, tracked or not, without recording reads."""
    if not isinstance(cfg, TrackedDictConfig):
        yield
        return
    reads, _ = cfg.__dict__[_LOG]
    reads.paused = True
    try:
        yield
    finally:
        reads.paused = False


def _track(node: DictConfig, reads: _Reads, path: str) -> None:
    object.__setattr__(node, "__class__", TrackedDictConfig)  # DictConfig.__setattr__ would add a key
    node.__dict__[_LOG] = (reads, path)
    content = node.__dict__["_content"]
    for key, child in content.items() if isinstance(content, dict) else ():
        if isinstance(child, DictConfig):
            _track(child, reads, f"{path}.{key}" if path else str(key))


def _leaves(cfg: DictConfig, prefix: str = "") -> Iterator[str]:
    content = cfg.__dict__["_content"]
    for key, child in content.items() if isinstance(content, dict) else ():
        path = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(child, DictConfig) and isinstance(child.__dict__["_content"], dict):
            yield from _leaves(child, path)
        else:
            yield path


def _called(frame: FrameType | None) -> tuple[str, str | None]:
    """The function of OmegaConf that the program called, and the path of the tracked config it was called on."""
    name, on = "", None
    while frame is not None and _is_inside(frame):
        name = frame.f_code.co_name
        target = next((frame.f_locals[each] for each in ("cfg", "conf", "self") if each in frame.f_locals), None)
        if isinstance(target, TrackedDictConfig):
            on = target.__dict__[_LOG][1]
        frame = frame.f_back
    if name == "resolve" and frame is not None and frame.f_globals.get("__name__", "").startswith("hydra."):
        name = "instantiate"  # it resolves the values that it is about to use
    return name, on


def _is_inside(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__", "")
    return module == __name__ or module.split(".")[0] in ("omegaconf", "antlr4")  # antlr4 parses the interpolations
