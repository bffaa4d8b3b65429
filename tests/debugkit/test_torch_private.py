"""Private names of PyTorch are in one file, and each has an answer where torch lacks the name."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import debugkit
from debugkit import _torch_private as private

ROOT = Path(debugkit.__file__).parent
OF_TORCH = {
    *("_version", "_base", "_sequence_nr", "_forward_cls", "_orig_mod", "_compiled_call_impl", "_is_initial"),
    *("_opt_called", "_non_persistent_buffers_set", "_unsafe_preserve_version_counter", "_DropoutNd", "_NormBase"),
    *("_foreach_norm", "_functorch", "_C", "_dynamo", "_subclasses", "_python_dispatch", "_disable_current_modes"),
}
PATHS_ONLY = {"module_paths.py"}  # names `_orig_mod` as a part of a dotted path


def private_names(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and (node.attr in OF_TORCH or _is_private_of_torch(node)):
            found.append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            found += [f"{path.name}:{node.lineno} {part}" for part in parts if part.startswith("_")]
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if re.match(r"torch\.(.*\.)?_", alias.name)]
    return found


def _is_private_of_torch(node: ast.Attribute) -> bool:
    text = ast.unparse(node)
    return text.startswith(("torch.", "nn.")) and any(
        part.startswith("_") and not part.endswith("__") for part in text.split(".")
    )


def test_one_file_names_what_is_private_to_torch() -> None:
    files = [path for path in ROOT.rglob("*.py") if path.name not in {"_torch_private.py", *PATHS_ONLY}]
    found = [name for path in files for name in private_names(path)]
    assert not found, found
    assert len(private_names(ROOT / "_torch_private.py")) > 10, "the search itself finds nothing"


def test_a_backward_pass_is_recognised_from_inside() -> None:
    seen = []

    def layer(x: torch.Tensor) -> torch.Tensor:
        seen.append(private.in_backward())
        return x * 2

    checkpoint(layer, torch.ones(1, requires_grad=True), use_reentrant=True).sum().backward()
    assert seen == [False, True]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_transforms_and_tracers_are_recognised() -> None:
    seen = []

    def f(x: torch.Tensor) -> torch.Tensor:
        seen.append((private.in_transform(), private.in_functorch()))
        return x.sum()

    f(torch.ones(2))
    torch.func.grad(f)(torch.ones(2))
    torch.jit.trace(f, torch.ones(2), check_trace=False)
    assert seen == [(False, False), (True, True), (True, False)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile's own imports
@pytest.mark.parametrize(
    "wrap",
    [torch.compile, lambda m: nn.Sequential(torch.compile(m)), lambda m: m.compile() or m],
    ids=["whole", "part", "in-place"],
)
def test_a_compiled_model_is_recognised(wrap) -> None:
    assert not private.is_compiled(nn.Linear(1, 1))
    assert private.is_compiled(wrap(nn.Linear(1, 1)))


def test_an_apply_of_the_users_class_is_found_and_those_of_torch_are_not() -> None:
    class Moves(nn.Module):
        def _apply(self, fn, recurse=True):
            self.moved = fn(torch.ones(2))
            return super()._apply(fn, recurse)

    module = Moves()
    own = private.own_apply(module)
    assert own is not None
    own(lambda tensor: 2 * tensor)
    assert module.moved.tolist() == [2, 2]
    assert private.own_apply(nn.Linear(1, 1)) is None
    assert private.own_apply(nn.LSTM(1, 1)) is None


def test_a_mode_is_left_wherever_it_is_on_the_stack() -> None:
    class Mode(TorchFunctionMode):
        pass

    outer, inner = Mode(), Mode()
    before = private.mode_stack()
    with outer:
        inner.__enter__()
        private.leave(outer)
        assert private.mode_stack() == [*before, inner]
        private.leave(outer)
        private.set_mode_stack([*before, outer])
    assert private.mode_stack() == before
    assert private.default_device_mode() is None


def test_versions_views_and_nodes_are_read() -> None:
    tensor = torch.ones(2)
    view = tensor[:1]
    assert private.base_of(view) is tensor
    assert private.base_of(tensor) is tensor
    tensor.add_(1)
    assert private.version_of(tensor) == 1
    with private.unchanged_versions(tensor):
        tensor.add_(1)
    assert private.version_of(tensor) == 1
    with torch.inference_mode():
        assert private.version_of(torch.ones(1)) == -1

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = torch.ones(1, requires_grad=True)
    assert private.function_of(Twice.apply(x).grad_fn) is Twice
    assert private.function_of((x * 2).grad_fn) is None
    first, second = x * 1, x * 1
    assert private.sequence_number(first.grad_fn) < private.sequence_number(second.grad_fn)


def test_norms_are_those_of_each_tensor_with_and_without_the_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.tensor([3.0, 4.0]), torch.tensor([2.0])]
    assert private.norms([]) == []
    assert [float(norm) for norm in private.norms(tensors)] == [5.0, 2.0]
    monkeypatch.delattr(torch, "_foreach_norm")
    assert [float(norm) for norm in private.norms(tensors)] == [5.0, 2.0]


def test_what_a_module_registers_is_read() -> None:
    module = nn.Linear(1, 1, bias=False)
    module.register_buffer("kept", torch.ones(1))
    module.register_buffer("unsaved", torch.ones(1), persistent=False)
    assert list(private.parameters_of(module)) == ["weight", "bias"]
    assert list(private.buffers_of(module)) == ["kept", "unsaved"]
    assert list(private.unsaved_buffers_of(module)) == ["unsaved"]
    assert all(hasattr(module, name) for name in private.REGISTERED)


def test_the_step_of_a_schedulers_constructor_is_told_from_the_loops() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    seen = []

    class Scheduler(torch.optim.lr_scheduler.LambdaLR):
        def get_lr(self):
            seen.append(private.is_initial_step(self))
            return super().get_lr()

    scheduler = Scheduler(optimizer, lambda _: 1.0)
    assert not private.has_stepped(optimizer)
    optimizer.step()
    assert private.has_stepped(optimizer)
    scheduler.step()
    scheduler.step()
    assert seen[0]
    assert not seen[-1]
    assert private.is_initial_step(SimpleNamespace(_step_count=1))  # as torch 2.6 knows it
    assert not private.is_initial_step(SimpleNamespace(_step_count=2))


def test_a_loader_with_lasting_workers_is_told_and_reset() -> None:
    loader = SimpleNamespace(_iterator=object())
    assert private.has_running_workers(loader)
    private.end_workers(loader)
    assert not private.has_running_workers(loader)
    private.end_workers([])


def test_without_the_private_names_the_answers_are_the_cautious_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C, "_current_graph_task_id")
    monkeypatch.delattr(torch._C, "_get_tracing_state")
    monkeypatch.delattr(torch._C, "_functorch")
    monkeypatch.delattr(torch, "_GLOBAL_DEVICE_CONTEXT")
    monkeypatch.delattr(torch.autograd.grad_mode, "_unsafe_preserve_version_counter")
    assert not private.in_backward()
    assert not private.in_transform()
    assert private.default_device_mode() is None
    with private.unchanged_versions(torch.ones(1)), private.without_torch_function():
        pass
    assert private.autocast_is_enabled(SimpleNamespace())
    assert not private.autocast_is_enabled(SimpleNamespace(_enabled=False))


def test_fake_tensors_and_modes_that_are_put_aside() -> None:
    with private.fake_tensor_mode(allow_non_fake_inputs=True) as mode:
        assert isinstance(torch.ones(2), private.fake_tensor_type())
        with private.without_dispatch_modes():
            assert type(torch.ones(2)) is torch.Tensor
    assert mode is not None
    private.forget_global_hook(-1)
    assert private.SET_GRAD_ENABLED is not None
