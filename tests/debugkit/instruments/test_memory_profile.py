"""memory_profile's bytes are those that can be computed by hand, and it leaves nothing behind."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint

import debugkit
from debugkit.finding import NotExamined
from debugkit.measurements.memory_profile.storage_counter import StorageCounter

EXTENDED_DEPENDS_ON = ("debugkit", "tests/debugkit")

B, D = 64, 256
F32 = 4


class Stack(nn.Module):
    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.Tanh()) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def loss(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).sum()


def test_parameters_gradients_and_adams_state_are_counted_to_the_byte() -> None:
    model = Stack()
    size = sum(p.nbytes for p in model.parameters())
    found = debugkit.memory_profile(model, torch.randn(B, D), loss, optimizer=torch.optim.Adam(model.parameters()))
    assert found.parameters == size == 4 * (D * D + D) * F32
    assert found.gradients == size
    assert found.optimizer_state == 2 * size + len(list(model.parameters())) * F32  # two moments and a step each
    assert found.batch == B * D * F32
    assert found.after_step == found.parameters + found.optimizer_state + found.batch
    assert found.fake_tensors


def test_activations_are_what_backward_needs_by_the_module_that_made_it() -> None:
    found = debugkit.memory_profile(Stack(), torch.randn(B, D), loss)
    by_module = {part.module: part.bytes for part in found.by_module}
    # tanh keeps its output, which is the next layer's input as well; a linear layer's own output is let go
    assert [by_module.get(f"layers.{i}.1") for i in range(4)] == [B * D * F32] * 4
    assert not any(name.endswith(".0") for name in by_module)
    assert found.activations == 4 * B * D * F32 + F32  # and the loss


def test_the_prediction_equals_a_real_step() -> None:
    model, x = Stack(), torch.randn(B, D)
    fake = debugkit.memory_profile(model, x, loss)

    def reading_a_value(m: nn.Module, x: Tensor) -> Tensor:
        return loss(m, x) if x.sum().item() < 1e9 else x.sum()

    real = debugkit.memory_profile(model, x, reading_a_value)
    assert fake.fake_tensors
    assert not real.fake_tensors
    assert (real.activations, real.gradients, real.peak.phase) == (fake.activations, fake.gradients, fake.peak.phase)
    assert abs(real.peak.bytes - fake.peak.bytes) <= 8  # the sum whose value was read


def test_checkpointing_keeps_less() -> None:
    class Wide(nn.Module):
        def __init__(self, recompute: bool) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(D, 8 * D), nn.Tanh(), nn.Linear(8 * D, D)) for _ in range(4)
            )
            self.recompute = recompute

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
            return x

    plain, less = (
        debugkit.memory_profile(Wide(recompute), torch.randn(16 * B, D), loss) for recompute in (False, True)
    )
    assert plain.activations >= 4 * 8 * 16 * B * D * F32
    assert less.activations <= plain.activations / 7
    assert less.peak.bytes < plain.peak.bytes


def test_twice_the_batch_keeps_twice_the_activations() -> None:
    once, twice = (debugkit.memory_profile(Stack(), torch.randn(n, D), loss) for n in (B, 2 * B))
    assert twice.activations - F32 == 2 * (once.activations - F32)
    assert twice.parameters == once.parameters


def test_shared_storage_is_counted_once() -> None:
    model = nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False))
    model[1].weight = model[0].weight
    assert debugkit.memory_profile(model, torch.randn(B, D), loss).parameters == D * D * F32
    with StorageCounter() as counter:
        x = torch.ones(10, 10)
        views = [x.T, x[2:], x.expand(5, 10, 10), x.detach()]
    assert counter.live == 400
    del x, views
    assert counter.live == 0


def test_the_peak_names_phase_operation_and_parts() -> None:
    model = Stack()
    found = debugkit.memory_profile(
        model, torch.randn(2, D), loss, optimizer=torch.optim.AdamW(model.parameters(), foreach=True)
    )
    assert (found.peak.phase, found.peak.operation) == ("optimizer", "_foreach_sqrt")
    assert sum(size for _, size in found.peak.parts) == found.peak.bytes
    assert found.peak.bytes == max(found.peak.bytes, found.after_forward, found.after_backward, found.after_step)
    wide = debugkit.memory_profile(model, torch.randn(4096, D), loss)
    assert wide.peak.phase in ("forward", "backward")
    assert "Peak" in str(wide)
    assert "activations kept for backward" in str(wide)


@pytest.mark.extended
def test_a_llama_is_profiled_without_its_memory(tiny_vla) -> None:
    model, batch = tiny_vla()
    found = debugkit.memory_profile(model, batch, optimizer=torch.optim.AdamW(model.parameters()))
    assert found.parameters == sum(p.nbytes for p in model.parameters())
    assert any(part.module.startswith("language.layers.0") for part in found.by_module)


@pytest.mark.parametrize("reads", [False, True])
def test_model_and_optimizer_are_bit_identical_afterwards(reads: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    optimizer = torch.optim.AdamW(model.parameters())
    loss(model, torch.randn(3, 4)).backward()
    optimizer.step()
    state, held = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    parameters, grads, rng = (
        list(model.parameters()),
        [p.grad.clone() for p in model.parameters()],
        torch.get_rng_state(),
    )

    def maybe_reading(m: nn.Module, x: Tensor) -> Tensor:
        return m(x).sum() * (x.sum().item() if reads else 1)

    assert debugkit.memory_profile(model, torch.randn(3, 4), maybe_reading, optimizer=optimizer).fake_tensors != reads
    torch.set_rng_state(rng)
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), grads, strict=True))
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    after = optimizer.state_dict()
    assert after["param_groups"] == held["param_groups"]
    for index, entries in held["state"].items():
        assert all(torch.equal(after["state"][index][name], value) for name, value in entries.items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())
    assert _get_current_dispatch_mode_stack() == []


def test_a_forward_that_raises_leaves_the_model_as_it_was() -> None:
    model = Stack()
    parameters = list(model.parameters())
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        debugkit.memory_profile(model, torch.randn(B, D + 1), loss)
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert _get_current_dispatch_mode_stack() == []


def test_no_scalar_loss_is_a_sentence() -> None:
    with pytest.raises(NotExamined, match="scalar tensor"):
        debugkit.memory_profile(Stack(), torch.randn(B, D), lambda m, x: m(x))


def test_a_step_that_keeps_no_activation_still_prints() -> None:
    found = debugkit.memory_profile(nn.Linear(4, 4), torch.ones(2, 4), lambda m, x: m.weight.sum().detach())
    assert found.gradients == 0
    assert str(found).startswith("Peak ")
