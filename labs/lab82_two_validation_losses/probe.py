"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from labs.forked_processes import FINISHED, run_in_processes
from labs.joint_training import sgd
from labs.vla.dataset import Batch, Frames, batches, collate, demonstrations

BATCH_SIZE = 32
TRAINING_STEPS = 40
PROCESSES = 2
VALIDATION_SEED = 990
VALIDATION_FRAMES = 600
SIDES = ("left", "right")

Work = Callable[[int], Any]


def trained_together(
    learner: Any, streams: list[list[Batch]], seed: int, rate: float, normalized: bool, without_train: bool = False
) -> list[dict[str, Any]]:
    """Train in one process per stream of batches; returns a result for each process.

    With `normalized` each gradient is divided by its size, so that the step is not linear in it; else it is plain SGD.
    `returned` has the `losses`, the parameters `before` training and at the `end`, their hashes after each of the
    `steps`, whether the policy was in `training` mode, and the `events`. Each process builds a policy of its own: the
    first from `seed`. `without_train` adds the `gradients` that `training_loss` and a backward pass give before that.
    """

    def work(rank: int) -> dict[str, Any]:
        return _train(learner, streams[rank], seed + rank, rate, normalized, without_train)

    return run_in_processes(work, len(streams))


def validated_alone(learner: Any, batch: Batch, seed: int, alone: int) -> list[dict[str, Any]]:
    """Process `alone` of two validates a wrapped policy that is in training mode; the other one does not.

    In training mode, the policy's projector gives zeros.
    """

    def work(rank: int) -> dict[str, Any] | None:
        policy = learner.policy.build_policy(seed)
        graphs: list[bool] = []
        policy.backbone.projector.register_forward_hook(_zeros_in_training)
        policy.backbone.projector.register_forward_hook(lambda _, __, output: graphs.append(output.requires_grad))
        wrapped = learner.policy.wrap(policy).train()
        if rank != alone:
            return None
        loss = learner.policy.validation_loss(wrapped, batch)
        return {"loss": loss, "graph": any(graphs), "training": any(one.training for one in wrapped.modules())}

    return run_in_processes(work)


def unwrapped(learner: Any, seed: int) -> dict[str, Any]:
    """Which parameters of an unwrapped policy are those of the wrapped one, and its type."""

    def work(_: int) -> dict[str, Any]:
        policy = learner.policy.build_policy(seed)
        inner = learner.policy.unwrap(learner.policy.wrap(policy))
        own, other = _named(policy), _named(inner)
        return {"names": sorted(other), "shared": sorted(name for name in own if own[name] is other.get(name))}

    return run_in_processes(work, 1)[0]


def built(learner: Any, seed: int) -> dict[str, Tensor]:
    """The weights of a new policy."""
    return dict(learner.policy.build_policy(seed).state_dict())


def parameters(learner: Any) -> dict[str, list[int]]:
    """The shapes of all parameters that require a gradient."""
    named = learner.policy.build_policy(0).named_parameters()
    return {name: list(one.shape) for name, one in named if one.requires_grad}


def action(learner: Any, batch: Batch, seed: int, louder: float = 1.0) -> Tensor:
    """The chunk (B, H, A) of a new policy in evaluation mode; its head's last weights are multiplied by `louder`."""
    policy = learner.policy.build_policy(seed).eval()
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(louder)
    return policy.predict(batch)


def predicts_with_a_graph(learner: Any, batch: Batch) -> bool:
    """Whether a predicted chunk requires a gradient."""
    return bool(learner.policy.build_policy(0).predict(batch).requires_grad)


def fine_tuned(learner: Any, seed: int, steps: int, shared: bool = False) -> list[dict[str, Any]]:
    """Two processes fine-tune, each on its own side's recordings, and each validates on both sides.

    With `shared`, one process trains on the batches of both.
    """
    return run_in_processes(_fine_tune(learner, seed, steps, shared), 1 if shared else PROCESSES)


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: the wrapped policy of one process, and a batch."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = learner.policy.wrap(learner.policy.build_policy(0))
    batch = next(batches(demonstrations(32, seed=82), 32, steps=1, seed=82))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return {"model": model, "batch": batch, "loss_fn": learner.policy.training_loss, "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """Fine-tune in two processes and in one, and validate: what `lab run 82` shows."""
    sizes = f"two processes with {BATCH_SIZE} frames each, one with all {2 * BATCH_SIZE}"
    print(f"Fine-tuning, {TRAINING_STEPS} steps: {sizes}\n")
    two, one = (fine_tuned(learner, 82, TRAINING_STEPS, shared) for shared in (False, True))
    for result in (*two, *one):
        if result["ended"] != FINISHED:
            print(f"A process {result['ended']} {result['at']}")
            return
    print("  step   two processes   one process")
    for step in (0, 13, 26, TRAINING_STEPS - 1):
        print(f"  {step:4d} {two[0]['returned']['losses'][step]:15.3f} {one[0]['returned']['losses'][step]:13.3f}")
    print("\nvalidation loss, arm on the        left half   right half")
    for name, result in (
        ("process 0, trained on the left", two[0]),
        ("process 1, trained on the right", two[1]),
        ("one process", one[0]),
    ):
        print(f"  {name:31}" + "".join(f"{result['returned'][side]:12.3f}" for side in SIDES))


def recordings(frames: Frames, side: str) -> Frames:
    """The frames in which the arm is on one side of the table."""
    chosen = np.flatnonzero((frames.state[:, 0] < 0.5) == (side == "left"))
    return Frames(
        frames.image[chosen],
        frames.state[chosen],
        tuple(frames.instruction[frame] for frame in chosen),
        frames.action[chosen],
        frames.action_is_pad[chosen],
    )


def _fine_tune(learner: Any, seed: int, steps: int, shared: bool) -> Work:
    def work(rank: int) -> dict[str, Any]:
        policy = learner.policy.build_policy(seed + rank)
        wrapped = learner.policy.wrap(policy)
        optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, betas=(0.9, 0.95))
        streams = [stream(side, seed, steps) for side in (SIDES if shared else SIDES[rank : rank + 1])]
        joined = (_joined(together) for together in zip(*streams, strict=True))
        seen: dict[str, Any] = {"losses": learner.policy.train(wrapped, optimizer, joined)}
        validation = demonstrations(VALIDATION_FRAMES, seed=VALIDATION_SEED)
        for side in SIDES:
            frames = recordings(validation, side)
            seen[side] = learner.policy.validation_loss(wrapped, collate(frames, range(len(frames))))
        return seen

    return work


def stream(side: str, seed: int, steps: int) -> Iterable[Batch]:
    frames = recordings(demonstrations(2 * steps * BATCH_SIZE, seed=seed), side)
    return batches(frames, BATCH_SIZE, steps=steps, seed=seed)


def _joined(together: tuple[Batch, ...]) -> Batch:
    return {name: torch.cat([batch[name] for batch in together]) for name in together[0]}


def _train(
    learner: Any, stream: list[Batch], seed: int, rate: float, normalized: bool, without_train: bool
) -> dict[str, Any]:
    """The training of one process."""
    wrapped = learner.policy.wrap(learner.policy.build_policy(seed).eval())
    inner = learner.policy.unwrap(wrapped)
    gradients = _gradients(learner, wrapped, stream[0]) if without_train else {}
    before, steps = _copy(inner), []
    modes: list[bool] = []
    optimizer = sgd(rate, normalized=normalized)(list(inner.parameters()))
    optimizer.register_step_post_hook(lambda *_: steps.append(_digests(inner)))
    inner.backbone.register_forward_pre_hook(lambda *_: modes.append(all(one.training for one in inner.modules())))
    events = _record_events(inner)
    losses = learner.policy.train(wrapped, optimizer, iter(stream))
    return {
        "losses": losses,
        "before": before,
        "steps": steps,
        "end": _copy(inner),
        "training": bool(modes) and all(modes),
        "events": events,
        "gradients": gradients,
    }


def _gradients(learner: Any, wrapped: Any, batch: Batch) -> dict[str, Tensor]:
    """The gradients of a batch's training loss in training mode, zeros for none; leaves none, and evaluation mode."""
    learner.policy.training_loss(wrapped.train(), batch).backward()
    named = _named(learner.policy.unwrap(wrapped))
    found = {name: torch.zeros_like(one) if one.grad is None else one.grad.clone() for name, one in named.items()}
    wrapped.eval().zero_grad(set_to_none=True)
    return found


def _record_events(policy: Any) -> list[str]:
    """Record every reduction that the learner's code calls, and the beginning of every backward pass, in order."""
    events: list[str] = []
    reduce = dist.all_reduce

    def all_reduce(tensor: Tensor, *args: Any, **options: Any) -> Any:
        events.append("one number" if tensor.numel() == 1 else "numbers")
        return reduce(tensor, *args, **options)

    dist.all_reduce = all_reduce
    last = list(policy.head.parameters())[-1]
    if last.requires_grad:
        last.register_post_accumulate_grad_hook(lambda _: events.append("backward"))
    return events


def _named(policy: Any) -> dict[str, Tensor]:
    return dict(policy.named_parameters())


def _copy(policy: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in policy.named_parameters()}


def _digests(policy: Any) -> dict[str, str]:
    """A hash of each parameter's values."""
    return {name: sha256(value.detach().numpy().tobytes()).hexdigest() for name, value in policy.named_parameters()}


def _zeros_in_training(module: Any, _: Any, output: Tensor) -> Tensor:
    return output * (not module.training)


def acted_by_another_head(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The chunk (B, H, A) of a policy in evaluation mode whose head is a `_Halving` of the new policy's."""
    policy = learner.policy.build_policy(seed)
    return learner.policy.SplitPolicy(policy.backbone, _Halving(policy.head)).eval().predict(batch)


class _Halving(nn.Module):
    """A head that acts with half of the normalised chunk that it is trained on."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, feature: Tensor) -> Tensor:
        return self.inner(feature)

    def predict(self, feature: Tensor) -> Tensor:
        return self(feature) / 2
