"""Puts the samples of the batch in another order. The result of each must stay the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.interventions.passes import Pass, distance, eval_pass, evaluate, with_rows
from debugkit.loader_samples import draws_at_random
from debugkit.recorders.module_calls import ModuleCalls, follow_modules
from debugkit.rules.dk305_batch_leak import RowSource
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_MOST_TRIED = 4
"""Sources of values by row, or parameters, that are examined each alone, in order of execution."""
_SIZE_OF_VALUES = 0.02
_SLICES = frozenset({"__getitem__", "narrow"})
_REJECTED = frozenset(
    {"lt", "gt", "le", "ge", "eq", "ne", "__lt__", "__gt__", "__le__", "__ge__", "__eq__", "__ne__", "one_hot"}
    | {"remainder", "fmod", "floor_divide", "__mod__", "__floordiv__", "__rfloordiv__", "__and__", "bitwise_and"}
)
"""Of row numbers, these make the parts that a program gives to some rows on purpose."""
_WAVES = frozenset({"sin", "cos"})
_QUOTIENTS = frozenset({"div", "__truediv__", "true_divide"})
_PERTURBATIONS = ("noise", "delta", "perturb", "advers")
"""Parts of the names of tables whose rows belong to those of the batch: free adversarial training keeps them."""
_STATES = (*_PERTURBATIONS, "queue", "memory", "bank", "state", "hidden", "cache", "prev", "hist", "carry")
"""Parts of the names of buffers that a program writes, or draws once, for each row."""


def source_by_row(setup: TrainingSetup, size: int, before: Pass, replaced: Pass, threshold: float) -> RowSource | None:
    """What gives a sample other values in another row; None if there is nothing, or if it is not proved.

    One pass with the samples in another order. If an output changes, up to twelve more passes. `replaced` is the pass
    with another sample 0: outputs of which row 0 stayed do not belong to the samples.
    """
    try:
        return _source_by_row(setup, size, _of_the_samples(before, replaced, size, threshold), threshold)
    except Exception:  # a model that needs its samples in this order, such as sequences sorted by their lengths
        return None


def _of_the_samples(before: Pass, replaced: Pass, size: int, threshold: float) -> Pass:
    """The outputs of which row 0 changed with sample 0."""
    return Pass(
        {
            path: tensor
            for path, tensor in before.outputs.items()
            if tensor.shape[:1] == (size,) and tensor.is_floating_point() and path in replaced.outputs
            if distance(tensor[:1], replaced.outputs[path][:1]) > threshold
        },
        before.loss,
    )


def _source_by_row(setup: TrainingSetup, size: int, before: Pass, threshold: float) -> RowSource | None:
    if not before.outputs or not _has_its_samples_first(setup.batch, size):
        return None
    drawn = _is_drawn_at_random(setup, size)
    by_row = _change(setup, size, before)
    if by_row > threshold:
        found = _source_of_numbers(setup, size, before, threshold, by_row, drawn)
        if found is None and drawn:
            found = _parameter_by_row(setup, size, before, threshold, by_row)
        return found
    return _equal_parameter_by_row(setup, size, before, threshold) if drawn else None


def _change(setup: TrainingSetup, size: int, before: Pass) -> float:
    """How much the outputs, put back into their order, change if the samples are in another order."""
    after = evaluate(setup, with_rows(setup.fresh_batch(), size, lambda _, tensor: tensor.roll(1, 0)))
    moves = [
        distance(tensor, after.outputs[path].roll(-1, 0))
        for path, tensor in before.outputs.items()
        if path in after.outputs
    ]
    return max(moves, default=0.0)


def _has_its_samples_first(batch: Any, size: int) -> bool:
    """Whether only the first dimension of the batch's tensors can be that of the samples, and tensors hold them all."""
    for _, tensor in tensors_in(batch):
        if size in tensor.shape[1:2] or (size in tensor.shape[1:] and tensor.shape[0] != size):
            return False
    return not any(True for _ in _lists_of_samples(batch, size))


def _lists_of_samples(value: Any, size: int) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        if len(value) == size and not all(
            isinstance(item, torch.Tensor) and item.shape[:1] == (size,) for item in value
        ):
            yield value
        for item in value:
            yield from _lists_of_samples(item, size)
    elif hasattr(value, "items"):
        for _, item in value.items():
            yield from _lists_of_samples(item, size)


def _is_drawn_at_random(setup: TrainingSetup, size: int) -> bool:
    if setup.drawn_at_random is not None:
        return setup.drawn_at_random
    return any(draws_at_random(loader, size) for loader in setup.loaders.values())


def _source_of_numbers(
    setup: TrainingSetup, size: int, before: Pass, threshold: float, by_row: float, drawn: bool
) -> RowSource | None:
    """The slice of a table, or the numbers of the rows, that has to follow the samples for equal results."""
    seen = _ValuesByRow(setup, size)
    with seen:
        if _change(setup, size, before) <= threshold:
            return None
    positions = [one for one in seen.sources if one.is_a_position]
    if not positions:
        return None
    trained = _ValuesByRow(setup, size)
    unchanged = _tables_that_stay(setup, trained)
    places = {one.place for one in trained.sources}
    proper = [one for one in positions if one.place in places and (not one.table or one.table in unchanged)]
    for group in _groups(proper):
        with _ValuesByRow(setup, size, followed={one.number for one in group}):
            if _change(setup, size, before) > threshold:
                continue
        return RowSource(by_row, group[0].table, False, drawn, group[0].module, group[0].line)
    return None


def _groups(sources: list[_Source]) -> list[list[_Source]]:
    """Those of each place, which may run several times, such as for source and target; last, those of all places."""
    places = list(dict.fromkeys(one.place for one in sources))
    groups = [[one for one in sources if one.place == place] for place in places[:_MOST_TRIED]]
    return groups if len(places) == 1 else [*groups, sources]


def _tables_that_stay(setup: TrainingSetup, recorder: _ValuesByRow) -> set[str]:
    """The parameters and buffers that a pass in training mode does not change. The recorder observes this pass."""
    kept = {path: tensor.detach().clone() for path, tensor in _tables(setup)}
    with eval_pass(setup, lambda *_: None):
        setup.model.train()
        with recorder:
            setup.loss()
        after = dict(_tables(setup))
    return {path for path, tensor in kept.items() if path in after and torch.equal(tensor, after[path])}


def _tables(setup: TrainingSetup) -> Iterator[tuple[str, torch.Tensor]]:
    """What can hold a row for each position: parameters, and buffers that are not named as a state."""
    for path, parameter in setup.model.named_parameters():
        if parameter.ndim > 1 and not _is_named(path, _PERTURBATIONS if parameter.requires_grad else _STATES):
            yield path, parameter
    for path, buffer in setup.model.named_buffers():
        if buffer.ndim and not _is_named(path, _STATES):
            yield path, buffer


def _is_named(path: str, parts: Sequence[str]) -> bool:
    name = path.rpartition(".")[2].lower()
    return any(part in name for part in parts)


def _parameter_by_row(
    setup: TrainingSetup, size: int, before: Pass, threshold: float, by_row: float
) -> RowSource | None:
    """The parameter whose rows have to follow the samples for equal results."""
    for path, parameter in _parameters_of(setup, size)[:_MOST_TRIED]:
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.copy_(kept.roll(1, 0))
        equal = _change(setup, size, before) <= threshold
        with torch.no_grad():
            parameter.copy_(kept)
        if equal:
            used = _FirstUse(setup, parameter)
            with used:
                evaluate(setup)
            return RowSource(by_row, path, True, True, used.module, used.line)
    return None


def _equal_parameter_by_row(setup: TrainingSetup, size: int, before: Pass, threshold: float) -> RowSource | None:
    """The same for parameters that begin with equal rows, such as zeros: they get other values during training."""
    equal = [one for _, one in _parameters_of(setup, size) if bool((one == one[:1]).all())]
    kept = [parameter.detach().clone() for parameter in equal]
    if not equal:
        return None
    with torch.no_grad():
        for parameter in equal:
            values = torch.linspace(-1, 1, parameter.numel(), dtype=torch.float64).sin() * _SIZE_OF_VALUES
            parameter.add_(values.reshape(parameter.shape).to(parameter))
    changed = evaluate(setup)
    changed = Pass({path: changed.outputs[path] for path in before.outputs}, changed.loss)
    by_row = _change(setup, size, changed)
    found = _parameter_by_row(setup, size, changed, threshold, by_row) if by_row > threshold else None
    with torch.no_grad():
        for parameter, own in zip(equal, kept, strict=True):
            parameter.copy_(own)
    return found


def _parameters_of(setup: TrainingSetup, size: int) -> list[tuple[str, nn.Parameter]]:
    """The parameters with one row per sample that a class of the program has, or an embedding."""
    return [
        (f"{path}.{name}".lstrip("."), parameter)
        for path, module in setup.named_modules
        if not type(module).__module__.startswith("torch.nn") or isinstance(module, nn.Embedding)
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.ndim > 1 and parameter.shape[0] == size and parameter.is_floating_point()
        if not _is_named(name, _PERTURBATIONS)
    ]


@dataclass
class _Source:
    """An operation that makes one row of values for each row of the batch, from no sample."""

    number: int
    name: str
    table: str
    """The parameter or buffer of which it takes a part; `""` for row numbers."""
    module: str
    line: SourceLine | None
    is_a_position: bool
    """Whether it is a part of a table, or row numbers that choose rows of one or are the argument of sines."""
    rejected: bool = False

    @property
    def place(self) -> tuple[str, str, SourceLine | None]:
        return self.name, self.table, self.line


class _ValuesByRow(TorchFunctionMode):
    """Records, in one pass, the operations that make values by row. Some of them can follow the samples."""

    def __init__(self, setup: TrainingSetup, size: int, *, followed: Collection[int] = ()) -> None:
        super().__init__()
        self.sources: list[_Source] = []
        self._size, self._followed = size, followed
        self._tables = {_storage(one): (path, one.numel()) for path, one in _tables(setup)}
        self._numbers: dict[int, tuple[_Source, torch.Tensor]] = {}  # row numbers, and what is computed from them
        self._running: list[str] = []
        self._follow = follow_modules(setup.model, self._running)

    def __enter__(self) -> Self:
        self._follow.__enter__()
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._follow.remove()
        for source in self.sources:
            source.is_a_position &= not source.rejected

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if not isinstance(output, torch.Tensor):
            return output
        self._use_of_numbers(name, args, kwargs or {}, output)
        if output.shape[:1] != (self._size,):
            return output
        table = self._part_of(output) if name in _SLICES else None
        if table is None and not (name == "arange" and self._is_row_numbers(output)):
            return output
        source = _Source(len(self.sources), name, table or "", self._module(), user_line(), table is not None)
        self.sources.append(source)
        if source.number in self._followed:
            output = output.roll(1, 0)
        if table is None:
            self._numbers[id(output)] = source, output
        return output

    def _module(self) -> str:
        return self._running[-1] if self._running else ""

    def _part_of(self, output: torch.Tensor) -> str | None:
        """The table of which an operation took some rows, if these are not all equal."""
        if output.layout is not torch.strided:
            return None
        path, whole = self._tables.get(_storage(output), (None, 0))
        return path if output.numel() < whole and bool((output != output[:1]).any()) else None

    def _is_row_numbers(self, output: torch.Tensor) -> bool:
        return output.ndim == 1 and output.tolist() == list(range(self._size))

    def _use_of_numbers(self, name: str, args: Any, kwargs: Any, output: torch.Tensor) -> None:
        given = [tensor for _, tensor in tensors_in((args, kwargs))]
        used = [self._numbers[id(tensor)][0] for tensor in given if id(tensor) in self._numbers]
        for source in used:
            by_size = name in _QUOTIENTS and any(one == self._size for one in args[1:] if isinstance(one, int | float))
            if name in _REJECTED or by_size:
                source.rejected = True
            elif name in _WAVES or name == "embedding" or self._chooses_rows(name, given):
                source.is_a_position = True
            elif output.shape[:1] == (self._size,):
                self._numbers[id(output)] = source, output

    def _chooses_rows(self, name: str, given: list[torch.Tensor]) -> bool:
        return name in ("__getitem__", "index_select") and bool(given) and _storage(given[0]) in self._tables


class _FirstUse(TorchFunctionMode):
    """The module and the line of the first operation on a tensor."""

    def __init__(self, setup: TrainingSetup, tensor: torch.Tensor) -> None:
        super().__init__()
        self.module = ""
        self.line: SourceLine | None = None
        self._tensor = tensor
        self._running: list[str] = []
        self._found = False
        self._follow: ModuleCalls = follow_modules(setup.model, self._running)

    def __enter__(self) -> Self:
        self._follow.__enter__()
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._follow.remove()

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        reads = isinstance(output, torch.Tensor) and any(one is self._tensor for _, one in tensors_in((args, kwargs)))
        if reads and not self._found:
            self._found, self.line = True, user_line()
            self.module = self._running[-1] if self._running else ""
        return output


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)
