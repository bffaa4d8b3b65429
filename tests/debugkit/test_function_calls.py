"""Observers of torch functions share one mode, see the calls of the program alone, and cannot stop it by a failure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import handle_torch_function, has_torch_function

import debugkit
from debugkit._torch_private import mode_stack
from debugkit.recorders.function_calls import FunctionCalls, FunctionObserver, attach, detach, property_read_by
from debugkit.rules.dk324_view_for_permute import measure as view_for_permute


class Names(FunctionObserver):
    """Keeps the names of the calls that ended, and reads a tensor of each."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.seen: list[str] = []
        self.doubled: list[float] = []

    def name_of(self, func: Callable[..., Any]) -> str | None:
        name: str = getattr(func, "__name__", "")
        self.asked.append(name)
        return None if property_read_by(func) else name

    def before(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], /) -> Any:
        return float(args[0].sum() * 2) if isinstance(args[0], torch.Tensor) else None

    def after(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], output: Any, begun: Any, /) -> None:
        self.seen.append(name)
        self.doubled.append(begun)


class InTransforms(Names):
    in_transforms = True

    def before(self, *_: Any) -> None:
        return None


class Failing(Names):
    def before(self, *_: Any) -> Any:
        raise KeyError("no such tensor")


class Stopping(Failing):
    may_stop = True


def attached(*observers: FunctionObserver) -> list[FunctionCalls]:
    return [attach(observer) for observer in observers]


@contextlib.contextmanager
def observed_by(*observers: FunctionObserver) -> Iterator[None]:
    mode = attached(*observers)[0]
    try:
        yield
    finally:
        for observer in observers:
            detach(observer, mode)
        assert not any(other is mode for other in mode_stack())


@contextlib.contextmanager
def joined_by(observer: FunctionObserver) -> Iterator[None]:
    mode = attach(observer)
    try:
        yield
    finally:
        detach(observer, mode)
        assert any(other is mode for other in mode_stack())


def test_observers_share_a_mode_which_leaves_with_the_last_one() -> None:
    before = mode_stack()
    one, two = Names(), Names()
    modes = attached(one, two)
    assert modes[0] is modes[1]
    assert [mode for mode in mode_stack() if isinstance(mode, FunctionCalls)] == [modes[0]]
    detach(one, modes[0])
    torch.ones(2).neg()
    assert (one.seen, two.seen) == ([], ["ones", "neg"])
    detach(two, modes[0])
    assert mode_stack() == before


def test_what_an_observer_computes_is_seen_by_none() -> None:
    one, two = Names(), Names()
    with observed_by(one, two):
        given = torch.ones(3)
        given.exp()
    assert one.seen == two.seen == ["ones", "exp"]
    assert one.doubled == [None, 6.0]


def test_each_function_is_looked_up_once_and_again_after_a_change() -> None:
    one, two = Names(), Names()
    given = torch.ones(3)
    with observed_by(one):
        for _ in range(4):
            assert given.shape == (3,)
            given.exp()
        assert one.asked == ["__get__", "exp"]
        with joined_by(two):
            given.exp()
        given.exp()
    assert (len(one.seen), two.seen) == (6, ["exp"])


def test_a_function_without_a_hash_is_observed() -> None:
    class Like(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    class Doubling:
        __hash__ = None  # type: ignore[assignment]
        __name__ = "doubling"

        def __call__(self, tensor: torch.Tensor) -> Any:
            if has_torch_function((tensor,)):
                return handle_torch_function(self, (tensor,), tensor)
            return tensor + tensor

    one = Names()
    with observed_by(one):
        Doubling()(torch.ones(2).as_subclass(Like))
    assert "doubling" in one.seen


def test_an_observer_that_raises_is_left_out_and_the_program_continues() -> None:
    failing, other = Failing(), Names()
    with observed_by(failing, other):
        assert torch.ones(2).exp().sum() > 5
    assert isinstance(failing.error, KeyError)
    assert (failing.seen, other.seen) == ([], ["ones", "exp", "sum", "gt", "__bool__"])


def test_an_observer_may_stop_the_call() -> None:
    stopping = Stopping()
    given = torch.ones(2)
    with observed_by(stopping), pytest.raises(KeyError, match="no such tensor"):
        given.exp()


def test_calls_inside_a_transform_are_observed_on_request_only() -> None:
    plain, inside = Names(), InTransforms()
    with observed_by(plain, inside):
        torch.func.vmap(lambda row: row.exp())(torch.ones(2, 3))
    assert "exp" in inside.seen
    assert "exp" not in plain.seen


def test_a_failed_observer_leaves_its_rule_not_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: Any) -> Any:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(view_for_permute._Calls, "after", failed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with debugkit.watch(model, optimizer) as run:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 3, 4)).square().mean().backward()
            optimizer.step()
    reasons = {one.code: one.why for one in run.report.not_examined}
    assert "RuntimeError: unforeseen" in reasons["DK324"]
    assert "DK002" in run.report.examined
