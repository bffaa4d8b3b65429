"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child.

Counts the live nodes of autograd graphs and the bytes of live tensors, not the memory of the process: an allocator that
holds free memory in reserve shows no rise for minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from labs.live_tensors import bytes_of, counting_from_here, graph_nodes, live_tensors
from labs.reference_training import with_dropout
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy, PolicyOutput
from labs.vla.randomness import private_randomness

SEED, STEPS, BATCH_SIZE, LOOK_EVERY = 61, 50, 4, 10


def alive(learner: Any, batches: list[dict[str, Tensor]], steps: int, seed: int, logged: bool) -> dict[str, list[int]]:
    """What is alive after each step of an epoch, counted when the epoch asks for its next batch.

    Each batch is a new copy.
    """
    policy = Policy.from_base(seed=seed)
    counts: dict[str, list[int]] = {}

    def look() -> None:
        tensors = live_tensors()
        found = {
            "nodes of autograd graphs": graph_nodes(tensors),
            "nodes of the largest graph": max((graph_nodes([tensor]) for tensor in tensors), default=0),
            "tensors": len(tensors),
            "bytes of tensors": bytes_of(tensors),
        }
        for what, count in found.items():
            counts.setdefault(what, []).append(count)

    def stream() -> Iterator[dict[str, Tensor]]:
        for step in range(steps):
            if step:
                look()
            yield {name: value.clone() for name, value in batches[step % len(batches)].items()}
        look()

    with counting_from_here():
        learner.policy.train_epoch(policy, stream(), _optimizer(policy), *([lambda *_: None] if logged else []))
    return counts


def epoch(
    learner: Any,
    batches: list[dict[str, Tensor]],
    seed: int,
    groups: dict[str, dict[str, float]],
    logged: bool,
    training: bool,
) -> dict[str, Any]:
    """An epoch of a policy with dropout after its projector, in training mode before the epoch if `training`.

    `groups` maps the parts that are trained to the settings of their optimizer group; the others are frozen. Returns
    what `on_step` was called with (if `logged`), the averages, the weights and the policy's mode afterwards. `running`
    has copies of the averages as they were in each step, `kept` the dictionaries as they are after the epoch.
    """
    policy = with_dropout(Policy.from_base(seed=seed)).train(training)
    for part, module in policy.named_children():
        module.requires_grad_(part in groups)
    settings = [{"params": list(policy.get_submodule(part).parameters()), **own} for part, own in groups.items()]
    optimizer = torch.optim.SGD(settings, momentum=0.5)
    steps, running, kept = [], [], []

    def on_step(step: int, averages: dict[str, float]) -> None:
        steps.append(step)
        running.append(dict(averages))
        kept.append(averages)

    with private_randomness(seed):
        averages = learner.policy.train_epoch(policy, iter(batches), optimizer, *([on_step] if logged else []))
    return {
        "steps": steps,
        "running": running,
        "kept": [dict(averages) for averages in kept],
        "averages": averages,
        "weights": {name: parameter.detach() for name, parameter in policy.named_parameters()},
        "training": policy.training,
    }


def epoch_with_losses(learner: Any, batch: dict[str, Tensor], losses: Tensor) -> dict[str, float]:
    """The averages that an epoch returns whose steps have these losses, each on the frames of `batch`.

    The policy does not look at the frames: its loss is the first number of the state, and it predicts zeros.
    """
    policy = Policy.from_base(seed=0)
    weights = policy.head.mlp[-1].bias
    policy.forward = lambda **given: PolicyOutput(loss=given["state"][0, 0] + 0.0 * weights.sum())
    policy.predict = lambda given: torch.zeros_like(given["action"])
    stream = ({**batch, "state": torch.full_like(batch["state"], float(loss))} for loss in losses)
    return learner.policy.train_epoch(policy, stream, torch.optim.SGD(policy.parameters(), lr=0.1))


def metered(learner: Any, values: dict[str, Tensor], frames: int) -> dict[str, dict[str, Any]]:
    """What has become of scalars that a meter has added, twice, before the backward pass of their sum.

    Each scalar is a new tensor, the square of a leaf. By name: its `values`, its `graphs` (whether it still has one),
    and the `gradients` of the leaves.
    """
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    given = {name: leaf.square() for name, leaf in leaves.items()}
    meter = learner.policy.Meter()
    for _ in range(2):
        meter.update(dict(given), frames)
    meter.averages()
    with_graphs = [value for value in given.values() if value.requires_grad]
    if with_graphs:
        torch.stack(with_graphs).sum().backward()
    return {
        "values": {name: value.detach().clone() for name, value in given.items()},
        "graphs": {name: value.requires_grad for name, value in given.items()},
        "gradients": {name: torch.zeros(()) if leaf.grad is None else leaf.grad for name, leaf in leaves.items()},
    }


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a policy predicts after one step on `batch`, (B, H, 3)."""
    policy = Policy.from_base(seed=seed)
    learner.policy.train_epoch(policy, [batch], _optimizer(policy))
    return policy.eval().predict(batch)


def trained(learner: Any, seed: int) -> dict[str, float]:
    """The average loss of a first and of a third epoch over the same 320 frames."""
    policy = Policy.from_base(seed=seed)
    optimizer, frames = _optimizer(policy), demonstrations(320, seed)
    epochs = [
        learner.policy.train_epoch(policy, batches(frames, 16, steps=20, seed=number), optimizer)["loss"]
        for number in range(3)
    ]
    return {"first": float(epochs[0]), "last": float(epochs[-1])}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit's arguments: a newly built policy, its optimizer, and twelve steps of the learner's epoch."""
    policy = Policy.from_base(seed=0)
    optimizer = _optimizer(policy)

    def loop() -> None:
        learner.policy.train_epoch(policy, _stream(12), optimizer)

    return {"model": policy, "optimizer": optimizer, "loop": loop}


def symptom(learner: Any) -> None:
    """Train, and count live tensors and nodes after every tenth step: what `lab run 61` shows."""
    policy = Policy.from_base(seed=SEED)
    print(f"Fine-tuning, {STEPS} steps of {BATCH_SIZE} frames\n")
    print("  step   loss so far   tensors alive, MB   graph nodes alive", flush=True)

    def look(step: int, averages: dict[str, float]) -> None:
        if (step + 1) % LOOK_EVERY == 0:
            tensors = live_tensors()
            count = f"{bytes_of(tensors) / 2**20:19.2f}   {graph_nodes(tensors):17,}"
            print(f"  {step + 1:4d}   {averages['loss']:11.4f}   {count}", flush=True)

    with counting_from_here():
        averages = learner.policy.train_epoch(policy, _stream(STEPS), _optimizer(policy), look)
    print("\nThe epoch: " + ", ".join(f"{name} {value:.3f}" for name, value in averages.items()))


def _optimizer(policy: Policy) -> torch.optim.Optimizer:
    return torch.optim.AdamW(policy.parameters(), lr=1e-3)


def _stream(steps: int) -> Iterable[dict[str, Tensor]]:
    return batches(demonstrations(steps * BATCH_SIZE, SEED), BATCH_SIZE, steps=steps, seed=SEED)
