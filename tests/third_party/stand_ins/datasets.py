"""Tables in memory with the interface of datasets'. Pairs of sentences stand in for GLUE's MRPC and MNLI, as many as
MRPC has, and instructions with answers for Alpaca's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

TEXT = "the robot arm moves a red cup to left right box table and then stops near it again slowly"
WORDS = TEXT.split()
__version__ = "3.0.0"
"""The interface is that of this version; transformers compares it."""
CLASSES = {"label": ("no", "yes", "partly")}
"""The names of the classes of a column of labels."""


class Dataset:
    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    @property
    def features(self) -> dict[str, SimpleNamespace]:
        shown = (
            (name, CLASSES.get(name, ())[: max(self[name]) + 1] if name in CLASSES else ()) for name in self._columns
        )
        return {name: SimpleNamespace(names=list(classes)) for name, classes in shown}

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, index: int | str) -> Any:
        if isinstance(index, str):
            return self._columns[index]
        if index >= len(self):
            raise IndexError(index)
        return {name: values[index] for name, values in self._columns.items()}

    def map(
        self, function: Callable[[Any], Any], batched: bool = False, remove_columns: Iterable[str] = (), **_options: Any
    ) -> Dataset:
        if not batched:
            rows = [function(self[index]) for index in range(len(self))]
            made = {name: [row[name] for row in rows] for name in rows[0]}
        else:
            made = dict(function(self._columns))
        kept = {name: values for name, values in self._columns.items() if name not in set(remove_columns)}
        return Dataset(kept | made)

    def remove_columns(self, names: Iterable[str]) -> Dataset:
        return Dataset({name: values for name, values in self._columns.items() if name not in set(names)})

    def rename_column(self, old: str, new: str) -> Dataset:
        return Dataset({new if name == old else name: values for name, values in self._columns.items()})

    def select(self, indices: Iterable[int]) -> Dataset:
        chosen = list(indices)
        return Dataset({name: [values[at] for at in chosen] for name, values in self._columns.items()})

    def shuffle(self, seed: int | None = None) -> Dataset:
        return self.select(random.Random(seed).sample(range(len(self)), len(self)))

    def train_test_split(self, test_size: int, shuffle: bool = True, seed: int | None = None) -> DatasetDict:
        table = self.shuffle(seed) if shuffle else self
        end = len(self) - test_size
        return DatasetDict(train=table.select(range(end)), test=table.select(range(end, len(self))))


class DatasetDict(dict[str, Dataset]):
    def map(self, function: Callable[[Any], Any], **options: Any) -> DatasetDict:
        return DatasetDict({name: table.map(function, **options) for name, table in self.items()})

    def rename_column(self, old: str, new: str) -> DatasetDict:
        return DatasetDict({name: table.rename_column(old, new) for name, table in self.items()})


def load_dataset(name: str, *names: str, **_options: Any) -> DatasetDict:
    """Pairs of sentences; the label says whether the second has the words of the first in another order. For Alpaca,
    instructions; the output has their words in the reverse order."""
    if "alpaca" in name:
        return DatasetDict(train=_instructions(2016, 0))
    if "mnli" in names:
        sizes = {"train": 3668, "validation_matched": 64, "validation_mismatched": 64}
        return DatasetDict(
            {part: _pairs(size, at, "premise", "hypothesis", 3) for at, (part, size) in enumerate(sizes.items())}
        )
    return DatasetDict(train=_pairs(3668, 0), validation=_pairs(64, 1), test=_pairs(64, 2))


def _pairs(count: int, seed: int, first: str = "sentence1", second: str = "sentence2", classes: int = 2) -> Dataset:
    draw = random.Random(seed)
    columns: dict[str, list[Any]] = {first: [], second: [], "label": [], "idx": list(range(count))}
    for _ in range(count):
        words, label = draw.choices(WORDS, k=draw.randint(4, 12)), draw.randint(0, classes - 1)
        other = draw.sample(words, len(words)) if label == 1 else draw.choices(WORDS, k=len(words))
        columns[first].append(" ".join(words))
        columns[second].append(" ".join(words[:2] + other[2:] if label == 2 else other))
        columns["label"].append(label)
    return Dataset(columns)


def _instructions(count: int, seed: int) -> Dataset:
    draw = random.Random(seed)
    asked = [draw.choices(WORDS, k=draw.randint(4, 12)) for _ in range(count)]
    columns: dict[str, list[Any]] = {"instruction": [" ".join(words) for words in asked]}
    columns["output"] = [" ".join(reversed(words)) for words in asked]
    return Dataset(columns)


def _nothing() -> None: ...


utils = SimpleNamespace(logging=SimpleNamespace(set_verbosity_warning=_nothing, set_verbosity_error=_nothing))
