"""simulate_device names every tensor left on the CPU, at the line that made it, and never harms its caller."""

from __future__ import annotations

import ctypes
import gc
import linecache
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

import debugkit
from child_processes import HANG_S
from debugkit.finding import NotExamined, SourceLine
from debugkit.measurements.second_device.disposable_child import ChildFailed, in_child
from debugkit.measurements.second_device.measure import _on_a_real_device
from debugkit.setup import TrainingSetup
from torch_versions import needs_python_device

EXTENDED_DEPENDS_ON = ("debugkit", "tests/debugkit")

pytestmark = needs_python_device

GLOBAL_TABLE = torch.ones(4)


def raising() -> Iterator[None]:
    raise ValueError("no")
    yield


class Statistics:
    def __init__(self) -> None:
        self.mean = torch.zeros(4)


class Model(nn.Module):
    def __init__(self, run: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(4, 4), nn.Sequential(nn.Dropout(0.1), nn.Linear(4, 4))
        self.register_buffer("scale", torch.ones(4))
        self.table = torch.ones(4)
        self.tables = {"deep": [torch.ones(4)]}
        self.statistics = Statistics()
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x).pow(2).mean()


def loss(model: nn.Module, x: Tensor) -> Tensor:
    return model(x)


def seen(run: Callable[[Any, Tensor], Tensor]) -> Any:
    return debugkit.simulate_device(Model(run), torch.randn(3, 4), loss)


def text(line: SourceLine | None) -> str:
    assert line is not None
    return linecache.getline(line.file, line.line).strip()


def test_the_line_that_created_the_tensor_is_named_not_only_the_one_that_failed() -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        keep = torch.ones(4)  # creates
        keep = keep.view(1, 4) * 2
        return m.head(m.a(x) * keep)  # uses

    (stray,) = seen(run).strays
    assert text(stray.created).endswith("# creates")
    assert text(stray.used).endswith("# uses")
    assert (stray.operation, stray.phase, stray.shape) == ("mul", "forward", (1, 4))


@pytest.mark.parametrize(
    ("run", "attribute"),
    [
        (lambda m, x: m.a(x) + m.table, "table"),
        (lambda m, x: m.a(x) + m.tables["deep"][0], "tables.deep.0"),
        (lambda m, x: m.a(x - m.statistics.mean), "statistics.mean"),
    ],
)
def test_a_plain_tensor_attribute_is_named_by_its_path(run: Any, attribute: str) -> None:
    found = seen(run)
    assert [stray.attribute for stray in found.strays] == [attribute]
    assert "neither parameter nor buffer" in str(found)


def test_a_global_is_named_as_a_variable() -> None:
    assert [stray.variable for stray in seen(lambda m, x: m.a(x) * GLOBAL_TABLE).strays] == ["GLOBAL_TABLE"]


def test_every_stray_is_named_not_only_the_first() -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        first = m.a(x) * torch.rand(3, 1)
        second = first + first.detach().cpu()
        return second + m.table

    found = seen(run)
    assert [stray.attribute for stray in found.strays] == [None, None, "table"]
    assert found.forward
    assert found.backward


def test_a_stray_made_in_backward_is_found_in_backward() -> None:
    class Masked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * torch.ones(4)  # only here

    (stray,) = seen(lambda m, x: Masked.apply(m.a(x))).strays
    assert stray.phase == "backward"
    assert text(stray.created).endswith("# only here")


def test_numpy_of_a_device_tensor_is_named() -> None:
    found = seen(lambda m, x: m.a(x) * float(x.numpy().sum()))
    assert [stray.operation for stray in found.strays] == ["numpy"]
    assert "call .cpu() first" in str(found)


def with_values(m: Any, x: Tensor) -> Tensor:
    if (x > 100).any() or x.sum().item() > 1e6 or int(x.argmax()) < 0:
        raise AssertionError("never")
    rows = x[x[:, 0] > -1e9]
    return m.a(rows)[torch.tensor([0, 1, 0])] * rows.new_ones(4) * m.scale * 2 ** len(x.tolist())


def with_checkpointing(m: Any, x: Tensor) -> Tensor:
    return checkpoint(m.head, checkpoint(m.a, x, use_reentrant=True), use_reentrant=False)


def with_autocast(m: Any, x: Tensor) -> Tensor:
    with torch.autocast(device_type=x.device.type, dtype=torch.bfloat16):
        return m.head(m.a(x)).float()


def with_devices_asked_for(m: Any, x: Tensor) -> Tensor:
    noise = torch.randn(3, 4, device=x.device) + torch.randn_like(x)
    return m.to(x.device).head(m.a(x) + noise + torch.arange(4, device=m.a.weight.device))


def with_packed_rows(m: Any, x: Tensor) -> Tensor:
    """Assigned through masks, whose backward selects by the same mask."""
    embeddings, kept = m.a(x)[None], (x[:, 0] > -1e9)[None]
    rows = m.head(embeddings[kept])
    result = torch.zeros_like(embeddings)
    result[kept] = rows
    result[:, kept[0]] += rows
    result.index_put_(indices=(kept,), values=rows, accumulate=True)
    return torch.index_put(result, (kept[:, torch.arange(3)],), rows) * embeddings


@pytest.mark.parametrize(
    "run", [with_values, with_checkpointing, with_autocast, with_devices_asked_for, with_packed_rows]
)
def test_code_that_asks_for_its_device_is_silent(run: Any) -> None:
    found = seen(run)
    assert found.ok, str(found)
    assert found.forward
    assert found.backward


@pytest.mark.parametrize("threads", [1, 2])
def test_it_answers_after_parallel_work_of_the_caller(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        big = torch.randn(700, 700, requires_grad=True)
        (big @ big).sum().backward()
        assert seen(lambda m, x: m.head(m.a(x))).ok
        assert [s.attribute for s in seen(lambda m, x: m.a(x) + m.table).strays] == ["table"]
    finally:
        torch.set_num_threads(before)


class Packed(nn.Module):
    """A transformers Llama that computes several sequences in one row, without their padding."""

    def __init__(self, left_behind: bool) -> None:
        from transformers import LlamaConfig, LlamaModel

        super().__init__()
        config = LlamaConfig(
            hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=8
        )
        self.llama = LlamaModel(config)
        self.left_behind = left_behind

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        embeddings = self.llama.embed_tokens(tokens)
        kept = mask.bool()
        row = embeddings[kept][None]
        sequence = torch.arange(len(kept)) if self.left_behind else torch.arange(len(kept), device=kept.device)
        sequence = sequence[:, None].expand_as(kept)[kept]
        visible = (sequence[:, None] == sequence).tril()[None, None]
        result = torch.zeros_like(embeddings)
        result[kept] = self.llama(inputs_embeds=row, attention_mask=visible).last_hidden_state[0]
        return result.pow(2).mean()


@pytest.mark.parametrize(("left_behind", "strays"), [(False, []), (True, ["__getitem__"])])
def test_tokens_of_a_llama_in_one_row(left_behind: bool, strays: list[str]) -> None:
    batch = torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    found = debugkit.simulate_device(Packed(left_behind), batch, lambda model, batch: model(*batch))
    assert found.not_examined is None, str(found)
    assert [stray.operation for stray in found.strays] == strays
    assert found.backward


@pytest.mark.parametrize(
    ("run", "source", "created"),
    [
        (lambda m, x, rows, kept: assigned(torch.zeros(3, 4), kept, rows), None, True),
        (lambda m, x, rows, kept: assigned(torch.zeros_like(rows), kept, torch.ones(3, 4)), None, True),
        (lambda m, x, rows, kept: rows * m.table[x.argsort()], "table", False),
        (lambda m, x, rows, kept: rows * m.tables["deep"][0].expand(3, 4)[kept], "tables.deep.0", False),
    ],
)
def test_a_stray_that_is_indexed_or_assigned_is_found(run: Any, source: str | None, created: bool) -> None:
    found = seen(lambda m, x: run(m, x, m.a(x), x[:, 0] > -1e9))
    assert found.not_examined is None, str(found)
    assert [(stray.attribute, stray.created is not None) for stray in found.strays] == [(source, created)]


def assigned(target: Tensor, mask: Any, value: Tensor) -> Tensor:
    target[mask] = value
    return target


def test_a_backward_that_raises_in_the_engine_is_a_sentence() -> None:
    """The device's guard asks Python for its type while the exception is on its way."""

    def with_a_list(m: Any, x: Tensor) -> Tensor:
        return assigned(torch.zeros_like(x), [True, False, True], m.a(x)[:2])

    def with_a_hook(m: Any, x: Tensor) -> Tensor:
        hidden = m.a(x)
        hidden.register_hook(lambda gradient: gradient * torch.ones(4))
        return hidden + m.table

    found = seen(with_a_list)
    assert found.forward
    assert not found.backward
    assert "aten.nonzero" in str(found.not_examined)
    found = seen(with_a_hook)
    assert "same device" in str(found.not_examined)
    assert [stray.attribute for stray in found.strays] == ["table"]


@pytest.mark.extended
def test_a_vla_of_real_classes_runs_on_it(tiny_vla) -> None:
    found = debugkit.simulate_device(*tiny_vla())
    assert found.ok, str(found)


def test_a_cpu_mask_in_a_vla_of_real_classes_is_found(tiny_vla) -> None:
    found = debugkit.simulate_device(*tiny_vla(lambda v: v * torch.ones(v.shape[1], 1)))
    assert [stray.operation for stray in found.strays] == ["mul"]


@pytest.mark.extended
def test_pi0s_own_forward_is_examined(tiny_pi0) -> None:
    found = debugkit.simulate_device(*tiny_pi0)
    assert found.not_examined is None, str(found)


def test_the_model_is_where_and_what_it_was() -> None:
    model = Model(lambda m, x: m.head(m.a(x)) + m.table)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    rng, table = torch.get_rng_state(), model.table
    debugkit.simulate_device(model, torch.randn(3, 4, generator=torch.Generator()), loss)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert model.table is table
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(p.device.type == "cpu" and p.grad is None for p in model.parameters())
    assert nn.Module.to(model, "cpu") is model
    assert not hasattr(torch, "gpu")


def test_a_step_that_fails_on_the_cpu_is_a_sentence() -> None:
    with pytest.raises(NotExamined, match="fails on the CPU already, with RuntimeError: mat1 and mat2"):
        debugkit.simulate_device(Model(lambda m, x: m.a(x.T)), torch.randn(3, 4), loss)


def test_a_child_that_aborts_hangs_or_raises_is_a_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    before = children()
    with pytest.raises(ChildFailed, match="was ended by SIGABRT"):
        in_child(os.abort, seconds=HANG_S)
    with pytest.raises(ChildFailed, match="was ended by SIGSEGV"):
        in_child(lambda: ctypes.string_at(0), seconds=HANG_S)
    with pytest.raises(ChildFailed, match=r"did not end within 0.2 s"):
        in_child(lambda: time.sleep(60), seconds=0.2)
    with pytest.raises(ChildFailed, match="ValueError: no"):
        in_child(lambda: next(raising()), seconds=HANG_S)
    assert in_child(lambda: {"a": [1, None]}, seconds=HANG_S) == {"a": [1, None]}
    assert capfd.readouterr() == ("", "")
    assert children() <= before  # none left, not even unreaped; what an earlier test of this process keeps is not ours


def children() -> set[int]:
    """The processes, zombies included, whose parent is this one."""
    return {child.pid for child in psutil.Process().children()}


def test_a_child_does_not_free_what_the_caller_has_left_to_the_garbage_collector() -> None:
    """A process group has threads. They are not in the child, which would wait for them until its time is up."""
    gc.collect()
    gc.disable()
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        cycle: list[Any] = [dist.distributed_c10d._get_default_group()]
        cycle.append(cycle)
        dist.destroy_process_group()
        del cycle
        assert in_child(lambda: gc.collect() >= 0, seconds=HANG_S)
    finally:
        gc.enable()
        gc.collect()


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        raise RuntimeError("planted in backward")


def test_a_device_that_is_there_is_used_and_left_clean() -> None:
    """The meta device stands in for a GPU: it refuses to add a CPU tensor, too."""
    model = Model(lambda m, x: Fails.apply(m.a(x) + m.table + torch.ones(4)))
    found = _on_a_real_device(TrainingSetup.of(model, torch.randn(3, 4), loss), torch.device("meta"))
    assert [(stray.operation, stray.attribute) for stray in found.strays] == [("add", "table"), ("add", None)]
    assert text(found.strays[1].created).startswith("model = Model(")
    assert found.forward
    assert not found.backward
    assert "planted in backward" in str(found)
    assert _get_current_function_mode_stack() == []
    assert not any(module._forward_hooks for module in model.modules())
    assert model.a.weight.device.type == "cpu"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: the real second device is not tried")
def test_a_real_gpu_finds_the_same_strays() -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        return m.a(x) * torch.ones(4) + m.table

    found = seen(run)
    assert found.device.startswith("cuda")
    assert [(stray.operation, stray.attribute) for stray in found.strays] == [("mul", None), ("add", "table")]
