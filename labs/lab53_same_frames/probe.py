"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch
from torch import Tensor, nn

from debugkit import Declare
from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.rollout import rollout

BATCH_SIZE = 32
WARM_UP_STEPS = 20
HELD_OUT_SEED = 54
HEAD_SCALE = 3.0


def accumulated(
    learner: Any, window: list[Batch], seed: int, double: bool = True, training: bool = True
) -> dict[str, Any]:
    """Loss and gradients of a new policy, accumulated over the window's micro-batches; in float64 if `double`.

    `frames_at_once` is the largest number of frames whose graphs were in memory at the same time.
    """
    policy = learner.policy.build_policy(seed).train(training)
    if double:
        policy, window = policy.double(), [_as_double(batch) for batch in window]
    alive = [0]
    most = [0]

    def made(_: Any, __: Any, output: Tensor) -> None:
        if output.requires_grad:
            frames = len(output)
            alive[0] += frames
            most[0] = max(most[0], alive[0])
            output.register_hook(lambda _: alive.__setitem__(0, alive[0] - frames))

    handle = policy.head.register_forward_hook(made)
    try:
        loss = learner.policy.accumulate(policy, window)
    finally:
        handle.remove()
    gradients = {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}
    return {"loss": loss, "gradients": gradients, "window": window, "frames_at_once": most[0]}


def split_up(learner: Any, batch: Batch, parts: int) -> list[Batch]:
    """The micro-batches that the learner's `split` makes from a batch."""
    return learner.policy.split(batch, parts)


def updated(learner: Any, stream: list[Batch], parts: int, seed: int) -> dict[str, Any]:
    """The weights after an update with SGD in float64 from each batch in `parts` micro-batches, and the losses.

    The head is three times as large as built, so that the gradient of a single micro-batch is longer than 1. The vision
    tower is in evaluation mode, the rest in training mode; `modes` are those afterwards.
    """
    policy = learner.policy.build_policy(seed).double()
    with torch.no_grad():
        for parameter in policy.head.parameters():
            parameter *= HEAD_SCALE
    policy.vision.eval()
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    losses = [learner.policy.training_step(policy, optimizer, _as_double(batch), parts) for batch in stream]
    return {"losses": losses, "after": dict(policy.state_dict()), "modes": _modes(policy)}


def settings(learner: Any, seed: int) -> dict[str, Any]:
    """What a built policy holds, and what its optimizer is; the vision tower is in evaluation mode before that."""
    policy = learner.policy.build_policy(seed)
    policy.vision.eval()
    optimizer = learner.policy.build_optimizer(policy)
    names = {parameter: name for name, parameter in policy.named_parameters()}
    groups = [
        {
            "names": [names.get(parameter, "a parameter of something else") for parameter in group["params"]],
            **{name: group[name] for name in ("lr", "betas", "weight_decay")},
        }
        for group in optimizer.param_groups
    ]
    weights = dict(policy.state_dict())
    return {"weights": weights, "optimizer": type(optimizer).__name__, "groups": groups, "modes": _modes(policy)}


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The chunk that a newly built policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def training(learner: Any, seed: int, steps: int, parts: int) -> dict[str, Tensor]:
    """A short training with `parts` micro-batches: every step's loss, and the loss on held-out frames."""
    policy, losses = _train(learner, seed, steps, parts)
    return {"losses": torch.tensor(losses), "held_out": _held_out_loss(policy)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a policy, a batch, and the learner's loss for a part of it."""
    whole = next(batches(demonstrations(BATCH_SIZE, seed=3), BATCH_SIZE, steps=1, seed=3))
    order = (~whole["action_is_pad"]).sum(dim=1).argsort(stable=True)
    whole = {name: values[order] for name, values in whole.items()}
    parts = [{name: values[rows] for name, values in whole.items()} for rows in torch.arange(BATCH_SIZE).chunk(4)]

    def loss_fn(policy: nn.Module, part: Batch) -> Tensor:
        """Four times the learner's share for a part, because the rule divides by four; unscaled for the whole batch."""
        if len(part["state"]) == BATCH_SIZE:
            return learner.policy.loss_share(policy, part, [part])
        return 4 * learner.policy.loss_share(policy, part, parts)

    return {
        "model": learner.policy.build_policy(0),
        "batch": whole,
        "loss_fn": loss_fn,
        "declare": Declare(accumulation=4),
    }


def symptom(learner: Any) -> None:
    """One update with 1, 2, 4 and 8 micro-batches, and the result of sixty with 1 and 4: what `lab run 53` shows."""
    batch = next(batches(demonstrations(BATCH_SIZE, seed=3), BATCH_SIZE, steps=1, seed=3))
    print(f"One update from {BATCH_SIZE} frames, in 1 to 8 micro-batches\n")
    print("  micro-batches     loss   gradient norm")
    for parts in (1, 2, 4, 8):
        policy = learner.policy.build_policy(3)
        loss = learner.policy.accumulate(policy, learner.policy.split(batch, parts))
        norm = nn.utils.get_total_norm([p.grad for p in policy.parameters() if p.grad is not None])
        print(f"  {parts:13d}   {loss:6.4f}   {float(norm):13.4f}")
    print("\nSixty updates from the same seed on the same frames\n")
    print("  micro-batches   last loss   50 episodes")
    for parts in (1, 4):
        policy, losses = _train(learner, 53, 60, parts)
        print(
            f"  {parts:13d}   {losses[-1]:9.4f}   {rollout(policy, episodes=50).success_rate:7.0%} success", flush=True
        )


def _train(learner: Any, seed: int, steps: int, parts: int) -> tuple[Any, list[float]]:
    policy = learner.policy.build_policy(seed)
    optimizer, losses = learner.policy.build_optimizer(policy), []
    policy.train()
    for step, batch in enumerate(batches(demonstrations(steps * BATCH_SIZE, seed), BATCH_SIZE, steps, seed)):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / WARM_UP_STEPS)
        losses.append(learner.policy.training_step(policy, optimizer, batch, parts))
    policy.eval()
    return policy, losses


def _held_out_loss(policy: Any) -> Tensor:
    batch = next(batches(demonstrations(256, HELD_OUT_SEED), 256, steps=1, seed=HELD_OUT_SEED))
    with torch.no_grad():
        return policy(**batch).loss


def _modes(policy: nn.Module) -> dict[str, bool]:
    return {path: module.training for path, module in policy.named_modules()}


def _as_double(batch: Batch) -> Batch:
    return {name: x.double() if x.is_floating_point() else x.clone() for name, x in batch.items()}


def graphs_kept(learner: Any, window: list[Batch], seed: int) -> list[int]:
    """How many micro-batches have a graph, used or not, at the backward pass of each."""
    policy = learner.policy.build_policy(seed).train()
    graphs: list[weakref.ref[Any]] = []
    counts: list[int] = []

    def made(_: Any, __: Any, output: Tensor) -> None:
        def used(_: Tensor) -> None:  # belongs to the graph, and is freed with it
            if sum(graph() is not None for graph in graphs) > 1:
                gc.collect()  # a cycle of references is no reason to refuse
            counts.append(sum(graph() is not None for graph in graphs))

        if output.requires_grad:
            output.register_hook(used)
            graphs.append(weakref.ref(used))

    handle = policy.head.register_forward_hook(made)
    try:
        learner.policy.accumulate(policy, window)
    finally:
        handle.remove()
    return counts
