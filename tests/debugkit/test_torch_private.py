"""Private names of PyTorch are in one file. This torch has them, or the answer without them is a neutral one."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import fake_tensor
from torch.autograd import grad_mode
from torch.nn.utils import clip_grad
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch, backend_registration
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

import debugkit
from debugkit import _torch_private as private

ROOT = Path(debugkit.__file__).parent
HERE = ROOT / "_torch_private.py"
OF_OTHERS = {
    *("_getframe", "_current_frames", "_exit", "_fields", "_target"),  # Python
    *("_optimizers", "_name_or_path"),  # Accelerate, transformers
    *("_parse_overrides_and_create_caching_repo", "_load_single_config"),  # Hydra
    *("_is_none", "_is_missing", "_is_interpolation", "_get_node", "_value"),  # OmegaConf
}
BY_NAME = {"getattr", "hasattr", "setattr", "delattr"}


def private_names(path: Path) -> list[tuple[int, str]]:
    """Line and name of what is used of objects and modules that are not debugkit's own, but are private."""
    found = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = _own_attributes(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not _is_self(node.value) and node.attr not in own:
            found.append((node.lineno, node.attr))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BY_NAME:
            found += [(node.lineno, text) for text in map(_text, node.args[1:2]) if text not in own]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            found += [(node.lineno, part) for part in parts]
        elif isinstance(node, ast.Import):
            found += [(node.lineno, part) for alias in node.names for part in alias.name.split(".")]
        elif re.fullmatch(r"torch(\.\w+)+", _text(node)):  # a module that is looked up or imported by name
            found += [(node.lineno, part) for part in _text(node).split(".")]
        elif isinstance(node, ast.Constant) and node.value in private.REGISTERED:
            found.append((node.lineno, node.value))
    return [(line, name) for line, name in found if re.match(r"_(?!_)", name)]


def _own_attributes(tree: ast.AST) -> set[str]:
    """The attributes that the classes of a file define, and those that it sets on `self`."""
    bodies = [node for one in ast.walk(tree) if isinstance(one, ast.ClassDef) for node in one.body]
    own = {node.name for node in bodies if isinstance(node, ast.FunctionDef)}
    own |= {ast.unparse(node.target) for node in bodies if isinstance(node, ast.AnnAssign)}
    stored = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    return own | {node.attr for node in stored if _is_self(node.value)}


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_one_file_names_what_is_private_to_torch() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in sorted(ROOT.rglob("*.py"))
        if path != HERE
        for line, name in private_names(path)
        if name != "_torch_private" and name not in OF_OTHERS
    ]
    assert not found, found
    assert len(private_names(HERE)) > 30, "the search itself finds nothing"


@pytest.mark.parametrize(
    "line",
    [
        "import torch._dynamo",
        "from torch._subclasses import fake_tensor",
        "from torch.utils.data.dataloader import _BaseDataLoaderIter",
        "tensor._version",
        "torch._C",
        'getattr(node, "_saved_self", None)',
        'hasattr(node, "_forward_cls")',
        '"torch._dynamo" in sys.modules',
        'OWN = ("_parameters",)',
    ],
)
def test_the_search_finds_each_way_to_use_a_private_name(line: str, tmp_path: Path) -> None:
    (tmp_path / "used.py").write_text(line)
    assert private_names(tmp_path / "used.py")


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


def test_what_an_iterator_of_a_loader_has_given_is_read() -> None:
    loader = DataLoader(range(4), batch_size=2, shuffle=True)
    iterator = iter(loader)
    assert private.batches_read(iterator) == 0
    next(iterator)
    assert private.batches_read(iterator) == 1
    assert private.index_sampler_of(iterator) is loader.batch_sampler


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


def test_the_hooks_on_modules_and_parameters_are_read() -> None:
    def hook(*_: object) -> None:
        return None

    module = nn.Linear(1, 1)
    assert not any(private.hooks_on(owner, name) for owner in (module, module.weight) for name in private.HOOKS)
    module.register_forward_pre_hook(hook)
    module.register_forward_hook(hook)
    module.register_full_backward_pre_hook(hook)
    module.register_full_backward_hook(hook)
    module.weight.register_hook(hook)
    module.weight.register_post_accumulate_grad_hook(hook)
    on_module, on_weight = (
        {name for name in private.HOOKS if private.hooks_on(owner, name) == [hook]} for owner in (module, module.weight)
    )
    assert on_module == {"_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"}
    assert on_weight == {"_backward_hooks", "_post_accumulate_grad_hooks"}


def test_a_global_hook_reads_the_keywords_of_its_call() -> None:
    class Inner(nn.Module):
        def forward(self, x, *, scale):
            return x * scale

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, *, state):
            return self.inner(state, scale=2)

    model, state, seen = Outer(), torch.ones(1), []
    handle = nn.modules.module.register_module_forward_pre_hook(
        lambda module, _args: seen.append(private.keywords_of_call(module))
    )
    model(state=state)
    handle.remove()
    assert seen == [{"state": state}, {"scale": 2}]
    assert private.keywords_of_call(model) == {}  # no call is running


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


class Moves(nn.Module):
    def _apply(self, fn, recurse=True):
        return super()._apply(fn, recurse)


OBJECT = SimpleNamespace()  # without any attribute
WRAPPER = nn.ModuleDict({"module": nn.ReLU()})
SPARSE = torch.eye(2).to_sparse()


@pytest.mark.parametrize(
    ("owner", "name", "ask", "answer"),
    [
        (torch._C, "_current_graph_task_id", private.in_backward, False),
        (torch._C, "_get_tracing_state", private.in_transform, False),
        (torch._C, "_functorch", private.in_functorch, False),
        (torch._C, "DisableTorchFunction", lambda: type(private.without_torch_function()), nullcontext),
        (torch, "_GLOBAL_DEVICE_CONTEXT", private.default_device_mode, None),
        (torch, "_foreach_norm", lambda: private.norms([torch.ones(1)]), [torch.tensor(1.0)]),
        (_python_dispatch, "_disable_current_modes", lambda: type(private.without_dispatch_modes()), nullcontext),
        (grad_mode, "_unsafe_preserve_version_counter", lambda: type(private.unchanged_versions(())), nullcontext),
        (nn.Module, "_apply", lambda: private.own_apply(Moves()), None),
        (torch.distributed.distributed_c10d, "_get_default_store", private.default_store, None),
        (None, "_enabled", lambda: private.autocast_is_enabled(OBJECT), True),
        (None, "_base", lambda: private.base_of(OBJECT), OBJECT),
        (None, "_num_yielded", lambda: private.batches_read(OBJECT), 0),
        (None, "_index_sampler", lambda: private.index_sampler_of(OBJECT), None),
        (None, "_forward_cls", lambda: private.function_of(OBJECT), None),
        (None, "_saved_rounding_mode", lambda: private.rounding_mode_of(OBJECT), None),
        (None, "_saved_other", lambda: private.divisor_of(OBJECT), None),
        (None, "_saved_other", lambda: private.factor_of(OBJECT), None),
        (None, "_saved_reduction", lambda: private.is_mean_reduction(OBJECT), False),
        (None, "_non_persistent_buffers_set", lambda: private.unsaved_buffers_of(OBJECT), {}),
        (None, "_orig_mod", lambda: private.inside_compiled(WRAPPER), None),
        (None, "_fsdp_wrapped_module", lambda: private.inside_fsdp(WRAPPER), WRAPPER["module"]),
        (None, "_comm_hooks", lambda: private.communication_hooks(OBJECT), ()),
        (None, "_is_initial", lambda: private.is_initial_step(SimpleNamespace(_step_count=1)), True),
        (None, "_opt_called", lambda: private.has_stepped(OBJECT), False),
        (None, "_iterator", lambda: private.has_running_workers(OBJECT), False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_without_a_private_name_the_answer_is_neutral(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, ask: Callable[[], object], answer: object
) -> None:
    if owner is not None:
        monkeypatch.delattr(owner, name)
    assert ask() == answer


@pytest.mark.parametrize("name", ["FakeTensorMode", "FakeTensor"])
def test_without_fake_tensors_the_error_says_so(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delattr("torch._subclasses.fake_tensor." + name)
    with pytest.raises(RuntimeError, match="has no fake tensors"):
        private.fake_tensor_type() if name == "FakeTensor" else private.fake_tensor_mode(allow_non_fake_inputs=True)


def test_without_python_devices_the_error_names_a_version_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(backend_registration, "_setup_privateuseone_for_python_backend", raising=False)
    with pytest.raises(RuntimeError, match=r"2\.10 can"):
        private.register_python_device("gpu", [])


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (torch._C, "_len_torch_function_stack _get_function_stack_at"),
        (torch._C, "_pop_torch_function_stack _push_on_torch_function_stack"),
        (torch.ones(1), "_version"),
        (torch.ones(1, requires_grad=True).exp().grad_fn, "_sequence_nr"),
        (torch.ops.aten.add.Tensor, "_schema"),
        (nn.Module(), "_parameters _buffers _modules"),
        (_python_dispatch, "TorchDispatchMode"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_this_torch_has_the_names_without_a_fallback(owner: object, names: str) -> None:
    assert [name for name in names.split() if not hasattr(owner, name)] == []


@pytest.mark.parametrize(
    ("kinds", "instances", "others"),
    [
        (private.SENSITIVE_TO_MODE, [nn.Dropout2d(), nn.BatchNorm1d(1), nn.InstanceNorm2d(1), nn.RReLU()], [nn.ReLU()]),
        (private.CONVOLUTIONS, [nn.Conv1d(1, 1, 1), nn.ConvTranspose3d(1, 1, 1)], [nn.Linear(1, 1)]),
        (private.BATCH_NORMS, [nn.BatchNorm3d(1), nn.SyncBatchNorm(1)], [nn.InstanceNorm2d(1), nn.LayerNorm(1)]),
        (private.LOADER_ITERATOR, [iter(DataLoader([1]))], [iter([1]), DataLoader([1])]),
    ],
    ids=["SENSITIVE_TO_MODE", "CONVOLUTIONS", "BATCH_NORMS", "LOADER_ITERATOR"],
)
def test_private_base_classes_contain_what_they_are_used_for(
    kinds: Any, instances: list[Any], others: list[Any]
) -> None:
    assert all(isinstance(one, kinds) for one in instances)
    assert not any(isinstance(one, kinds) for one in others)


def test_names_that_are_used_as_text_exist() -> None:
    assert hasattr(clip_grad, private.CLIPS_EVERY_NORM)
    assert fake_tensor.log.name == private.FAKE_TENSOR_LOGGER
    assert all(hasattr(nn.Module(), name) for name in private.REGISTERED)


def test_a_sparse_tensor_is_read_with_and_without_the_private_names() -> None:
    class Public:
        """A sparse tensor of a torch without `_indices` and `_values`."""

        coalesce = SPARSE.coalesce

    for tensor in (SPARSE, Public()):
        indices, values = private.parts_of_sparse(tensor)
        assert indices.tolist() == [[0, 1], [0, 1]]
        assert values.tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile's own imports
def test_what_wrappers_and_divisions_hold_is_read() -> None:
    inner = nn.Linear(1, 1)
    assert private.inside_compiled(torch.compile(inner)) is inner
    assert private.dynamo_is_imported()
    assert private.is_initialised(inner)
    assert not private.is_initialised(nn.Module.__new__(nn.Module))
    x = torch.ones(1, requires_grad=True)
    assert private.rounding_mode_of(torch.div(x, 2, rounding_mode="floor").grad_fn) == "floor"
    assert private.rounding_mode_of((x / 2).grad_fn) is None
    assert [private.divisor_of(one.grad_fn) for one in (x / 2, x * 2, x / x)] == [2.0, None, None]
    assert [private.factor_of(one.grad_fn) for one in (x / 2, x * 2, x * x, x + 2)] == [0.5, 2.0, None, None]
    losses = [torch.nn.functional.mse_loss(x, torch.zeros(1), reduction=how) for how in ("mean", "sum", "none")]
    assert [private.is_mean_reduction(loss.grad_fn) for loss in losses] == [True, False, False]
    assert private.schema_of(torch.ops.aten.add_.Tensor).is_mutable


def test_fake_tensors_and_modes_that_are_put_aside() -> None:
    with private.fake_tensor_mode(allow_non_fake_inputs=True) as mode:
        assert isinstance(torch.ones(2), private.fake_tensor_type())
        with private.without_dispatch_modes():
            assert type(torch.ones(2)) is torch.Tensor
    assert mode is not None
    assert private.SET_GRAD_ENABLED is not None
