"""Hooks on modules come from one place, say what was called with what, and are all gone afterwards."""

from __future__ import annotations

import ast
import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import debugkit
from debugkit.recorders.module_calls import ModuleCalls, Outputs, every_call, run_new_hooks

ROOT = Path(debugkit.__file__).parent
ALLOWED = {
    "module_calls.py",  # the place
    "script.py",  # global hooks, which find the models of an unmodified script
    "trace_batches.py",  # a hook that must come after those of ModuleCalls
}


class Doubling(nn.Module):
    def forward(self, x: torch.Tensor, *, factor: float = 2.0) -> torch.Tensor:
        if factor < 0:
            raise ValueError("negative")
        return x * factor


def test_no_other_file_registers_hooks_on_modules() -> None:
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute | ast.Name):
                name = node.attr if isinstance(node, ast.Attribute) else node.id
                if name.startswith(("register_forward", "register_module_forward")):
                    found.add(path.name)
    assert found == ALLOWED


def test_callbacks_get_path_module_arguments_and_output() -> None:
    model, seen = Doubling(), []
    calls = ModuleCalls(
        [("a.b", model)], before=lambda *given: seen.append(given), after=lambda *given: seen.append(given)
    )
    with calls:
        assert calls
        output = model(torch.ones(1), factor=3.0)
    (path, module, args, kwargs), (*_, returned) = seen
    assert (path, module, args, kwargs) == ("a.b", model, (torch.ones(1),), {"factor": 3.0})
    assert returned is output
    assert not calls
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


@pytest.mark.parametrize("first", [True, False])
def test_before_runs_before_or_after_the_hooks_that_a_module_has(first: bool) -> None:
    model, order = Doubling(), []
    model.register_forward_pre_hook(lambda *_: order.append("its own"))
    with ModuleCalls([("", model)], before=lambda *_: order.append("ours"), before_others=first):
        model(torch.ones(1))
    assert order == (["ours", "its own"] if first else ["its own", "ours"])


@pytest.mark.parametrize("also_raised", [True, False])
def test_a_forward_that_raised_is_reported_only_where_wanted(also_raised: bool) -> None:
    model, seen = Doubling(), []
    with (
        ModuleCalls([("", model)], after=lambda *given: seen.append(given[-1]), also_raised=also_raised),
        pytest.raises(ValueError, match="negative"),
    ):
        model(torch.ones(1), factor=-1.0)
    assert seen == [None] * also_raised
    assert not model._forward_hooks


def test_what_after_returns_takes_the_place_of_the_output() -> None:
    model = Doubling()
    with ModuleCalls([("", model)], after=lambda *_: torch.zeros(1)):
        assert model(torch.ones(1)).item() == 0.0
    assert model(torch.ones(1)).item() == 2.0


def test_outputs_of_one_module_are_reported_until_its_hook_is_removed() -> None:
    model, seen = Doubling(), []
    with Outputs("a.b", model, lambda *given: seen.append(given)) as outputs:
        first = model(torch.ones(1), factor=3.0)
        outputs.remove()
        model(torch.ones(1))
    assert seen == [("a.b", first)]
    assert not model._forward_hooks


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules_are_left_out() -> None:
    model = nn.Sequential(torch.jit.script(nn.Linear(1, 1)), nn.ReLU())
    seen: list[str] = []
    with ModuleCalls(model.named_modules(), after=lambda path, *_: seen.append(path)):
        model(torch.ones(1))
    assert seen == ["1", ""]


def test_a_copy_of_a_hooked_model_copies_no_recorder() -> None:
    class Recorder:
        def __deepcopy__(self, memo: object) -> Recorder:
            raise AssertionError("the recorder was copied with the model")

        def after(self, *_: Any) -> None: ...

        before = after

    model, recorder = nn.Linear(1, 1), Recorder()
    with ModuleCalls([("", model)], before=recorder.before, after=recorder.after):
        copy.deepcopy(model)


def test_an_average_of_the_weights_made_while_watched_copies_nothing_of_the_watch() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with debugkit.watch(model, optimizer) as run:
        average = torch.optim.swa_utils.AveragedModel(model)
        hooks = [hook for module in average.modules() for hook in module._forward_hooks.values()]
        assert hooks
        assert all(hook in model._forward_hooks.values() for hook in hooks)
    assert run.report.ok


def test_the_global_hook_is_gone_after_an_exception() -> None:
    seen: list[nn.Module] = []
    model = Doubling()
    with pytest.raises(ValueError, match="negative"), every_call(lambda module, _: seen.append(module)):
        model(model(torch.ones(1)), factor=-1.0)
    model(torch.ones(1))
    assert seen == [model]


@pytest.mark.parametrize("removed", ["before", "after"])
def test_hook_that_another_hook_removes_in_the_same_call_does_nothing(removed: str) -> None:
    model, seen = Doubling(), []
    calls = ModuleCalls([("m", model)], **{removed: lambda *_: seen.append("called")})
    if removed == "before":
        remover = model.register_forward_pre_hook(lambda *_: calls.remove())
    else:
        remover = model.register_forward_hook(lambda *_: calls.remove())
    with calls:
        assert torch.equal(model(torch.ones(1), factor=3.0), torch.tensor([3.0]))
    remover.remove()
    assert seen == []


def test_a_call_that_has_begun_runs_the_hooks_that_are_attached_in_it() -> None:
    """PyTorch runs only those that come after `forward`: a stack of running modules would lose its place."""
    model, order = Doubling(), []
    own = ModuleCalls([("own", model)], before=lambda path, *_: order.append(f"before {path}"))
    new = ModuleCalls(
        [("new", model)],
        before=lambda path, _module, args, kwargs: order.append((f"before {path}", len(args), kwargs)),
        after=lambda path, *_: order.append(f"after {path}"),
    )

    def attach(module: nn.Module, args: tuple[Any, ...]) -> None:
        handle.remove()
        with run_new_hooks(module, args, {"factor": 3.0}):
            new.__enter__()

    handle = nn.modules.module.register_module_forward_pre_hook(attach)
    with own:
        model(torch.ones(1), factor=3.0)
        assert order == [("before new", 1, {"factor": 3.0}), "before own", "after new"]
        order.clear()
        model(torch.ones(1), factor=3.0)
    assert order == ["before own", ("before new", 1, {"factor": 3.0}), "after new"]
