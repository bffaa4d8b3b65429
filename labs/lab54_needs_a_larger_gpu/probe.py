"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.rollout import rollout

BATCH_SIZE = 32
UPDATES = 80
HELD_OUT_SEED = 55
WATCHED = ("head.mlp.2.weight", "head.mlp.0.bias", "projector.0.weight", "vision.embeddings.patch_embedding.weight")
"""Parameters whose gradients are returned: two of the head, two below it."""


class FewWeights(nn.Module):
    """Replaces a policy where only the learning rate is measured: one weight or a few, and a loss."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(number))

    def forward(self, x: Tensor) -> SimpleNamespace:
        return SimpleNamespace(loss=(sum(self.weights) * x).square().mean())


def rates(learner: Any, parts: int, updates: int, given: int, peaks: list[float] | None = None) -> dict[str, list[Any]]:
    """Train one weight or a few with `parts` micro-batches per update: `given` micro-batches of `updates` updates.

    For each step of an optimizer: the learning rate of its first group and of each group, the gradient's norm, and how
    many micro-batches had been read. The module is in evaluation mode before, as a loaded policy is. With `peaks`, the
    optimizer is an AdamW with a group of one weight for each of these learning rates.
    """
    policy, read, seen = (
        FewWeights(len(peaks or [0])).eval(),
        [0],
        {"rates": [], "rates of groups": [], "norms": [], "read": []},
    )
    if peaks is None:
        optimizer = learner.policy.build_optimizer(policy)
    else:
        weights = zip(policy.parameters(), peaks, strict=True)
        optimizer = torch.optim.AdamW([{"params": [weight], "lr": peak} for weight, peak in weights])

    def stream() -> Iterator[Batch]:
        for number in range(given):
            read[0] += 1
            yield {"x": torch.full((1,), 1.0 + number)}

    def note(stepping: torch.optim.Optimizer, *_: Any) -> None:
        seen["rates"].append(float(stepping.param_groups[0]["lr"]))
        seen["rates of groups"].append([float(group["lr"]) for group in stepping.param_groups])
        seen["norms"].append(sum(float(w.grad.square().sum()) for w in policy.parameters()) ** 0.5)
        seen["read"].append(read[0])

    handle = register_optimizer_step_pre_hook(note)
    try:
        learner.policy.train(policy, optimizer, stream(), updates, parts)
    finally:
        handle.remove()
    return seen


def trained(
    learner: Any, stream: list[Batch], updates: int, parts: int, seed: int, louder: float = 1.0, training: bool = True
) -> dict[str, Any]:
    """Train a policy in float64 on the micro-batches of `stream`, in the mode `training` before.

    `used` holds one dict for each optimizer step, with the WATCHED gradients it used; `stepped` is whether all were
    steps of the given optimizer. `modes` are those in which the head ran. The head's last layer is multiplied by
    `louder` first.
    """
    policy = learner.policy.build_policy(seed).double().train(training)
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(louder)
    optimizer = learner.policy.build_optimizer(policy)
    own, used, modes, stepped = dict(policy.named_parameters()), [], set(), []
    before = {name: value.detach().clone() for name, value in own.items()}
    given = [_as_double(micro_batch) for micro_batch in stream]

    def note(stepping: torch.optim.Optimizer, *_: Any) -> None:
        used.append({name: None if own[name].grad is None else own[name].grad.detach().clone() for name in WATCHED})
        stepped.append(stepping is optimizer)

    policy.head.register_forward_hook(lambda *_: modes.add(policy.training))
    handle = register_optimizer_step_pre_hook(note)
    try:
        log = learner.policy.train(policy, optimizer, iter(given), updates, parts)
    finally:
        handle.remove()
    return {
        "used": used,
        "moved": {name: value.detach() - before[name] for name, value in own.items()},
        "numbers": [line.update for line in log],
        "losses": torch.tensor([line.loss for line in log], dtype=torch.float64),
        "modes": sorted(modes),
        "mode after": policy.training,
        "stepped": bool(stepped) and all(stepped),
        "stream": given,
    }


def settings(learner: Any, seed: int) -> dict[str, Any]:
    """The weights of a built policy, and its optimizer: class, and for each group its parameters and settings.

    `modes` are the modes of the vision tower and of the policy after `build_optimizer`, which found them in evaluation
    and training mode.
    """
    policy = learner.policy.build_policy(seed).train()
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
    return {
        "weights": dict(policy.state_dict()),
        "optimizer": type(optimizer).__name__,
        "groups": groups,
        "modes": [policy.vision.training, policy.training],
    }


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The chunk that a newly built policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def held_out_loss(learner: Any, seed: int, updates: int, parts: int) -> Tensor:
    """The loss on new frames of a policy that was fine-tuned with `parts` micro-batches per update."""
    policy, _ = _train(learner, seed, updates, parts)
    batch = next(batches(demonstrations(256, HELD_OUT_SEED), 256, steps=1, seed=HELD_OUT_SEED))
    with torch.no_grad():
        return policy(**batch).loss


def subject(learner: Any) -> dict[str, Any]:
    """debugkit's arguments: a newly built policy, a batch, its optimizer, and a short run of the learner's loop."""
    policy = learner.policy.build_policy(0)
    optimizer = learner.policy.build_optimizer(policy)
    stream = list(_micro_batches(seed=54, updates=12, parts=4, batch_size=8))

    def loop() -> None:
        learner.policy.train(policy, optimizer, stream, 12, 4)

    return {"model": policy, "batch": stream[0], "optimizer": optimizer, "loop": loop}


def symptom(learner: Any) -> None:
    """Fine-tune with 1, 4 and 16 micro-batches per update: what `lab run 54` shows.

    PyTorch's warning about the order of two calls is ignored, as accelerate ignores it; the lesson says so.
    """
    warnings.filterwarnings("ignore", "Detected call of `lr_scheduler", UserWarning)
    print(f"Fine-tuning with {UPDATES} updates of {BATCH_SIZE} frames, from the same seed on the same frames\n")
    shown = (0, 1, 5, 20, 40, UPDATES - 1)
    print("                 loss before update")
    print("  micro-batches " + "".join(f"{update:7d}" for update in shown) + "    50 episodes")
    for parts in (1, 4, 16):
        policy, log = _train(learner, 54, UPDATES, parts)
        losses = "".join(f"{log[update].loss:7.3f}" for update in shown)
        print(f"  {parts:13d} {losses}{rollout(policy, episodes=50).success_rate:7.0%} success", flush=True)


def _train(learner: Any, seed: int, updates: int, parts: int) -> tuple[Any, Any]:
    policy = learner.policy.build_policy(seed)
    optimizer = learner.policy.build_optimizer(policy)
    return policy, learner.policy.train(policy, optimizer, _micro_batches(seed, updates, parts), updates, parts)


def _micro_batches(seed: int, updates: int, parts: int, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
    for batch in batches(demonstrations(updates * batch_size, seed), batch_size, updates, seed):
        batch["action_is_pad"][:] = False  # repeats of the last action: with them every micro-batch has as many steps
        for rows in torch.arange(batch_size).chunk(parts):
            yield {name: values[rows] for name, values in batch.items()}


def _as_double(batch: Batch) -> Batch:
    return {name: x.double() if x.is_floating_point() else x.clone() for name, x in batch.items()}


def stepped_by_hand(learner: Any, peaks: list[float], updates: int) -> list[list[float]] | None:
    """The learning rates of groups that begin with `peaks`, where optimizer and schedule are stepped `updates` times.

    None if the learner's file has no `build_scheduler` of an optimizer and a number of updates.
    """
    policy = FewWeights(len(peaks))
    weights = zip(policy.parameters(), peaks, strict=True)
    optimizer = torch.optim.AdamW([{"params": [weight], "lr": peak} for weight, peak in weights])
    build = getattr(learner.policy, "build_scheduler", None)
    try:
        inspect.signature(build).bind(optimizer, updates)
    except TypeError:
        return None
    scheduler, seen = build(optimizer, updates), []
    for _ in range(updates):
        seen.append([float(group["lr"]) for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return seen


def rates_afterwards(learner: Any, parts: int, updates: int, rate: float) -> list[float]:
    """The learning rates of two steps of the optimizer after `train`, for which its group was given `rate`."""
    policy, seen = FewWeights(1).eval(), []
    optimizer = learner.policy.build_optimizer(policy)
    learner.policy.train(policy, optimizer, [{"x": torch.ones(1)}] * (parts * updates), updates, parts)
    optimizer.param_groups[0]["lr"] = rate
    handle = optimizer.register_step_pre_hook(lambda one, *_: seen.append(float(one.param_groups[0]["lr"])))
    for _ in range(2):
        optimizer.step()
    handle.remove()
    return seen


def plan(learner: Any, updates: int) -> list[float] | None:
    """What `share_of_peak` gives for each of `updates` updates and for the one after them; None where there is none."""
    if not hasattr(learner.policy, "share_of_peak"):
        return None
    return [float(learner.policy.share_of_peak(update, updates)) for update in range(updates + 1)]
