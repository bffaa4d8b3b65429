"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import OBSERVATION_KEYS
from labs.vla.rollout import rollout
from labs.vla.training import fit, overfit

BATCH_SIZE = 32
TRAINING_STEPS = 150


def states_and_chunk(learner: Any, batch: dict[str, Tensor], seed: int, layers: int) -> dict[str, Any]:
    """The state (B, H, D) that each decoder layer returned, the parameters after the layers, the chunk and the loss.

    `norm` and `linear` are weight and bias; `action` (B, H, 3) in metres and `loss` come from the same policy.
    """
    policy = learner.policy.build_policy(seed, layers).eval()
    decoder = policy.head.decoder
    states: list[Tensor] = []
    handles = [layer.register_forward_hook(lambda _, __, out: states.append(out.detach())) for layer in decoder.layers]
    with torch.no_grad():
        action = policy(**{name: batch[name] for name in OBSERVATION_KEYS}).action
        for handle in handles:
            handle.remove()
        loss = policy(**batch).loss
    return {
        "states": states,
        "norm": [decoder.norm.weight.detach(), decoder.norm.bias.detach()],
        "linear": [policy.head.to_action.weight.detach(), policy.head.to_action.bias.detach()],
        "action": action,
        "loss": loss,
    }


def gradients(learner: Any, batch: dict[str, Tensor], seed: int, layers: int) -> dict[str, float]:
    """Norm of every parameter's gradient after one backward; -1 if there is none."""
    policy = learner.policy.build_policy(seed, layers)
    policy(**batch).loss.backward()
    return {
        name: -1.0 if parameter.grad is None else float(parameter.grad.norm())
        for name, parameter in policy.named_parameters()
    }


def parameter_counts(learner: Any, layers: int) -> dict[str, int]:
    """The number of values in each parameter of the head."""
    head = learner.policy.build_policy(0, layers).head
    return {name: parameter.numel() for name, parameter in head.named_parameters()}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def overfitted(learner: Any, seed: int, steps: int) -> dict[str, Any]:
    """Train on one batch of demonstrations: the losses (steps,), and each layer's matrices before and after."""
    policy = learner.policy.build_policy(seed)
    layers = policy.head.decoder.layers
    before = [_matrices(layer) for layer in layers]
    batch = next(batches(demonstrations(BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))
    losses = overfit(policy, batch, steps, seed=seed)
    return {"losses": torch.tensor(losses), "before": before, "after": [_matrices(layer) for layer in layers]}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of demonstrations."""
    policy = learner.policy.build_policy(0)
    batch = next(batches(demonstrations(BATCH_SIZE, seed=13), BATCH_SIZE, steps=1, seed=13))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    return {"model": policy, "batch": batch, "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """Trains the policy, lets it act, and removes decoder layers: what `lab run 13` shows."""
    policy = learner.policy.build_policy(13)
    print(f"Training a policy with a decoder of 4 layers, {TRAINING_STEPS} steps\n\n  step    loss")

    def report(step: int, loss: float) -> None:
        if step % 50 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)

    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, 13)
    fit(policy, frames, steps=TRAINING_STEPS, seed=13, batch_size=BATCH_SIZE, on_step=report)
    result = rollout(policy, episodes=50)
    print(
        f"\n50 episodes: {result.success_rate:.0%} success, {result.never_closed_rate:.0%} never closed the gripper\n"
    )
    print("What does each layer contribute? Upper layers removed, 256 held-out frames:")
    print("  layers   actions that changed   by at most")
    batch = next(batches(demonstrations(256, seed=4), 256, steps=1, seed=4))
    whole, decoder = policy.predict(batch), policy.head.decoder
    every = list(decoder.layers)
    for kept in range(len(every), 0, -1):
        decoder.layers = nn.ModuleList(every[:kept])
        shift = (policy.predict(batch) - whole)[..., :2].abs()
        changed = float((shift.amax(dim=-1) > 0).double().mean())
        print(f"  {kept:>6}   {changed:>20.0%}   {1000 * float(shift.max()):>7.1f} mm")
    decoder.layers = nn.ModuleList(every)


def _matrices(layer: nn.Module) -> Tensor:
    """All matrices of a layer, flattened into one vector."""
    return torch.cat([weight.detach().flatten() for weight in layer.parameters() if weight.ndim > 1])
