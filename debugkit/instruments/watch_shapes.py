"""watch_shapes: check modules against declared output shapes, and record shapes that change between calls."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any, Literal, Self

from torch import nn

from debugkit.measurements.shapes import ShapeChange, ShapeHistory
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.structure import tensors_in

__all__ = ["ShapeChange", "ShapeError", "ShapeHistory", "watch_shapes"]


class ShapeError(RuntimeError):
    """The output of a module does not have the declared shape; the message names the module and both shapes."""


class watch_shapes:  # noqa: N801 - used as a verb, like torch.no_grad
    """A context manager that watches the output shape of every module.

    `declared` maps a module path, or a pattern such as `"blocks.*"`, to the shape of its output: `"B T 64"`. A number
    must match exactly, `_` is any size, `...` any number of dimensions, and a name stands for one size throughout a
    forward pass of the root. With `on_violation="raise"` an output of another shape raises ShapeError at the module;
    with `"record"` it is only recorded. Changes beyond the first dimension are recorded and never raise, since variable
    lengths are healthy. `.observation` is a ShapeHistory.

    Raises ValueError if a pattern matches no module.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    >>> with watch_shapes(model, {"0": "B 8", "1": "B 7"}, on_violation="record") as shapes:
    ...     _ = model(torch.ones(3, 4))
    >>> print(shapes.observation.violations[0])
    `1`, call 1: expected B 7 (B=3), got (3, 2)
    """

    def __init__(
        self,
        model: nn.Module,
        declared: Mapping[str, str] | None = None,
        *,
        on_violation: Literal["raise", "record"] = "raise",
    ) -> None:
        if on_violation not in ("raise", "record"):
            raise ValueError(f'on_violation is "raise" or "record", not {on_violation!r}.')
        self.model, self.on_violation = model, on_violation
        self._declared = _by_path(model, declared or {})
        self._root = ModuleCalls([("", model)], before=lambda *_: self._sizes.clear())
        self._modules = ModuleCalls(model.named_modules(), after=self._see)
        self._sizes: dict[str, int] = {}  # names bound in this forward of the root
        self._calls: dict[str, int] = {}
        self._first: dict[str, tuple[tuple[int, ...], ...]] = {}
        self._violations: list[ShapeChange] = []
        self._changes: dict[tuple[str, tuple[tuple[int, ...], ...]], ShapeChange] = {}

    def __enter__(self) -> Self:
        self._root.__enter__()
        self._modules.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._root.remove()
        self._modules.remove()

    @property
    def observation(self) -> ShapeHistory:
        """What was recorded so far; also available after the block."""
        return ShapeHistory(tuple(self._violations), tuple(self._changes.values()), sum(self._calls.values()))

    def _see(self, path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        shapes = tuple(tuple(tensor.shape) for _, tensor in tensors_in(output))
        self._calls[path] = self._calls.get(path, 0) + 1
        first = self._first.setdefault(path, shapes)
        if [s[1:] for s in shapes] != [s[1:] for s in first]:
            change = ShapeChange(path, self._calls[path], _words(first), _words(shapes))
            self._changes.setdefault((path, tuple(s[1:] for s in shapes)), change)
        for words in self._declared.get(path, ()):
            if not shapes or not matches(words, shapes[0], self._sizes):
                self._violated(ShapeChange(path, self._calls[path], self._expected(words), _words(shapes[:1])))

    def _violated(self, violation: ShapeChange) -> None:
        self._violations.append(violation)
        if self.on_violation == "raise":
            raise ShapeError(f"{violation}. Correct the module, or the declaration if it is wrong.")

    def _expected(self, words: str) -> str:
        bound = [f"{name}={self._sizes[name]}" for name in words.split() if name in self._sizes]
        return f"{words} ({', '.join(bound)})" if bound else words


def matches(words: str, shape: tuple[int, ...], sizes: dict[str, int]) -> bool:
    """Whether a shape is what the words say; binds names that are new in `sizes`, and only if it all fits."""
    parts = words.replace(",", " ").split()
    if "..." in parts:
        at = parts.index("...")
        after = len(parts) - at - 1
        if len(shape) < at + after:
            return False
        shape = shape[:at] + shape[len(shape) - after :]
        parts.remove("...")
    if len(parts) != len(shape):
        return False
    bound = dict(sizes)
    for part, size in zip(parts, shape, strict=True):
        if part != "_" and (int(part) if part.isdigit() else bound.setdefault(part, size)) != size:
            return False
    sizes.update(bound)
    return True


def _by_path(model: nn.Module, declared: Mapping[str, str]) -> dict[str, list[str]]:
    paths = [path for path, _ in model.named_modules()]
    found: dict[str, list[str]] = {}
    for pattern, words in declared.items():
        matching = [path for path in paths if path == pattern or fnmatch.fnmatchcase(path, pattern)]
        if not matching:
            raise ValueError(f"No module matches {pattern!r}; the first paths are {', '.join(paths[1:6]) or 'none'}.")
        for path in matching:
            found.setdefault(path, []).append(words)
    return found


def _words(shapes: tuple[tuple[int, ...], ...]) -> str:
    return " ".join(f"({', '.join(map(str, shape))})" for shape in shapes) or "no tensor"
