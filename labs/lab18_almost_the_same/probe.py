"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from debugkit.measurements.memory_profile.storage_counter import StorageCounter
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy
from labs.vla.training import fit

BATCH_SIZE = 32


def gradients(learner: Any, gate: Tensor, up: Tensor, incoming: Tensor, layout: str = "contiguous") -> dict[str, Any]:
    """Output and gradients of the gated activation, and what its inputs and the incoming buffer hold afterwards.

    `layout` is the incoming gradient's layout in memory: contiguous, transposed, sliced, or expanded from its first
    column (the columns that the caller passes are then all equal). `raised` is the error that backward raised.
    """
    leaves = [x.clone().requires_grad_() for x in (gate, up)]
    output = learner.policy.gated_activation(*leaves)
    seen = {"output": output.detach().clone(), "custom": isinstance(output.grad_fn, BackwardCFunction)}
    buffer = _laid_out(incoming, layout)
    try:
        for_gate, for_up = torch.autograd.grad(output, leaves, buffer)
    except RuntimeError as error:
        return {**seen, "raised": str(error)}
    inputs = [x.detach() for x in leaves]
    return {**seen, "raised": None, "gate": for_gate, "up": for_up, "incoming": buffer, "inputs": inputs}


def gradient_of_one(learner: Any, gate: Tensor, up: Tensor, incoming: Tensor) -> dict[str, Tensor]:
    """The gradient of each input while the other is frozen."""
    found = {}
    for name in ("gate", "up"):
        inputs = {"gate": gate.clone(), "up": up.clone()}
        leaf = inputs[name].requires_grad_()
        (found[name],) = torch.autograd.grad(learner.policy.gated_activation(**inputs), leaf, incoming.clone())
    return found


def gradients_of_a_residual(
    learner: Any, gate: Tensor, up: Tensor, skip: Tensor, incoming: Tensor
) -> dict[str, Tensor]:
    """Gradients if the output is added to `skip`, as in every transformer block: both branches get one buffer."""
    gate, up, skip = (x.clone().requires_grad_() for x in (gate, up, skip))
    output = skip + learner.policy.gated_activation(gate, up)
    for_gate, for_up, for_skip = torch.autograd.grad(output, (gate, up, skip), incoming.clone())
    return {"gate": for_gate, "up": for_up, "skip": for_skip}


def gradients_of_two_uses(learner: Any, gate: Tensor, up: Tensor, incoming: Tensor) -> dict[str, Tensor]:
    """Gradients if both forwards, and one in evaluation, run before either backward; one row (2, ...) for each use."""
    leaves = [(g.clone().requires_grad_(), u.clone().requires_grad_()) for g, u in zip(gate, up, strict=True)]
    outputs = [learner.policy.gated_activation(g, u) for g, u in leaves]
    with torch.no_grad():
        learner.policy.gated_activation(gate[0] + 1.0, up[0] + 1.0)
    found = torch.autograd.grad(outputs, [leaf for pair in leaves for leaf in pair], list(incoming.clone()))
    return {"gate": torch.stack(found[0::2]), "up": torch.stack(found[1::2])}


def exchanged(learner: Any, seed: int) -> dict[str, Any]:
    """Whether this policy and the stock one load each other's state, and whether the MLPs hold the stock layers."""
    ours, stock = learner.policy.build_policy(seed), Policy.from_base(seed=seed)
    state = {name: value.clone() for name, value in stock.state_dict().items()}
    same = {name for name, value in ours.state_dict().items() if name in state and torch.equal(value, state[name])}
    return {"own": sorted(ours.state_dict()), "same": sorted(same)}


def kept_for_backward(learner: Any, frames: int) -> dict[str, float]:
    """How many tensors of the gate's size stay alive after a forward: in the activation, and in one whole MLP."""
    policy = learner.policy.build_policy(0)
    layers = [_kept(layer.mlp, learner.policy.gated_activation, frames) for layer in policy.language_model.layers]
    return {name: max(one[name] for one in layers) for name in layers[0]}


def parameters(learner: Any) -> dict[str, list[int]]:
    """Names and shapes of the policy's trainable parameters."""
    policy = learner.policy.build_policy(0)
    return {name: list(p.shape) for name, p in policy.named_parameters() if p.requires_grad}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def policy_gradients(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Tensor | None]:
    """The gradient of each parameter of a fresh policy in training mode."""
    policy = learner.policy.build_policy(seed).train()
    policy(**batch).loss.backward()
    return {name: value.grad for name, value in policy.named_parameters()}


def loss_curve(learner: Any, seed: int, steps: int) -> Tensor:
    """Losses of a short training from one seed."""
    return _losses(learner.policy.build_policy(seed), seed, steps)


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of demonstrations."""
    policy = learner.policy.build_policy(0)
    batch = next(batches(demonstrations(16, seed=18), 16, steps=1, seed=18))
    return {"model": policy, "batch": batch, "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3)}


def symptom(learner: Any) -> None:
    """Trains both policies side by side: what `lab run 18` shows."""
    stock = Policy.from_base(seed=18)
    saving, usual = (one.language_model.layers[0].mlp for one in (learner.policy.build_policy(18), stock))
    kept = _kept(saving, learner.policy.gated_activation, 32)["mlp"]
    usual = _kept(usual, lambda gate, up: torch.nn.functional.silu(gate) * up, 32)["mlp"]
    batch = next(batches(demonstrations(32, seed=18), 32, steps=1, seed=18))
    same = torch.equal(learner.policy.build_policy(18).eval().predict(batch), stock.eval().predict(batch))
    print("Every MLP of the language model replaced by the memory-saving one\n")
    print(f"  kept for backward by one MLP   {kept:.0f} tensors instead of {usual:.0f}")
    print(f"  predicted actions              {'bit for bit the same' if same else 'not the same'}\n")
    print("Training both, 40 steps from the same seed on the same batches\n")
    print("  step      stock   memory-saving   difference")
    policies = {"memory_saving": learner.policy.build_policy(18), "stock": Policy.from_base(seed=18)}
    curves = {name: _losses(policy, 18, 40) for name, policy in policies.items()}
    for step in (0, 1, 2, 5, 10, 20, 30, 39):
        ours, theirs = (float(curves[name][step]) for name in ("memory_saving", "stock"))
        print(f"  {step:4d}   {theirs:8.4f}   {ours:13.4f}   {ours - theirs:+10.1e}")


def _losses(policy: Any, seed: int, steps: int) -> Tensor:
    frames = demonstrations(steps * BATCH_SIZE, seed)
    return torch.tensor(fit(policy, frames, steps=steps, seed=seed, batch_size=BATCH_SIZE), dtype=torch.float64)


def _kept(mlp: Any, activation: Any, frames: int) -> dict[str, float]:
    """Live storage after a forward, without the output and earlier storage, in tensors of the gate's size."""
    hidden = torch.linspace(-1, 1, frames * 25 * 64).view(frames, 25, 64)
    with torch.no_grad():
        size = mlp.gate_proj(hidden).nbytes
    with _Counted(mlp, hidden) as counted:
        gate, up = mlp.gate_proj(hidden), mlp.up_proj(hidden)
        output = activation(gate, up)
        del gate, up
        alone = counted() - output.nbytes
    with _Counted(mlp, hidden) as counted:
        output = mlp(hidden)
        whole = counted() - output.nbytes
    return {"activation": alone / size, "mlp": whole / size}


class _Counted:
    """Counts the bytes of live storage that was allocated since it was created."""

    def __init__(self, mlp: Any, hidden: Tensor) -> None:
        self._counter = StorageCounter()
        self._counter.hold([*mlp.parameters(), hidden], "parameters")
        self._before = self._counter.live

    def __enter__(self) -> _Counted:
        self._counter.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._counter.__exit__(*error)

    def __call__(self) -> int:
        return self._counter.live - self._before


def _laid_out(incoming: Tensor, layout: str) -> Tensor:
    if layout == "transposed":
        return incoming.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "sliced":
        wide = incoming.new_full((*incoming.shape[:-1], 2 * incoming.shape[-1]), 7.0)
        wide[..., ::2] = incoming
        return wide[..., ::2]
    if layout == "expanded":
        return incoming[..., :1].clone().expand_as(incoming)
    return incoming.clone()


def precise(learner: Any, gate: Tensor, up: Tensor, incoming: Tensor, autocast: bool) -> dict[str, Any]:
    """Output and gradients of the gated activation in one dtype, and how many tensors of the gate's size it keeps.

    With `autocast` forward runs under the autocast of the CPU to bfloat16, and backward after it.
    """
    leaves = [x.clone().requires_grad_() for x in (gate, up)]
    counter = StorageCounter()
    counter.hold([x.detach() for x in leaves], "parameters")
    before = counter.live
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast), counter:
        inputs = [x * 1 for x in leaves]
        output = learner.policy.gated_activation(*inputs)
        del inputs
        kept = (counter.live - before - output.nbytes) / gate.nbytes
    for_gate, for_up = torch.autograd.grad(output, leaves, incoming.to(output.dtype))
    return {"output": output.detach().clone(), "kept": kept, "gate": for_gate, "up": for_up}


def mlps(learner: Any, hidden: Tensor, seed: int, autocast: bool) -> dict[str, list[Tensor]]:
    """The outputs of the MLP of each layer for `hidden` (B, T, D), of this policy and of the stock one."""
    policies = {"ours": learner.policy.build_policy(seed), "stock": Policy.from_base(seed=seed)}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        return {name: [layer.mlp(hidden) for layer in one.language_model.layers] for name, one in policies.items()}
