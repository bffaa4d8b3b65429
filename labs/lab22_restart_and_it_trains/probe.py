"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import debugkit
from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.randomness import private_randomness

BATCH_SIZE = 32
STILL = 1 / 60
"""Share of the recorded frames in which the operator has not moved yet."""


def gradients(learner: Any, batch: Batch, training: bool, seed: int) -> dict[str, Any]:
    """The loss of a fresh policy, and the norm of every parameter's gradient after one backward (None: no gradient)."""
    policy = learner.policy.build_policy(seed).train(training)
    loss = policy(**batch).loss
    loss.backward()
    norms = {name: None if p.grad is None else float(p.grad.norm()) for name, p in policy.named_parameters()}
    return {"loss": loss.detach(), "norms": norms}


def origin(learner: Any, batch: Batch, seed: int) -> dict[str, str]:
    """The operation that makes the step's first Inf or NaN, and which of the two; empty if there is none."""
    found = debugkit.first_nonfinite(learner.policy.build_policy(seed), batch)
    return {} if found is None else {"operation": found.operation, "kind": found.kind}


def loss_of_predictions(learner: Any, predicted: Tensor, target: Tensor, is_pad: Tensor) -> dict[str, Tensor]:
    """The head's loss for given normalised predictions (B, H, 3), and its gradient."""
    head = learner.policy.build_policy(0).head
    head.mlp = nn.Identity()  # so that the feature is the prediction
    predicted = predicted.clone().requires_grad_()
    loss = head.loss(predicted.flatten(1), target, is_pad)
    (gradient,) = torch.autograd.grad(loss, predicted)
    return {"loss": loss.detach(), "gradient": gradient}


def one_step(learner: Any, batch: Batch, seed: int) -> dict[str, Tensor]:
    """`train_step` on a fresh policy: how far it moved each row of the last layer's weight, (H * 3,)."""
    policy = learner.policy.build_policy(seed)
    learner.policy.train_step(policy, learner.policy.build_optimizer(policy), batch)
    weight: Tensor = policy.head.mlp[-1].weight.detach()  # it was zero
    return {"moved": weight.norm(dim=1)}


def steps(learner: Any, stream: list[Batch], weight: Tensor, plain: bool, seed: int) -> dict[str, Any]:
    """`train_step` on each batch: the losses, the trained weights by name, and the error that it raised, if any.

    The last layer begins with `weight`. If `plain` the optimizer is SGD with a learning rate of 1 and the policy is in
    training mode, else the optimizer is the learner's and the policy in evaluation mode.
    """
    policy = learner.policy.build_policy(seed).train(plain)
    with torch.no_grad():
        policy.head.mlp[-1].weight.copy_(weight)
    optimizer = learner.policy.build_optimizer(policy)
    if plain:
        optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    losses, raised = [], None
    for batch in stream:
        try:
            losses.append(learner.policy.train_step(policy, optimizer, batch))
        except FloatingPointError as error:
            raised = str(error)
            break
    weights = dict(policy.named_parameters())
    return {"losses": losses, "weights": weights, "raised": raised, "training": policy.training}


def built(learner: Any) -> dict[str, Any]:
    """The policy's weights by default, and the optimizer's class, settings and number of weights."""
    policy = learner.policy.build_policy()
    optimizer = learner.policy.build_optimizer(policy)
    return {
        "weights": policy.state_dict(),
        "class": type(optimizer).__name__,
        "settings": [optimizer.defaults.get(name) for name in ("lr", "betas", "weight_decay")],
        "optimized": sum(value.numel() for group in optimizer.param_groups for value in group["params"]),
    }


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The chunk predicted by a policy whose last layer is not zero, (B, H, 3)."""
    policy = learner.policy.build_policy(seed).eval()
    with private_randomness(seed), torch.no_grad():
        nn.init.normal_(policy.head.mlp[-1].weight, std=0.1)
    return policy.predict(batch)


def first_action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The chunk that a fresh policy predicts, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def training(learner: Any, seed: int, steps: int) -> dict[str, Any]:
    """Losses of a short training whose first batch has a frame without a move, and the mean distance on new frames."""
    policy = learner.policy.build_policy(seed)
    losses = _train(learner, policy, _recorded(seed, steps, still_at_first=True))
    batch = next(batches(demonstrations(256, seed + 1), 256, steps=1, seed=seed))
    predicted, target = (
        policy.action_statistics.normalize(x)[..., :2] for x in (policy.predict(batch), batch["action"])
    )
    away = torch.linalg.vector_norm(predicted - target, dim=-1)[~batch["action_is_pad"]]
    return {"losses": torch.tensor(losses), "distance": away.mean()}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of recordings, one of them without a move."""
    policy = learner.policy.build_policy(0)
    batch = next(_recorded(22, 1, still_at_first=True))
    return {"model": policy, "batch": batch, "optimizer": learner.policy.build_optimizer(policy)}


def symptom(learner: Any) -> None:
    """Starts six runs that differ only in the seed of their recordings: the output of `lab run 22`."""
    steps = 20
    print(f"Six runs of {steps} steps: the same code, the same kind of recordings, different seeds\n")
    print(f"  seed   loss at step 0        1        2       {steps - 1}   weights that are NaN")
    for seed in range(6):
        policy = learner.policy.build_policy(0)
        losses = _train(learner, policy, _recorded(seed, steps))
        losses += [math.nan] * (steps - len(losses))
        shown = "".join(f"{losses[step]:9.3f}" for step in (1, 2, steps - 1))
        lost = sum(int(p.isnan().sum()) for p in policy.parameters())
        share = lost / sum(p.numel() for p in policy.parameters())
        print(f"  {seed:4d}   {losses[0]:14.3f}{shown}   {share:.0%}", flush=True)


def _train(learner: Any, policy: Any, stream: Iterator[Batch]) -> list[float]:
    """Losses up to the last step, or up to the step that raises FloatingPointError."""
    optimizer, losses = learner.policy.build_optimizer(policy), []
    policy.train()
    try:
        for batch in stream:
            losses.append(learner.policy.train_step(policy, optimizer, batch))
    except FloatingPointError:
        pass
    policy.eval()
    return losses


def _recorded(seed: int, steps: int, still_at_first: bool = False) -> Iterator[Batch]:
    """Batches of demonstrations with some frames in which the operator has not moved yet."""
    draw = torch.Generator().manual_seed(seed)
    frames = demonstrations(steps * BATCH_SIZE, seed)
    for step, batch in enumerate(batches(frames, BATCH_SIZE, steps, seed)):
        still = torch.rand(BATCH_SIZE, generator=draw) < STILL
        still[5] |= still_at_first and step == 0
        batch["action"][still] = torch.tensor([0.0, 0.0, -1.0])
        batch["action_is_pad"][still] = False
        yield batch
