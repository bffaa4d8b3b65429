"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.dataset import batches, demonstrations
from labs.vla.rollout import rollout
from labs.vla.training import fit

BATCH_SIZE = 64
TRAINING_STEPS = 150


def standardised(
    learner: Any, steps: list[dict[str, Any]], before: dict[str, Tensor] | None = None
) -> list[dict[str, Any]]:
    """What a policy makes of the patches (B, P, V) of each step, and its statistics after it.

    A step has `patches`, `training`, and `upstream`, the gradient at the projector's input, or None for a step under
    no_grad; `gradient` is then the one at the patches. `before` are statistics that a checkpoint sets first.
    """
    policy = learner.policy.build_policy(0)
    if before is not None:
        policy.standardise.load_state_dict(before, strict=False)
    tower = policy.vision = _Tower()
    policy.projector = nn.Identity()
    found = []
    for step in steps:
        policy.train(step["training"])
        tower.patches = step["patches"].clone().requires_grad_(step["upstream"] is not None)
        with torch.set_grad_enabled(step["upstream"] is not None):
            given = policy.embed_images(torch.zeros(len(tower.patches), 3, 64, 64))
        if given.requires_grad and step["upstream"] is not None:
            given.backward(step["upstream"])
        own = {name: value.detach().clone() for name, value in policy.standardise.state_dict().items()}
        found.append({"given": given.detach().clone(), "gradient": tower.patches.grad, "statistics": own})
    return found


def computed(learner: Any, parameters: dict[str, Tensor], batch: dict[str, Tensor], training: bool) -> dict[str, Any]:
    """The loss, its gradients, and the chunk in evaluation mode, of a policy with these parameters and buffers."""
    policy = learner.policy.build_policy(0)
    policy.load_state_dict(parameters, strict=False)
    loss = policy.train(training)(**batch).loss
    loss.backward()
    gradients = {name: value.grad for name, value in policy.named_parameters() if value.grad is not None}
    return {"loss": loss, "gradients": gradients, "chunk": policy.eval().predict(batch)}


def built(learner: Any, seed: int) -> dict[str, Tensor]:
    """Every parameter and buffer of a fresh policy."""
    return {name: value.detach().clone() for name, value in learner.policy.build_policy(seed).state_dict().items()}


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


class _Tower(nn.Module):
    """Stands in for the vision tower: gives the same patches for any image."""

    patches: Tensor

    def forward(self, pixel_values: Tensor) -> Any:
        return SimpleNamespace(last_hidden_state=self.patches[: len(pixel_values)])


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
