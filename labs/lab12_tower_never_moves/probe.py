"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.vla.dataset import batches, demonstrations
from labs.vla.rollout import rollout
from labs.vla.training import fit

BATCH_SIZE = 64
TRAINING_STEPS = 150


def patches_through_training(learner: Any, images: Tensor, last: Tensor, seed: int) -> dict[str, Any]:
    """The tower's patches and what reaches the projector, for each batch (N, B, 3, 64, 64) in training, `last` in eval.

    `patches` and `standardised` are (N, B, P, V), `patches_last` and `standardised_last` (B, P, V).
    """
    policy = learner.policy.build_policy(seed)
    with _Patches(policy) as seen, torch.no_grad():
        policy.train()
        for batch in images:
            policy.embed_images(batch)
        policy.eval()
        policy.embed_images(last)
    patches, standardised = torch.stack(seen.patches), torch.stack(seen.standardised)
    return {
        "patches": patches[:-1],
        "standardised": standardised[:-1],
        "patches_last": patches[-1],
        "standardised_last": standardised[-1],
    }


def standardised_by_itself(learner: Any, patches: Tensor) -> Tensor:
    """What reaches the projector when the tower of a fresh policy in training returns `patches`, (B, P, V)."""
    policy = learner.policy.build_policy(0)
    policy.train()
    outputs: list[Tensor] = []
    handles = (
        policy.vision.register_forward_hook(lambda _, __, out: _with_patches(out, patches)),
        policy.projector.register_forward_pre_hook(lambda _, inputs: outputs.append(inputs[0].detach().clone())),
    )
    with torch.no_grad():
        policy.embed_images(torch.zeros(len(patches), 3, 64, 64))
    for handle in handles:
        handle.remove()
    return outputs[0]


def gradients(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """After one backward in training mode: norms of every parameter's gradient (-1 if there is none), and the
    gradients of the projector's input and the tower's output, (B, P, V), None if there is none."""
    policy = learner.policy.build_policy(seed)
    policy.train()
    with _Patches(policy, keep_gradients=True) as seen:
        policy(**batch).loss.backward()
    [patches], [standardised] = seen.patches, seen.standardised
    return {
        "norms": {
            name: -1.0 if parameter.grad is None else float(parameter.grad.norm())
            for name, parameter in policy.named_parameters()
        },
        "reaches_projector": standardised.requires_grad,
        "at_projector": standardised.grad,
        "at_tower": patches.grad,
        "std": patches.detach().flatten(0, 1).std(dim=0),
    }


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def trainable(learner: Any) -> dict[str, bool]:
    """Which parameters of a fresh policy require a gradient."""
    return {name: parameter.requires_grad for name, parameter in learner.policy.build_policy(0).named_parameters()}


def trained_rollout(learner: Any, seed: int, episodes: int) -> dict[str, Any]:
    """Train from the base with a fresh tower: how far each part moved, relative to its norm, and the rollout."""
    policy, moved, losses = _train(learner, seed)
    result = rollout(policy, episodes=episodes, first_seed=500_000 + seed)
    return {
        "moved": moved,
        "final_loss": sum(losses[-20:]) / 20,
        "success": torch.from_numpy(result.success),
    }


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of demonstrations."""
    policy = learner.policy.build_policy(0)
    batch = next(batches(demonstrations(32, seed=12), 32, steps=1, seed=12))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    return {"model": policy, "batch": batch, "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """Trains the policy, lets it act and prints how far each part moved: what `lab run 12` shows."""
    print(f"Training the policy for the new camera, {TRAINING_STEPS} steps\n\n  step    loss")

    def report(step: int, loss: float) -> None:
        if step % 50 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)

    policy, moved, _ = _train(learner, 12, report)
    result = rollout(policy, episodes=50)
    print(f"\n50 episodes: {result.success_rate:.0%} success\n")
    print("How far training moved each part, relative to its size:")
    for part, distance in moved.items():
        print(f"  {part:<15} {distance:8.2%}" + ("   not one bit" if distance == 0 else ""))


def _train(learner: Any, seed: int, on_step: Any = None) -> tuple[Any, dict[str, float], list[float]]:
    policy = learner.policy.build_policy(seed)
    before = {name: value.detach().clone() for name, value in policy.named_parameters()}
    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, seed)
    losses = fit(policy, frames, steps=TRAINING_STEPS, seed=seed, batch_size=BATCH_SIZE, on_step=on_step)
    parts: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for name, value in policy.named_parameters():
        parts.setdefault(name.partition(".")[0], []).append((value.detach() - before[name], before[name]))
    moved = {
        part: float(torch.stack([d.square().sum() for d, _ in pairs]).sum().sqrt())
        / float(torch.stack([b.square().sum() for _, b in pairs]).sum().sqrt())
        for part, pairs in parts.items()
    }
    return policy, moved, losses


def _with_patches(output: Any, patches: Tensor) -> Any:
    output.last_hidden_state = patches
    return output


class _Patches:
    """Records the vision tower's output and the projector's input, call by call."""

    def __init__(self, policy: Any, keep_gradients: bool = False) -> None:
        self.policy, self.keep_gradients = policy, keep_gradients
        self.patches: list[Tensor] = []
        self.standardised: list[Tensor] = []

    def __enter__(self) -> _Patches:
        self._handles = (
            self.policy.vision.register_forward_hook(lambda _, __, o: self._keep(self.patches, o.last_hidden_state)),
            self.policy.projector.register_forward_pre_hook(lambda _, inputs: self._keep(self.standardised, inputs[0])),
        )
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _keep(self, where: list[Tensor], tensor: Tensor) -> None:
        if self.keep_gradients and tensor.requires_grad:
            tensor.retain_grad()
        where.append(tensor if self.keep_gradients else tensor.detach().clone())
