"""A fix that applies on some calls only: which ones."""

from __future__ import annotations

import inspect

import pytest
import torch

from labs.authoring.mutation import partial_fix


def fixed(*_: object, **__: object) -> str:
    """What it does."""
    return "fixed"


def broken(*_: object, **__: object) -> str:
    return "broken"


class Module(torch.nn.Module):
    answer = partial_fix.only_in_training(fixed, broken)


def test_only_in_training_follows_the_module() -> None:
    module = Module()
    assert module.answer() == "fixed"
    assert module.eval().answer() == "broken"


def test_only_in_training_follows_the_gradients_where_there_is_no_module() -> None:
    function = partial_fix.only_in_training(fixed, broken)
    assert function(torch.ones(1)) == "fixed"
    with torch.no_grad():
        assert function(torch.ones(1)) == "broken"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((torch.ones(2),), "fixed"),
        ((torch.ones(1, 5),), "broken"),
        (({"a": torch.ones(3)},), "fixed"),
        ((4, [torch.ones(1)], torch.ones(9)), "broken"),
        ((torch.tensor(1.0),), "broken"),
        ((), "broken"),
    ],
)
def test_only_for_batches_looks_at_the_first_tensor(arguments: tuple[object, ...], expected: str) -> None:
    assert partial_fix.only_for_batches(fixed, broken)(*arguments) == expected


def test_only_every_tenth_call_begins_with_the_first() -> None:
    function = partial_fix.only_every_tenth_call(fixed, broken)
    answers = [function() for _ in range(21)]
    assert [number for number, answer in enumerate(answers) if answer == "fixed"] == [0, 10, 20]


def test_the_function_keeps_its_name_signature_and_kind() -> None:
    class Holder:
        once = property(partial_fix.only_every_tenth_call(lambda self: "fixed", lambda self: "broken"))
        both = partial_fix.only_every_tenth_call(property(lambda self: 1), property(lambda self: 2))
        free = partial_fix.only_every_tenth_call(staticmethod(fixed), staticmethod(broken))
        of_class = partial_fix.only_every_tenth_call(
            classmethod(lambda cls: cls.__name__), classmethod(lambda cls: "broken")
        )

    holder = Holder()
    assert [holder.both, holder.both] == [1, 2]
    assert [holder.free(), holder.free()] == ["fixed", "broken"]
    assert holder.of_class() == "Holder"
    wrapped = partial_fix.only_in_training(fixed, broken)
    assert (wrapped.__name__, wrapped.__doc__) == ("fixed", "What it does.")
    assert inspect.signature(wrapped) == inspect.signature(fixed)
