"""Measurements of the learner's training step for the grader and `lab run`. Runs next to their code, sandboxed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy

SEED, BATCH_SIZE, STEPS = 17, 16, 40


def steps(
    learner: Any,
    stream: list[dict[str, Tensor]],
    seed: int,
    scale: float,
    weights: list[float],
    frozen: str | None = None,
    groups: int = 1,
    growth_interval: int | None = None,
) -> dict[str, Any]:
    """Training steps of a fresh policy on each batch, beginning at this loss scale.

    Before each step the policy's loss is multiplied by its entry of `weights`, like an action loss next to a language
    loss. `frozen` names a part that does not train; the policy is then in evaluation mode. The optimizer has its
    weights in so many `groups`, and the scaler doubles the scale after `growth_interval` good steps. `moved` holds the
    movement of all weights in each step as one vector, `reported` what the step returned, and `scales` the scale after
    it.
    """
    policy = _Weighted.from_base(seed=seed).train(frozen is None)
    if frozen is not None:
        policy.get_submodule(frozen).requires_grad_(False)
    dtypes: set[str] = set()
    for module in policy.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda _, __, output: dtypes.add(str(output.dtype)))
    optimizer, scaler = learner.policy.build_optimizer(policy), learner.policy.build_scaler(policy, scale)
    if growth_interval is not None:
        scaler.set_growth_interval(growth_interval)
    if groups > 1:
        _divide(optimizer, groups)
    moved, reported, scales = [], [], []
    for batch, policy.loss_weight in zip(stream, weights, strict=True):
        before = _joined(policy.parameters())
        reported.append(vars(learner.policy.training_step(policy, batch, optimizer, scaler)))
        moved.append(_joined(policy.parameters()) - before)
        scales.append(float(scaler.get_scale()))
    state = [value for one in optimizer.state.values() for value in one.values() if isinstance(value, Tensor)]
    return {
        "moved": moved,
        "reported": reported,
        "scales": scales,
        "training": policy.training,
        "learning_rate": float(optimizer.param_groups[0]["lr"]),
        "layers": sorted(dtypes),
        "kept": sorted({str(value.dtype) for value in (*policy.parameters(), *state)}),
        "optimized": sum(value.numel() for group in optimizer.param_groups for value in group["params"]),
    }


def scaler(learner: Any) -> dict[str, Any]:
    """The state of the scaler that `build_scaler` makes by default."""
    state: dict[str, Any] = learner.policy.build_scaler(Policy.from_base()).state_dict()
    return state


def trained_on(learner: Any, stream: list[dict[str, Tensor]], seed: int) -> dict[str, Any]:
    """`train` on each batch: the losses returned and passed to `on_step`, and the mode in each step and afterwards."""
    policy = Policy.from_base(seed=seed).eval()
    seen: list[tuple[int, float]] = []
    modes: list[bool] = []
    policy.projector.register_forward_hook(lambda module, *_: modes.append(module.training))
    steps = learner.policy.train(policy, iter(stream), on_step=lambda index, step: seen.append((index, step.loss)))
    return {
        "losses": [float(step.loss) for step in steps],
        "on_step": [float(loss) for _, loss in seen],
        "indices": [index for index, _ in seen],
        "modes": modes,
        "training": policy.training,
    }


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a policy predicts after one training step on `batch`, (B, H, 3)."""
    policy = Policy.from_base(seed=seed)
    learner.policy.train(policy, [batch])
    return policy.eval().predict(batch)


def trained(learner: Any, seed: int) -> dict[str, Any]:
    """The losses of repeated training on one batch, and the last loss in float32."""
    policy, batch = Policy.from_base(seed=seed), _batch(seed)
    steps = learner.policy.train(policy, [batch] * STEPS)
    with torch.no_grad():
        return {"losses": [float(step.loss) for step in steps], "in_float32": float(policy(**batch).loss)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit's arguments: a fresh policy, its batch and optimizer, and five steps of the learner's loop."""
    policy, batch = Policy.from_base(seed=0), _batch(SEED)
    optimizer, scaler = learner.policy.build_optimizer(policy), learner.policy.build_scaler(policy)

    def loop() -> None:
        for _ in range(5):
            learner.policy.training_step(policy, batch, optimizer, scaler)

    return {"model": policy, "batch": batch, "optimizer": optimizer, "loop": loop}


def symptom(learner: Any) -> None:
    """Trains on one batch and prints the log: what `lab run 17` shows."""
    policy, batch = Policy.from_base(seed=SEED), _batch(SEED)
    before = _joined(policy.parameters())
    print(f"Fine-tuning on one batch of {BATCH_SIZE} frames, mixed precision, {STEPS} steps of SGD\n")
    print("  step      loss       scale   skipped", flush=True)

    def report(index: int, step: Any) -> None:
        if index % 10 == 0 or index == STEPS - 1:
            print(
                f"  {index:4d}   {step.loss:7.4f}   {step.scale:9.0f}   {'yes' if step.skipped else 'no'}", flush=True
            )

    learner.policy.train(policy, [batch] * STEPS, on_step=report)
    moved = (_joined(policy.parameters()) - before).norm() / before.norm()
    print(f"\nThe weights have moved by {float(moved):.1e} of their size.")


class _Weighted(Policy):
    loss_weight = 1.0

    def loss(self, feature: Tensor, action: Tensor, action_is_pad: Tensor) -> Tensor:
        return self.loss_weight * super().loss(feature, action, action_is_pad)


def _batch(seed: int) -> dict[str, Tensor]:
    return next(batches(demonstrations(2 * BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))


def _divide(optimizer: torch.optim.Optimizer, groups: int) -> None:
    """Give the optimizer the weights of its first group in this number of groups."""
    first = optimizer.param_groups[0]
    count = -(-len(first["params"]) // groups)
    first["params"], *others = [first["params"][at : at + count] for at in range(0, len(first["params"]), count)]
    for weights in others:
        optimizer.add_param_group({"params": weights})


def _joined(tensors: Any) -> Tensor:
    """All tensors as one vector, in float64; None is left out."""
    return torch.cat([tensor.detach().flatten().double() for tensor in tensors if tensor is not None])
