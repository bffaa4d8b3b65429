"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

import io
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

import debugkit
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import OBSERVATION_KEYS, Policy, PolicyConfig
from labs.vla.rollout import rollout
from labs.vla.training import fit

BATCH_SIZE, STEPS, LEARNING_RATE = 32, 120, 2e-3
ANOTHER_SEED = 7_000
"""Added to a policy's seed to build the one that a checkpoint is loaded into, as on another machine."""
KEPT = ("gain", "mark", "order")
"""What the starter's place codes have in their state, saved or not: everything but the codes."""


def second_device(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """A step on the second device: which tensors were left on the CPU, and how far the step got.

    The policy has run once on the CPU before it moves. A grade does not use a GPU, so the device is pretended:
    PyTorch's PrivateUse1, in a child process of this one.
    """
    policy = learner.policy.build_policy(seed)
    with torch.no_grad():
        policy(**batch)
    return asdict(debugkit.simulate_device(policy, batch))


def placed(
    learner: Any,
    patches: Tensor,
    arm: Tensor,
    gain: Tensor,
    mark: Tensor,
    seed: int,
    quarter_turns: int,
    ran: bool = False,
) -> Tensor:
    """The output of a fresh PlaceCode for patches (B, P, D) and arms (B, 2), with the given gain and mark (D,).

    `ran`: it is in evaluation mode, and has coded the patches once before it gets that gain and mark.
    """
    places = _place_code(learner, patches, seed, quarter_turns).train(not ran)
    with torch.no_grad():
        if ran:
            places(patches, arm)
        places.gain.copy_(gain)
        places.mark.copy_(mark)
        return places(patches, arm)


def at_start(learner: Any) -> dict[str, Tensor]:
    """Gain and mark of a fresh policy's place codes."""
    places = learner.policy.build_policy(0).places
    return {"gain": places.gain, "mark": places.mark}


def restored(
    learner: Any, patches: Tensor, arm: Tensor, gain: Tensor, seed: int, ran: bool, training: bool = True
) -> dict[str, Any]:
    """The output of `places` in the saved policy, and in one built from another seed that loaded the checkpoint.

    Gain and mark of the saved policy are `gain`. `ran`: the other policy codes the patches once before it loads.
    `training`: both policies are in training mode, otherwise in evaluation mode.
    """
    policy, other = (learner.policy.build_policy(number).train(training) for number in (seed, seed + ANOTHER_SEED))
    with torch.no_grad():
        policy.places.gain.copy_(gain)
        policy.places.mark.copy_(gain)
        if ran:
            other.places(patches, arm)
        _restore(policy, other)
        return {"saved": policy.places(patches, arm), "restored": other.places(patches, arm)}


def remounted(learner: Any, patches: Tensor, arm: Tensor, seed: int, turns: list[int]) -> dict[str, Tensor]:
    """The outputs of a PlaceCode for a camera rotated `turns[1]` times, and of another one with the same codes.

    The first has loaded the checkpoint of the second, whose camera is rotated `turns[0]` times.
    """
    saved, loaded = (_place_code(learner, patches, seed + one, one) for one in turns)
    _restore(saved, loaded)
    with torch.no_grad():
        return {"saved": saved(patches, arm), "loaded": loaded(patches, arm)}


def held(learner: Any) -> dict[str, list[str]]:
    """The place codes' tensors by name: plain attributes, buffers in no checkpoint, and what a checkpoint holds."""
    places = learner.policy.build_policy(0).places
    saved = list(places.state_dict())
    return {
        "plain": [name for name, value in vars(places).items() if isinstance(value, Tensor)],
        "not saved": [
            name for name, value in places.named_buffers() if name not in saved and value.is_floating_point()
        ],
        "saved": saved,
    }


def after_a_step(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """The codes without their gain, before and after one large optimizer step, and the parameters that it moved."""
    policy = learner.policy.build_policy(seed)
    before = _codes(policy)
    optimizer = torch.optim.SGD([value for value in policy.parameters() if value.requires_grad], lr=1.0)
    policy(**batch).loss.backward()
    values = {name: value.detach().clone() for name, value in policy.places.named_parameters()}
    optimizer.step()
    moved = [name for name, value in policy.places.named_parameters() if not torch.equal(value, values[name])]
    return {"before": before, "after": _codes(policy), "moved": sorted(moved)}


def trainable(learner: Any) -> dict[str, list[int]]:
    """Shape of every trainable parameter of the place codes."""
    places = learner.policy.build_policy(0).places
    return {name: list(value.shape) for name, value in places.named_parameters() if value.requires_grad}


def without_codes(learner: Any, batch: dict[str, Tensor], mark: Tensor, seed: int) -> dict[str, Tensor]:
    """Prefix, its mask, loss and chunk of a policy with a gain of zero, the given mark, and the stock policy's head.

    Also the gradients of the loss in the first weights of vision tower and projector.
    """
    policy = learner.policy.build_policy(seed).eval()
    policy.head.load_state_dict(Policy.from_base(seed=seed).head.state_dict())
    with torch.no_grad():
        policy.places.gain.zero_()
        policy.places.mark.copy_(mark)
        prefix, seen = policy.embed_prefix(*(batch[name] for name in OBSERVATION_KEYS))
    loss = policy(**batch).loss
    loss.backward()
    vision, projector = (next(part.parameters()) for part in (policy.vision, policy.projector))
    return {
        "prefix": prefix,
        "mask": seen,
        "loss": loss,
        "chunk": policy.predict(batch),
        "vision": torch.zeros_like(vision) if vision.grad is None else vision.grad,
        "projector": torch.zeros_like(projector) if projector.grad is None else projector.grad,
    }


def built(learner: Any, seed: int, state: int) -> dict[str, Tensor]:
    """The place codes and the first weights of the head in a fresh policy; the caller's seed is `state`."""
    torch.manual_seed(state)
    policy = learner.policy.build_policy(seed)
    return {"codes": _codes(policy), "head": next(policy.head.parameters())}


def another_size(learner: Any, batch: dict[str, Tensor], size: dict[str, int]) -> Tensor:
    """The prefix's embeddings in a policy of another size, without the pretrained base."""
    policy = learner.policy.PlacedPolicy(PolicyConfig(**size))
    with torch.no_grad():
        return policy.embed_prefix(*(batch[name] for name in OBSERVATION_KEYS))[0]


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


def _place_code(learner: Any, patches: Tensor, seed: int, quarter_turns: int) -> Any:
    torch.manual_seed(seed)
    return learner.policy.PlaceCode(int(patches.shape[1] ** 0.5), patches.shape[2], quarter_turns)


def _codes(policy: Any) -> Tensor:
    """The codes (P, D): the output of `places` for zeros, with a gain of one and the arm far away."""
    side, places = policy.config.image_size // policy.config.patch_size, policy.places
    with torch.no_grad():
        gain = places.gain.clone()
        places.gain.fill_(1.0)
        codes = places(torch.zeros(1, side * side, policy.config.width), torch.full((1, 2), 1e3))[0]
        places.gain.copy_(gain)
    return codes


def _batch(size: int, seed: int) -> dict[str, Tensor]:
    return next(batches(demonstrations(size, seed), size, steps=1, seed=seed))


def loaded_without_codes(learner: Any, seed: int) -> str | None:
    """What ends the loading of a checkpoint that has only gain, mark and order of the place codes; None if nothing."""
    policy, other = (learner.policy.build_policy(number) for number in (seed, seed + ANOTHER_SEED))
    codes = {f"places.{name}" for name in policy.places.state_dict()} - {f"places.{name}" for name in KEPT}
    checkpoint = {name: value for name, value in policy.state_dict().items() if name not in codes}
    try:
        other.load_state_dict(checkpoint, strict=True)
    except Exception as error:  # the check decides whether it is the expected one
        return type(error).__name__
    return None
