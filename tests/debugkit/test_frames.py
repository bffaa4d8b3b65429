"""The line that is named is the user's: not torch's, not debugkit's, not the standard library's."""

from __future__ import annotations

import functools
import inspect
import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import debugkit
from debugkit._torch_private import leave
from debugkit.frames import is_users, raising_line, user_line


def here() -> int:
    caller = inspect.currentframe().f_back  # type: ignore[union-attr]
    return caller.f_lineno


def test_calling_line_is_named_with_its_function() -> None:
    line, expected = user_line(), here()
    assert line is not None
    assert (line.file, line.line, line.function) == (__file__, expected, "test_calling_line_is_named_with_its_function")


def test_code_of_torch_and_of_the_standard_library_is_stepped_over() -> None:
    seen = []
    module = nn.Sequential(nn.Linear(2, 2))
    module[0].register_forward_hook(lambda *_: seen.append(user_line(inspect.currentframe().f_back)))
    call = functools.partial(module, torch.ones(1, 2))
    call()
    expected = here() - 1
    assert [(line.file, line.line) for line in seen] == [(__file__, expected)]


def test_files_are_told_apart() -> None:
    assert is_users(__file__)
    assert is_users("<stdin>")
    assert is_users("/x/site-packages/lerobot/policy.py")
    assert not is_users(torch.__file__)
    assert not is_users(json.__file__)
    assert not is_users(str(Path(debugkit.__file__).parent / "preflight.py"))
    assert not is_users("/usr/lib/python3/dist-packages/torch/nn/functional.py")
    assert not is_users("<frozen importlib._bootstrap>")


def test_raising_line_is_the_innermost_of_the_user() -> None:
    def fails() -> None:
        torch.ones(2) @ torch.ones(3)

    with pytest.raises(RuntimeError) as raised:
        fails()
    line = raising_line(raised.tb)
    assert line is not None
    assert line.function == "fails"


def test_raising_line_is_none_where_debugkit_itself_raised() -> None:
    with pytest.raises(TypeError) as raised:
        debugkit.check(3)  # type: ignore[arg-type]
    assert raising_line(raised.tb) is None


def test_mode_is_left_from_under_others_that_stay_in_order() -> None:
    class Counting(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.calls += 1
            return func(*args, **(kwargs or {}))

    with Counting() as lower:
        middle = Counting()
        middle.__enter__()
        with Counting() as upper:
            leave(middle)
            leave(middle)  # a second time does nothing
            torch.ones(1) + 1
        counted = (lower.calls, middle.calls, upper.calls)
        torch.ones(1) + 1
    assert counted[0] == counted[2] > 0
    assert middle.calls == counted[1] == 0
    assert lower.calls > counted[0]
