"""Records the rows of all modules' and operations' outputs in one pass, and what relates or routes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_ALONG_A_DIMENSION = frozenset(
    {"index_select", "gather", "take_along_dim", "index_add", "index_add_", "index_reduce", "index_reduce_"}
    | {"scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_"}
    | {"index_copy", "index_copy_"}
)
_COPIES = frozenset({"clone", "detach", "to", "long", "int", "float", "contiguous", "cpu", "cuda", "t", "transpose"})
_PRODUCTS = frozenset({"matmul", "__matmul__", "mm", "addmm", "spmm"})
"""Also of a sparse matrix. An adjacency matrix relates each sample to each."""


class RowRecorder(TorchFunctionMode):
    """The outputs, of every module and operation, that have one row per sample, in order of execution."""

    def __init__(self, setup: TrainingSetup, size: int) -> None:
        super().__init__()
        self.size = size
        self.operations: list[tuple[str, SourceLine | None, torch.Tensor]] = []
        self.rows: list[tuple[str, torch.Tensor]] = []
        self.routed = False
        self.related = False
        self._made: set[int] = set()  # the storages that this pass has allocated
        self.inputs: list[torch.Tensor] = []
        """The other rows of what the first module that ran was given."""
        self._lists = {path for path, module in setup.named_modules if isinstance(module, nn.ModuleList)}
        self._given: dict[str, int] = {}  # module → rows of its last input
        self._calls = ModuleCalls(setup.named_modules, before=self._look_at_inputs, after=self._keep)
        self._began = False

    def __enter__(self) -> Self:
        self._calls.__enter__()
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._calls.remove()

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        given = [tensor for _, tensor in tensors_in((args, kwargs))]
        self.related |= self._relates_rows(name, args, kwargs or {}, given)
        if isinstance(output, torch.Tensor):
            is_copy = name in _COPIES and not any(map(self._is_computed, given))
            if not is_copy and (storage := _storage(output)) not in map(_storage, given):
                self._made.add(storage)
            if output.shape[:1] == (self.size,):
                self.operations.append((name, user_line(), output.detach()[1:].clone()))
        return output

    def _relates_rows(self, name: str, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> bool:
        """Whether an operation combines the rows of samples as a tensor says that existed before the pass."""
        if not any(one.shape[:1] == (self.size,) and self._is_computed(one) for one in tensors):
            return False
        if name in _PRODUCTS:
            square = [one for one in tensors if one.shape == (self.size, self.size)]
            return any(not isinstance(one, nn.Parameter) and not self._is_computed(one) for one in square)
        return any(not self._is_computed(one) and self._selects(one) for one in _row_indices(name, args, kwargs))

    def _is_computed(self, tensor: torch.Tensor) -> bool:
        return _storage(tensor) in self._made

    def _selects(self, index: torch.Tensor) -> bool:
        """Whether some rows are chosen twice or not at all: these are not all rows in another order."""
        return bool((torch.bincount(index.flatten().clamp(0), minlength=self.size) != 1).any())

    def _look_at_inputs(self, path: str, _module: nn.Module, args: Any, kwargs: Any) -> None:
        self._given[path] = _most_rows((args, kwargs))
        if path.rpartition(".")[0] in self._lists:
            owner = path.rpartition(".")[0].rpartition(".")[0]
            self.routed |= 0 < self._given[path] < self._given.get(owner, 0)
        if not self._began:
            self._began = True
            given = [tensor for _, tensor in tensors_in((args, kwargs)) if tensor.shape[:1] == (self.size,)]
            self.inputs = [tensor.detach()[1:].clone() for tensor in given]

    def _keep(self, path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        for _, tensor in tensors_in(output):
            if tensor.shape[:1] == (self.size,):
                self.rows.append((path, tensor.detach()[1:].clone()))


def _row_indices(name: str, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The integers that choose rows, along the first dimension, in an operation."""
    chosen: list[Any] = []
    if name in ("__getitem__", "__setitem__", "index_put", "index_put_"):
        index = args[1] if len(args) > 1 else kwargs.get("indices")
        chosen = list(index[:1]) if isinstance(index, (tuple, list)) else [index]
    elif name in _ALONG_A_DIMENSION:
        given = [*args[1:], *kwargs.values()]
        tensors = [one for one in given if isinstance(one, torch.Tensor)]
        dimension = kwargs.get("dim", next((one for one in given if isinstance(one, int)), None))
        chosen = tensors[:1] if dimension == 0 or (tensors and dimension == -args[0].ndim) else []
    return [one for one in chosen if isinstance(one, torch.Tensor) and one.dtype in (torch.int64, torch.int32)]


def _storage(tensor: torch.Tensor) -> int:
    """The address of what holds its elements; of a sparse tensor, that of the object."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)


def _most_rows(value: Any) -> int:
    rows = (tensor.numel() // tensor.shape[-1] for _, tensor in tensors_in(value) if tensor.numel() and tensor.ndim)
    return max(rows, default=0)
