"""Wrappers around one function are undone in any order, and nothing refers to an observer that has left."""

from __future__ import annotations

import gc
import itertools
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from debugkit.recorders.patches import Patches


class Observer:
    def __init__(self) -> None:
        self.calls = 0

    def count(self, *_: Any) -> None:
        self.calls += 1


def double(value: int) -> int:
    return 2 * value


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_three_patches_of_one_function_end_in_any_order(order: tuple[int, ...]) -> None:
    owner = SimpleNamespace(double=double)
    observers = [Observer() for _ in range(3)]
    patches = [Patches() for _ in range(3)]
    for each, observer in zip(patches, observers, strict=True):
        each.around(owner, "double", before=observer.count)
    del each, observer
    kept = [weakref.ref(observer) for observer in observers]
    for number, ended in enumerate(order, start=1):
        before = [observer.calls for observer in observers if observer is not None]
        assert owner.double(4) == 8
        assert [observer.calls for observer in observers if observer is not None] == [calls + 1 for calls in before]
        patches[ended].__exit__(None, None, None)
        observers[ended] = None  # type: ignore[call-overload]
        gc.collect()
        assert kept[ended]() is None
        assert len([one for one in kept if one() is not None]) == 3 - number
    assert owner.double is double


class Base:
    def answer(self) -> int:
        return 1


class Inherits(Base):
    pass


@pytest.mark.parametrize("first", [0, 1])
def test_an_inherited_method_is_inherited_again(first: int) -> None:
    patches = [Patches(), Patches()]
    for each in patches:
        each.around(Inherits, "answer")
    patches[first].__exit__(None, None, None)
    assert Inherits().answer() == 1
    patches[1 - first].__exit__(None, None, None)
    assert "answer" not in vars(Inherits)


def test_the_replacement_of_other_code_stays() -> None:
    owner = SimpleNamespace(double=double)
    observer = Observer()
    patches = Patches()
    patches.around(owner, "double", before=observer.count)
    patched = owner.double
    owner.double = replacement = lambda value: patched(value) + 1
    patches.__exit__(None, None, None)
    assert owner.double is replacement
    assert owner.double(4) == 9
    assert observer.calls == 0


def test_a_result_can_be_wrapped() -> None:
    owner = SimpleNamespace(double=double)
    with Patches() as patches:
        patches.around(owner, "double", wrapped=lambda result, value: (result, value))
        assert owner.double(4) == (8, 4)
    assert owner.double(4) == 8
