"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

import io
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

import debugkit
from labs.vla.dataset import batches, demonstrations
from labs.vla.rollout import rollout
from labs.vla.training import fit

BATCH_SIZE, STEPS, LEARNING_RATE = 32, 120, 2e-3
ANOTHER_SEED = 7_000
"""Added to a policy's seed to build the one that a checkpoint is loaded into, as on another machine."""


def second_device(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """A step on the second device: which tensors were left on the CPU, and how far the step got.

    A grade does not use a GPU, so the device is pretended: PyTorch's PrivateUse1, in a child process of this one.
    """
    return asdict(debugkit.simulate_device(learner.policy.build_policy(seed), batch))


def placed(learner: Any, patches: Tensor, arm: Tensor, seed: int, quarter_turns: int) -> Tensor:
    """The output of a fresh PlaceCode for patches (B, P, D) and arms (B, 2)."""
    torch.manual_seed(seed)
    side = int(patches.shape[1] ** 0.5)
    with torch.no_grad():
        return learner.policy.PlaceCode(side, patches.shape[2], quarter_turns)(patches, arm)


def restored(learner: Any, patches: Tensor, arm: Tensor, seed: int) -> dict[str, Any]:
    """The output of `places` in the saved policy, and in one built from another seed that loaded the checkpoint."""
    policy = learner.policy.build_policy(seed)
    other = _restore(policy, learner.policy.build_policy(seed + ANOTHER_SEED))
    with torch.no_grad():
        return {"saved": policy.places(patches, arm), "restored": other.places(patches, arm)}


def held(learner: Any) -> dict[str, list[str]]:
    """The tensors that the place codes hold as plain attributes, and those they put into a checkpoint."""
    places = learner.policy.build_policy(0).places
    plain = [name for name, value in vars(places).items() if isinstance(value, Tensor)]
    return {"plain": plain, "saved": list(places.state_dict())}


def after_a_step(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """The codes without their gain, before and after one large optimizer step of every parameter."""
    policy = learner.policy.build_policy(seed)
    before = _codes(policy)
    optimizer = torch.optim.SGD([value for value in policy.parameters() if value.requires_grad], lr=1.0)
    policy(**batch).loss.backward()
    optimizer.step()
    return {"before": before, "after": _codes(policy)}


def trainable(learner: Any) -> dict[str, list[int]]:
    """Shape of every trainable parameter of the place codes."""
    places = learner.policy.build_policy(0).places
    return {name: list(value.shape) for name, value in places.named_parameters() if value.requires_grad}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def restored_after_training(learner: Any, seed: int) -> dict[str, float]:
    """Train, save, load into another policy: the loss on held-out frames, before saving and after loading."""
    policy, other, _ = _train_and_restore(learner, seed)
    held_out = _batch(256, seed + 1)
    with torch.no_grad():
        return {"saved": float(policy(**held_out).loss), "restored": float(other(**held_out).loss)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of demonstrations."""
    policy = learner.policy.build_policy(0)
    return {"model": policy, "batch": _batch(8, 4), "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3)}


def symptom(learner: Any) -> None:
    """One step on two devices, and a checkpoint that is loaded elsewhere: what `lab run 04` shows."""
    policy, batch = learner.policy.build_policy(4), _batch(8, 4)
    print(f"One step on the CPU\n  loss {policy(**batch).loss:.3f}\n")
    seen = debugkit.simulate_device(policy, batch)
    print(f"The same step on a second device ({seen.device})")
    if seen.strays:
        stray = seen.strays[0]
        print(f"  RuntimeError: {stray.message}\n    raised in the {stray.phase}, at {stray.operation}\n")
    else:
        print(f"  {seen.not_examined or 'forward and backward run'}\n")
    policy, other, losses = _train_and_restore(learner, 4)
    held_out = _batch(256, 5)
    print(f"{STEPS} training steps on the CPU, loss {losses[0]:.3f} to {sum(losses[-10:]) / 10:.3f}; saved, and loaded")
    print("into a policy that was built with another seed: all keys match.\n")
    print("                 loss on new frames   success in 50 episodes")
    for name, one in (("before saving", policy), ("after loading", other)):
        with torch.no_grad():
            loss = float(one(**held_out).loss)
        print(f"  {name}        {loss:.3f}                {rollout(one, episodes=50).success_rate:4.0%}")


def _train_and_restore(learner: Any, seed: int) -> tuple[Any, Any, list[float]]:
    policy = learner.policy.build_policy(seed)
    frames = demonstrations(STEPS * BATCH_SIZE, seed)
    losses = fit(policy, frames, steps=STEPS, seed=seed, batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE)
    return policy, _restore(policy, learner.policy.build_policy(seed + ANOTHER_SEED)).eval(), losses


def _restore(policy: Any, other: Any) -> Any:
    """Save one policy's checkpoint and load it into the other, with torch.save and torch.load."""
    file = io.BytesIO()
    torch.save(policy.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    return other


def _codes(policy: Any) -> Tensor:
    """The codes (P, D): the output of `places` for zeros, divided by the gain, with the arm far away."""
    side = policy.config.image_size // policy.config.patch_size
    with torch.no_grad():
        nothing, far = torch.zeros(1, side * side, policy.config.width), torch.full((1, 2), 1e3)
        return policy.places(nothing, far)[0] / policy.places.gain


def _batch(size: int, seed: int) -> dict[str, Tensor]:
    return next(batches(demonstrations(size, seed), size, steps=1, seed=seed))
