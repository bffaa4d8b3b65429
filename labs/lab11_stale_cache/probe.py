"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from debugkit import Declare
from labs.vla.dataset import batches, demonstrations

TRAINING_STEPS = 100
BATCH_SIZE = 32
TRAINED = ("projector.*", "proprioception.*", "language_model.layers.*", "language_model.norm.*", "head.*")


def trainable(learner: Any) -> dict[str, bool]:
    """Which parameters of a fresh policy require a gradient."""
    return {name: parameter.requires_grad for name, parameter in learner.policy.build_policy(0).named_parameters()}


def training(learner: Any, batch: dict[str, Tensor], seed: int, steps: int) -> dict[str, Any]:
    """`steps` of the learner's own training on one batch: losses, every parameter before and after, and gradients.

    `gradients` are those of the last step, of the parameters that have one; `rates` are the optimizer's learning rates
    of the parameters that it holds.
    """
    policy = learner.policy.build_policy(seed)
    optimizer = learner.policy.build_optimizer(policy)
    rates = {id(value): group["lr"] for group in optimizer.param_groups for value in group["params"]}
    before, modes, losses = _values(policy), set(), []
    policy.head.register_forward_hook(lambda *_: modes.add(policy.training))
    for _ in range(steps):
        policy.eval()
        losses.append(learner.policy.train_step(policy, optimizer, batch))
    own = dict(policy.named_parameters())
    return {
        "before": before,
        "after": _values(policy),
        "losses": torch.tensor(losses),
        "gradients": {name: value.grad for name, value in own.items() if value.grad is not None},
        "rates": {name: rates[id(value)] for name, value in own.items() if id(value) in rates},
        "modes": sorted(modes),
    }


def frozen_by(learner: Any, patterns: list[str], already: list[str]) -> dict[str, Any]:
    """What `freeze` does to a policy of which the parameters `already` are frozen, given an iterator of patterns.

    What it raised, if anything, the names that it returned, the parameters that are frozen afterwards, and whether
    values or modes are different. `cleared` are the parameters that train afterwards and whose gradient it changed,
    `replaced` those that are another tensor.
    """
    policy = learner.policy.Policy.from_base().train(len(patterns) > 1)
    before, mode = _values(policy), policy.training
    for name in already:
        policy.get_parameter(name).requires_grad_(False)
    own = dict(policy.named_parameters())
    for value in own.values():
        value.grad = torch.full_like(value, 0.5) if value.requires_grad else None
    raised, message, returned = None, "", []
    try:
        returned = list(learner.policy.freeze(policy, iter(patterns)))
    except Exception as error:  # the check decides whether it is the expected one
        raised, message = type(error).__name__, str(error)
    frozen = [name for name, parameter in policy.named_parameters() if not parameter.requires_grad]
    trains = {name: value for name, value in policy.named_parameters() if value.requires_grad}
    same = all(torch.equal(before[name], value) for name, value in _values(policy).items())
    modes = {module.training for module in policy.modules()}
    kept = same and modes == {mode}
    return {
        "raised": raised,
        "message": message,
        "returned": returned,
        "frozen": frozen,
        "kept": kept,
        "cleared": [name for name, value in trains.items() if value.grad is None or bool((value.grad != 0.5).any())],
        "replaced": [name for name, value in policy.named_parameters() if value is not own.get(name)],
    }


def grouped(learner: Any, frozen: list[str]) -> dict[str, Any]:
    """The names in each group and its weight decay, and the log, where the parameters `frozen` are frozen.

    Also which of the functions changes the mode of a policy in training or in evaluation.
    """
    policy = learner.policy.Policy.from_base()
    names = {id(value): name for name, value in policy.named_parameters()}
    for name in frozen:
        policy.get_parameter(name).requires_grad_(False)
    groups = learner.policy.parameter_groups(policy)
    return {
        "names": [[names[id(value)] for value in group["params"]] for group in groups],
        "decay": [float(group.get("weight_decay", 0.01)) for group in groups],
        "log": learner.policy.describe(policy),
        "change the mode": [
            name for name in ("parameter_groups", "build_optimizer", "describe") if _sets_mode(learner, name)
        ],
    }


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def overfitted(learner: Any, images: Tensor, seed: int, steps: int) -> dict[str, Tensor]:
    """Train on one batch of demonstrations: the losses (steps,), and the tower's features of `images` after it."""
    policy = learner.policy.build_policy(seed)
    optimizer = learner.policy.build_optimizer(policy)
    batch = next(batches(demonstrations(BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))
    losses = [learner.policy.train_step(policy, optimizer, batch) for _ in range(steps)]
    return {"losses": torch.tensor(losses), "features": _features(policy, images)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy, its own optimizer, and the docstring's trainable parameters."""
    policy = learner.policy.build_policy(0)
    batch = next(batches(demonstrations(BATCH_SIZE, seed=11), BATCH_SIZE, steps=1, seed=11))
    return {
        "model": policy,
        "batch": batch,
        "optimizer": learner.policy.build_optimizer(policy),
        "declare": Declare(trainable=TRAINED, pretrained=True),
    }


def symptom(learner: Any) -> None:
    """Caches features, trains, and compares the tower with its cache: what `lab run 11` shows."""
    policy = learner.policy.build_policy(11)
    optimizer = learner.policy.build_optimizer(policy)
    frames = demonstrations(256, seed=3)
    pictures = next(batches(frames, 256, steps=1, seed=3))["pixel_values"]
    cached, before = _features(policy, pictures), _values(policy)
    print(f"Features of {len(pictures)} images cached; {learner.policy.describe(policy)}\n\n  step    loss")
    stream = batches(demonstrations(TRAINING_STEPS * BATCH_SIZE, 11), BATCH_SIZE, TRAINING_STEPS, seed=11)
    for step, batch in enumerate(stream):
        loss = learner.policy.train_step(policy, optimizer, batch)
        if step % 25 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)
    now = _features(policy, pictures)
    changed = {name for name, value in _values(policy).items() if not torch.equal(value, before[name])}
    off = float((now - cached).norm() / (cached - cached.mean(dim=(0, 1))).norm())
    print("\nThe same images again, tower compared with cache:")
    print(f"  features that are still bit-equal    {float((now == cached).double().mean()):8.0%}")
    print(f"  difference / spread of the features  {off:8.0%}")
    print("\nTensors that training changed:")
    stay = {"vision tower": "vision.", "token embeddings": "language_model.embed_tokens."}
    for part, prefix in stay.items():
        names = {name for name in before if name.startswith(prefix)}
        print(f"  {part:<17} {len(changed & names):2d} of {len(names):2d}   should stay the same")
    rest = {name for name in before if not name.startswith(tuple(stay.values()))}
    print(f"  {'the rest':<17} {len(changed & rest):2d} of {len(rest):2d}   should learn")


def _sets_mode(learner: Any, name: str) -> bool:
    policy = learner.policy.Policy.from_base()
    changed = []
    for mode in (True, False):
        policy.train(mode)
        getattr(learner.policy, name)(policy)
        changed.append(policy.training != mode)
    return any(changed)


def _features(policy: Any, images: Tensor) -> Tensor:
    with torch.no_grad():
        return policy.eval().vision(pixel_values=images).last_hidden_state


def _values(policy: Any) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}


def grouped_by_dimensions(learner: Any, shapes: dict[str, list[int]], frozen: list[str]) -> dict[str, list[float]]:
    """The weight decays of the groups that hold each parameter of a module with parameters of these shapes."""
    module = nn.Module()
    for name, shape in shapes.items():
        module.register_parameter(name, nn.Parameter(torch.zeros(shape), requires_grad=name not in frozen))
    groups = learner.policy.parameter_groups(module)
    return {
        name: [
            float(group.get("weight_decay", 0.01)) for group in groups if any(value is own for value in group["params"])
        ]
        for name, own in module.named_parameters()
    }
