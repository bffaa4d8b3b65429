"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy, PolicyConfig

BATCH_SIZE, STEPS, LOOKED_AT = 16, 80, (0, 50)
SEED = 16


def gradients(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """After one backward: the gradient norm of each of the head's layers, and of every parameter (-1 without one)."""
    policy = learner.policy.DeepHeadPolicy.from_base(seed=seed)
    policy(**batch).loss.backward()
    return {
        "layers": [_gradient_norm(layer) for layer in policy.head.layers],
        "parameters": {
            name: -1.0 if parameter.grad is None else float(parameter.grad.norm())
            for name, parameter in policy.named_parameters()
        },
    }


def slopes(learner: Any, feature: Tensor, target: Tensor, seed: int) -> dict[str, dict[str, float]]:
    """The norm of the gradient in the feature and in each part of the head, and how steeply the loss rises along it.

    In float64. A part without a gradient is left out.
    """
    head = learner.policy.DeepHeadPolicy.from_base(seed=seed).head.double()
    feature, target = feature.double().requires_grad_(), target.double()
    is_pad = torch.zeros(target.shape[:2], dtype=torch.bool)
    head.loss(feature, target, is_pad).backward()
    parts = {"the feature": [feature]}
    parts |= {name: list(part.parameters()) for name, part in head.named_children() if part is not head.layers}
    parts |= {f"layers.{index}": list(layer.parameters()) for index, layer in enumerate(head.layers)}
    norms, rises = {}, {}
    for name, tensors in parts.items():
        moved = [tensor for tensor in tensors if tensor.grad is not None]
        if not moved:
            continue
        norms[name] = math.sqrt(sum(float(tensor.grad.square().sum()) for tensor in moved))
        step = 1e-4 / max(norms[name], 1e-300)
        values = []
        with torch.no_grad():
            for side in (1, -2, 1):  # one step forward, two steps back, and to the start
                for tensor in moved:
                    tensor += side * step * tensor.grad
                values.append(float(head.loss(feature, target, is_pad)))
        rises[name] = (values[0] - values[1]) / 2e-4
    return {"norms": norms, "rises": rises}


def build(learner: Any, a: Tensor, b: Tensor, out: list[Tensor], seed: int) -> dict[str, Any]:
    """The head's layers: their weight matrices and output shapes, in which order they run, and their outputs.

    `outputs` holds each layer's outputs for a, b, a + b and 0 in float64, and at the end those of all layers together.
    `out` is the output layer as it starts; then it gets this weight and bias, and `chunk` is the chunk of a, `last` the
    last layer's output for it.
    """
    head = learner.policy.DeepHeadPolicy.from_base(seed=seed).head.double().eval()
    a, b = a.double(), b.double()
    inputs = [a, b, a + b, torch.zeros_like(a)]
    order: list[int] = []
    hidden: list[Tensor] = []
    with torch.no_grad():
        start = [head.out.weight.float(), head.out.bias.float()]
        weights = [sum(p.dim() == 2 for p in layer.parameters()) for layer in head.layers]
        shapes = [list(layer(a).shape) for layer in head.layers]
        outputs = [[layer(x) for x in inputs] for layer in head.layers] + [[_hidden(head, x) for x in inputs]]
        head.out.weight.copy_(out[0])
        head.out.bias.copy_(out[1])
        for index, layer in enumerate(head.layers):
            layer.register_forward_hook(lambda _, __, ___, index=index: order.append(index))
        layer.register_forward_hook(lambda _, __, out: hidden.append(out.clone()))
        chunk = head.predict(a)
    return {
        "weights": weights,
        "shapes": shapes,
        "outputs": outputs,
        "order": order,
        "out": start,
        "chunk": chunk,
        "last": hidden[-1],
    }


def predicted(
    learner: Any, feature: Tensor, rows: list[int], sizes: dict[str, int], seed: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """The head's chunks for the whole `feature` (B, D) and for some of its rows without the others, in both modes."""
    head = _head(learner, sizes, seed)
    with torch.no_grad():
        return {
            mode: (head.train(mode == "training").predict(feature), head.predict(feature[rows]))
            for mode in ("training", "evaluation")
        }


def losses(
    learner: Any, feature: Tensor, target: Tensor, paddings: dict[str, Tensor], sizes: dict[str, int], seed: int
) -> dict[str, Any]:
    """The head's loss for each of the paddings (B, H) in training mode, and the chunk that `predict` gives."""
    head = _head(learner, sizes, seed).train()
    with torch.no_grad():
        return {
            "chunk": head.predict(feature),
            "losses": {name: head.loss(feature, target, is_pad) for name, is_pad in paddings.items()},
        }


def signal(learner: Any, batch: dict[str, Tensor], seed: int) -> list[float]:
    """How much the output of each layer varies from frame to frame, for a fresh policy: its std over the batch."""
    policy = learner.policy.DeepHeadPolicy.from_base(seed=seed).eval()
    spread: list[float] = []
    for layer in policy.head.layers:
        layer.register_forward_hook(lambda _, __, out: spread.append(float(out.std(dim=0).mean())))
    policy.predict(batch)
    return spread


def by_heart(learner: Any, batch: dict[str, Tensor], steps: int, seed: int) -> dict[str, Any]:
    """`learn_by_heart` of a stock policy: the losses, the weights of its proprioception and the first learning rate.

    The stock policy's head needs random noise, so the losses depend on the seed.
    """
    policy = Policy.from_base(head="flow_matching", seed=seed)
    rates: list[float] = []
    handle = register_optimizer_step_pre_hook(
        lambda optimizer, *_: rates.append(max(float(group["lr"]) for group in optimizer.param_groups))
    )
    try:
        returned = learner.policy.learn_by_heart(policy, batch, steps=steps, seed=seed)
    finally:
        handle.remove()
    return {"losses": returned, "weights": policy.proprioception.weight.detach(), "rate": rates[0] if rates else 0.0}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.DeepHeadPolicy.from_base(seed=seed).eval().predict(batch)


def learnt(learner: Any, seed: int) -> dict[str, Any]:
    """Train on one batch: every loss, and each layer's gradient norm at each step (steps, layers)."""
    policy, batch = learner.policy.DeepHeadPolicy.from_base(seed=seed), _batch(seed)
    with _norms_of_each_step(policy) as seen:
        losses = learner.policy.learn_by_heart(policy, batch, steps=STEPS, seed=seed)
    return {"losses": losses, "norms": torch.tensor(seen, dtype=torch.float64)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of demonstrations."""
    policy = learner.policy.DeepHeadPolicy.from_base(seed=0)
    batch = next(batches(demonstrations(32, seed=SEED), 32, steps=1, seed=SEED))
    return {"model": policy, "batch": batch, "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3)}


def symptom(learner: Any) -> None:
    """Trains the policy on sixteen frames, and prints each layer's gradient: what `lab run 16` shows."""
    policy, batch = learner.policy.DeepHeadPolicy.from_base(seed=SEED), _batch(SEED)
    print(f"Learning {BATCH_SIZE} frames by heart, {STEPS} steps", flush=True)
    with _norms_of_each_step(policy) as seen:
        losses = learner.policy.learn_by_heart(policy, batch, steps=STEPS, seed=SEED)
    print("\n  step " + "".join(f"{step:8d}" for step in (0, 20, 40, 60, STEPS - 1)))
    print("  loss " + "".join(f"{losses[step]:8.3f}" for step in (0, 20, 40, 60, STEPS - 1)))
    expert, policys = (100 * chunk[:4, 0, 0] for chunk in (batch["action"], policy.eval().predict(batch)))
    print("\nThe first movement along x for four of the frames, in cm")
    print("  expert" + "".join(f"{value:8.1f}" for value in expert))
    print("  policy" + "".join(f"{value:8.1f}" for value in policys))
    print("\nGradient norm of the head's layers; two blocks of a bar are a factor of ten")
    print(" " * 12 + "".join(f"{f'at step {step}':<30}" for step in LOOKED_AT).rstrip())
    for index in range(len(seen[0])):
        cells = (f"{seen[step][index]:9.1e} {_bar(seen[step][index]):<17}" for step in LOOKED_AT)
        print(f"  layers.{index}  " + "   ".join(cells).rstrip())


def _bar(norm: float) -> str:
    """Two blocks for each factor of ten above 1e-8."""
    return "█" * max(0, round(2 * (math.log10(max(norm, 1e-8)) + 8)))


def _batch(seed: int) -> dict[str, Tensor]:
    return next(batches(demonstrations(2 * BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))


def _hidden(head: nn.Module, feature: Tensor) -> Tensor:
    """The output of the last layer when the input of the first one is `feature` (B, D)."""
    seen: list[Tensor] = []
    handles = (
        head.layers[0].register_forward_pre_hook(lambda _, __: (feature,)),
        head.layers[-1].register_forward_hook(lambda _, __, out: seen.append(out.clone())),
    )
    head.predict(feature)
    for handle in handles:
        handle.remove()
    return seen[0]


def _gradient_norm(layer: nn.Module) -> float:
    """Of a layer's weight matrices; 0 if it has none. `clip_grad_norm_` with an infinite bound only measures."""
    weights = [weight for weight in layer.parameters() if weight.dim() == 2 and weight.grad is not None]
    return float(nn.utils.clip_grad_norm_(weights, math.inf)) if weights else 0.0


@contextmanager
def _norms_of_each_step(policy: Any) -> Iterator[list[list[float]]]:
    """For each step: the gradient norm of each of the head's layers as the optimizer gets it."""
    seen: list[list[float]] = []
    handle = register_optimizer_step_pre_hook(
        lambda *_: seen.append([_gradient_norm(layer) for layer in policy.head.layers])
    )
    try:
        yield seen
    finally:
        handle.remove()


def _head(learner: Any, sizes: dict[str, int], seed: int) -> Any:
    """The head of a policy of these sizes."""
    torch.manual_seed(seed)
    return learner.policy.DeepHeadPolicy(PolicyConfig(**sizes)).head
