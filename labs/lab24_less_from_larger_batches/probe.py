"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

import debugkit
from labs.vla.dataset import Batch, Frames, batches, demonstrations
from labs.vla.policy import PolicyConfig
from labs.vla.vision import PIXEL_MEAN, normalize_pixels

CAMERAS = 2
NOT_MOUNTED = 0.06
"""Share of the recorded frames that lack one of the gripper cameras."""
GREY = round(255 * PIXEL_MEAN)
"""What bars and cameras that are not mounted show: zero after normalisation."""
STEPS, BATCH_SIZES = 80, (4, 16, 64)
OUTCOME_BATCH_SIZE = 32
HELD_OUT = 256


def reader(
    learner: Any, weights: dict[str, Tensor], asker: Tensor, patches: Tensor, shows: Tensor, training: bool
) -> Tensor:
    """The tokens (B, K, D) that a reader with these weights returns."""
    module = _reader(learner, weights).train(training)
    with torch.set_grad_enabled(training):
        return module(asker, patches, shows).detach()


def differentiated(
    learner: Any, weights: dict[str, Tensor], asker: Tensor, patches: Tensor, shows: Tensor, upstream: Tensor
) -> dict[str, Tensor]:
    """The gradients of a reader's parameters and inputs, by name; `upstream` (B, K, D) is that of the tokens.

    A gradient that is None is left out.
    """
    module = _reader(learner, weights)
    asker.requires_grad_()
    patches.requires_grad_()
    module(asker, patches, shows).backward(upstream)
    named = {**dict(module.named_parameters()), "asker": asker, "patches": patches}
    return {name: value.grad for name, value in named.items() if value.grad is not None}


def gradients(
    learner: Any, weights: dict[str, Tensor], batch: Batch, seed: int, training: bool = True
) -> dict[str, Any]:
    """The loss of a policy whose reader has these weights, and the gradients of its parameters by name.

    A gradient that is None is left out.
    """
    policy = _policy(learner, weights, seed).train(training)
    loss = policy(**batch).loss
    loss.backward()
    return {
        "loss": loss.detach(),
        "gradients": {name: p.grad for name, p in policy.named_parameters() if p.grad is not None},
    }


def origin(learner: Any, batch: Batch, seed: int) -> dict[str, str]:
    """The operation that makes the step's first Inf or NaN, and which of the two; empty if there is none."""
    found = debugkit.first_nonfinite(learner.policy.build_policy(seed), batch)
    return {} if found is None else {"operation": found.operation, "kind": found.kind}


def steps(learner: Any, weights: dict[str, Tensor], stream: list[Batch], plain: bool, seed: int) -> dict[str, Any]:
    """`train_step` on each batch: the losses, the weights after the last, and the policy's mode.

    If `plain` the optimizer is SGD with a learning rate of 1 and the policy in training mode, else the optimizer is the
    learner's and the policy in evaluation mode.
    """
    policy = _policy(learner, weights, seed).train(plain)
    optimizer = learner.policy.build_optimizer(policy)
    if plain:
        optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    losses = [learner.policy.train_step(policy, optimizer, batch) for batch in stream]
    return {"losses": losses, "weights": dict(policy.named_parameters()), "training": policy.training}


def built(learner: Any, seed: int | None) -> dict[str, Any]:
    """A policy's weights, which of them train, and the optimizer's class, settings and number of weights."""
    policy = learner.policy.build_policy() if seed is None else learner.policy.build_policy(seed)
    optimizer = learner.policy.build_optimizer(policy)
    return {
        "weights": policy.state_dict(),
        "trains": [name for name, value in policy.named_parameters() if value.requires_grad],
        "class": type(optimizer).__name__,
        "settings": [optimizer.defaults.get(name) for name in ("lr", "betas", "weight_decay")],
        "optimized": sum(value.numel() for group in optimizer.param_groups for value in group["params"]),
    }


def reader_shapes(learner: Any, vision_width: int) -> dict[str, list[int]]:
    """The shapes of the reader's weights in a policy whose vision tower has that width."""
    policy = learner.policy.RigPolicy(PolicyConfig(vision_width=vision_width))
    return {name: list(value.shape) for name, value in policy.reader.named_parameters()}


def action(learner: Any, batch: Batch, views: Tensor, shows: Tensor, weights: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk (B, H, 3) that a policy whose reader has these weights predicts in evaluation mode."""
    return _policy(learner, weights, seed).eval().predict({**batch, "views": views, "shows": shows})


def prediction(
    learner: Any, batch: Batch, weights: dict[str, Tensor], seed: int, louder: float = 1.0
) -> dict[str, Any]:
    """What `predict` returns for a training batch, whether it has a graph, and what calling the policy returns.

    The weights of its head's last layer are multiplied by `louder`.
    """
    policy = _policy(learner, weights, seed).eval()
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(louder)
    chunk = policy.predict(batch)
    called = policy(**{name: value for name, value in batch.items() if not name.startswith("action")})
    return {"chunk": chunk.detach(), "graph": chunk.requires_grad, "called": called.action.detach()}


def training(learner: Any, seed: int, steps: int) -> dict[str, Any]:
    """Losses of a short training on recordings of different rigs, and the loss on new frames after it."""
    return _train(learner, seed, OUTCOME_BATCH_SIZE, steps)


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of recordings of different rigs."""
    policy = learner.policy.build_policy(0)
    batch = next(recordings(24, 1, 32))
    return {"model": policy, "batch": batch, "optimizer": learner.policy.build_optimizer(policy)}


def symptom(learner: Any) -> None:
    """Trains with three batch sizes on the same kind of recordings: the output of `lab run 24`."""
    print(f"{STEPS} steps on the recordings of all rigs\n")
    print("  batch size   frames seen   loss of the first 10 steps   of the last 10   on new frames")
    for size in BATCH_SIZES:
        seen = _train(learner, 24, size, STEPS)
        first, last = (sum(part) / 10 for part in (seen["losses"][:10], seen["losses"][-10:]))
        print(
            f"  {size:10d}   {size * STEPS:11,}   {first:26.3f}   {last:14.3f}   {seen['held_out']:13.3f}", flush=True
        )


def recordings(seed: int, steps: int, batch_size: int) -> Iterator[Batch]:
    """Batches of demonstrations with two gripper cameras, one of which some rigs do not have."""
    frames = demonstrations(steps * batch_size, seed)
    views, shows = gripper_views(frames)
    rng = np.random.default_rng([24, seed])
    without = np.flatnonzero(rng.random(len(frames)) < NOT_MOUNTED)
    camera = rng.integers(0, CAMERAS, len(without))
    views[without, camera], shows[without, camera] = GREY, False
    order = np.random.default_rng(seed).permutation(len(frames))  # as in `batches`
    for step, batch in enumerate(batches(frames, batch_size, steps, seed)):
        chosen = order[step * batch_size : (step + 1) * batch_size]
        pixels = normalize_pixels(torch.from_numpy(views[chosen].reshape(-1, 64, 64, 3)))
        yield {
            **batch,
            "views": pixels.unflatten(0, (batch_size, CAMERAS)),
            "shows": torch.from_numpy(shows[chosen]),
        }


def gripper_views(frames: Frames) -> tuple[np.ndarray, np.ndarray]:
    """What two cameras at the gripper see, uint8 (N, 2, 64, 64, 3), and which patches are on the table, (N, 2, 16)."""
    margin, window = 32, np.arange(32)
    padded = np.pad(frames.image, ((0, 0), (margin, margin), (margin, margin), (0, 0)), constant_values=GREY)
    centre = np.rint(frames.state[:, :2] * 63).astype(int)  # x and y, in pixels
    corner = centre[:, None] + margin - 16 + np.array([[-10, 0], [10, 0]])  # (N, 2, 2)
    rows, columns = (corner[..., axis, None] + window for axis in (1, 0))  # (N, 2, 32) each
    number = np.arange(len(frames))[:, None, None, None]
    views = padded[number, rows[..., :, None], columns[..., None, :]]  # (N, 2, 32, 32, 3)
    on_table = [(at >= margin) & (at < margin + 64) for at in (rows[..., 4::8], columns[..., 4::8])]
    shows = on_table[0][..., :, None] & on_table[1][..., None, :]
    return views.repeat(2, axis=2).repeat(2, axis=3), shows.reshape(len(frames), CAMERAS, -1)


def _train(learner: Any, seed: int, batch_size: int, steps: int) -> dict[str, Any]:
    policy = learner.policy.build_policy(seed)
    optimizer = learner.policy.build_optimizer(policy)
    policy.train()
    losses = [learner.policy.train_step(policy, optimizer, batch) for batch in recordings(seed, steps, batch_size)]
    with torch.no_grad():
        held_out = policy.eval()(**next(recordings(seed + 1, 1, HELD_OUT))).loss
    return {"losses": losses, "held_out": float(held_out)}


def _reader(learner: Any, weights: dict[str, Tensor]) -> Any:
    cameras, width = weights["camera"].shape
    module = learner.policy.CameraReader(len(weights["norm.weight"]), width, cameras)
    module.load_state_dict(weights)
    return module


def _policy(learner: Any, weights: dict[str, Tensor], seed: int) -> Any:
    policy = learner.policy.build_policy(seed)
    policy.reader.load_state_dict(weights)
    return policy


def in_dtype(
    learner: Any, weights: dict[str, Tensor], asker: Tensor, patches: Tensor, shows: Tensor, upstream: Tensor
) -> dict[str, Any]:
    """The tokens and gradients of a reader that was cast to the dtype of `asker`; `raised` is the error of its forward.

    A gradient that is None is left out.
    """
    module = _reader(learner, weights).to(asker.dtype)
    asker.requires_grad_()
    patches.requires_grad_()
    try:
        tokens = module(asker, patches, shows)
    except RuntimeError as error:
        return {"raised": str(error)}
    tokens.backward(upstream.to(tokens.dtype))
    named = {**dict(module.named_parameters()), "asker": asker, "patches": patches}
    gradients = {name: value.grad for name, value in named.items() if value.grad is not None}
    return {"raised": None, "tokens": tokens.detach(), "gradients": gradients}
