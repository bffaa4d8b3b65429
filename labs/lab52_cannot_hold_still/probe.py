"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.randomness import private_randomness
from labs.vla.rollout import Rollout, rollout

BATCH_SIZE = 32
TRAINING_STEPS, VALIDATE_EVERY = 160, 20
FAILS_AT = 3
"""Which validation of `lab run 52` fails on a frame that cannot be decoded."""
HEAD_SCALE = 30.0
ERRORS = {error.__name__: error for error in (OSError, KeyboardInterrupt, ArithmeticError)}


def modes(
    learner: Any, training: bool, other: list[str], through: str, batch: dict[str, Tensor], raises: str | None
) -> dict[str, Any]:
    """Each module's `training`, by path, before, inside and after an evaluation; the root's path is empty.

    The policy is in training mode if `training`, except for the modules whose paths begin with one of `other`.
    `through` is the function of policy.py that is called; "act in a block" is an `act` in a block under `evaluating`,
    after which the modes are those `inside`. `raises` is the exception that is raised in a block under
    `evaluating`, and `raised` the one that left it. `gradients`: whether they were enabled inside.
    """
    policy = learner.policy.build_policy(0)
    policy.train(training)
    for path, module in policy.named_modules():
        if path.startswith(tuple(other)):
            module.training = not training
    seen: dict[str, Any] = {"before": _modes(policy), "inside": {}, "gradients": None, "raised": None}

    def look(*_: Any) -> None:
        seen.update(inside=_modes(policy), gradients=torch.is_grad_enabled())

    handle = policy.language_model.register_forward_pre_hook(look)
    try:
        if through == "act":
            learner.policy.act(policy, batch)
        elif through == "validate":
            learner.policy.validate(policy, [batch])
        elif through == "act in a block":
            with learner.policy.evaluating(policy):
                learner.policy.act(policy, batch)
                look()
        else:
            with learner.policy.evaluating(policy):
                look()
                if raises is not None:
                    raise ERRORS[raises]("a frame cannot be decoded")
    except (OSError, KeyboardInterrupt) as error:  # the check decides whether it is the expected one
        seen["raised"] = type(error).__name__
    finally:
        handle.remove()
    return {**seen, "after": _modes(policy)}


def settings(learner: Any, seed: int, part: str) -> dict[str, Any]:
    """What a built policy holds, and what its optimizer is; `changes_modes`: whether the latter changed a mode."""
    policy = learner.policy.build_policy(seed)
    policy.get_submodule(part).eval()
    before = _modes(policy)
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
        "changes_modes": before != _modes(policy),
    }


def asked_twice(learner: Any, batches: list[dict[str, Tensor]], seed: int, training: bool) -> dict[str, Any]:
    """Two chunks (B, H, 3) and two validation losses of one policy, which is in training mode if `training`.

    The head's last weights are larger than those of a new head, so that its actions are far apart.
    """
    policy = learner.policy.build_policy(seed)
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(HEAD_SCALE)
    policy.train(training)
    with private_randomness(seed):
        chunks = [learner.policy.act(policy, batches[0]) for _ in range(2)]
        losses = [learner.policy.validate(policy, batches) for _ in range(2)]
    return {"chunks": chunks, "losses": losses}


def training_passes(
    learner: Any,
    stream: list[dict[str, Tensor]],
    validation: list[dict[str, Tensor]],
    seed: int,
    fails_at: int,
    error: str = "OSError",
    decoded: int = 0,
) -> dict[str, Any]:
    """Run the learner's training with a validation after every second step; validation number `fails_at` raises.

    It raises after its first `decoded` batches. The policy is in evaluation mode when training begins. For each
    optimizer step: the root's mode, the fraction of the head's input that was exactly 0, and the norm of each
    parameter's gradient. For each forward pass in a validation: whether gradients were enabled. `losses`, the steps
    `validated` and `validation` come from the log; `after` has the modes after training, and `moved` how far each
    weight moved.
    """
    policy = learner.policy.build_policy(seed).eval()
    start = {name: value.clone() for name, value in policy.state_dict().items()}
    root: list[bool] = []
    dropped: list[float] = []
    graphs: list[bool] = []
    shares: list[float] = []
    norms: list[dict[str, float]] = []

    def look(_: Any, inputs: tuple[Any, ...]) -> None:
        if torch.is_grad_enabled():
            shares.append(float((inputs[0] == 0).double().mean()))

    def note(*_: Any) -> None:
        root.append(policy.training)
        dropped.append(shares[-1] if shares else -1.0)
        norms.append({name: float(p.grad.norm()) for name, p in policy.named_parameters() if p.grad is not None})

    frames = _Validation(validation, fails_at, lambda: graphs.append(torch.is_grad_enabled()), error, decoded)
    handles = (policy.head.register_forward_pre_hook(look), register_optimizer_step_pre_hook(note))
    raised, log = None, None
    try:
        with private_randomness(seed):
            log = learner.policy.train(policy, learner.policy.build_optimizer(policy), stream, frames, every=2)
    except (OSError, ArithmeticError) as fault:  # the check decides whether it is the expected one
        raised = type(fault).__name__
    finally:
        for handle in handles:
            handle.remove()
    return {
        "raised": raised,
        "training": root,
        "dropped": torch.tensor(dropped),
        "norms": norms,
        "graphs": graphs,
        "losses": [] if log is None else list(log.losses),
        "validated": [] if log is None else list(log.validation),
        "validation": [] if log is None else list(log.validation.values()),
        "after": _modes(policy),
        "moved": {name: value - start[name] for name, value in policy.state_dict().items()},
    }


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk (B, H, 3) that `act` returns for a newly built policy in evaluation mode."""
    with private_randomness(seed):
        return learner.policy.act(learner.policy.build_policy(seed).eval(), batch)


def trained_rollouts(learner: Any, seed: int, episodes: int, steps: int) -> dict[str, Any]:
    """Train with a validation that fails, then run the same episodes twice, with actions from `act`."""
    policy, log = _train(learner, seed, steps)
    first, second = (_rollout(learner, policy, episodes, 500_000 + seed, run) for run in (0, 1))
    return {
        "success": [torch.from_numpy(result.success) for result in (first, second)],
        "distance": [torch.from_numpy(result.distance) for result in (first, second)],
        "validation": list(log.validation.values())[-1],
    }


def subject(learner: Any) -> dict[str, Any]:
    """debugkit's arguments: the loss as the script computes it in each mode, and a run with a failing validation."""
    policy = learner.policy.build_policy(0)
    optimizer = learner.policy.build_optimizer(policy)
    stream = list(batches(demonstrations(8 * BATCH_SIZE, seed=52), BATCH_SIZE, steps=8, seed=52))

    def loss_fn(model: Any, batch: dict[str, Tensor]) -> Tensor:
        return model(**batch).loss if model.training else torch.tensor(learner.policy.validate(model, [batch]))

    def loop() -> None:
        learner.policy.train(policy, optimizer, stream, _Validation(stream[:1], fails_at=1), every=3)

    return {"model": policy, "batch": stream[0], "optimizer": optimizer, "loss_fn": loss_fn, "loop": loop}


def symptom(learner: Any) -> None:
    """Train, predict ten times from the same input, and run the same episodes three times: what `lab run 52` shows."""
    print("  step  training  validation")
    policy, log = _train(learner, 52, TRAINING_STEPS)
    for step, loss in log.validation.items():
        recent = log.losses[step - VALIDATE_EVERY : step]
        shown = f"{loss:10.3f}" if loss == loss else "    failed: frame 217 cannot be decoded"
        print(f"{step:6d}  {sum(recent) / len(recent):8.3f}  {shown}")
    batch = next(batches(demonstrations(64, seed=3), 64, steps=1, seed=3))
    with private_randomness(0):
        answers = torch.stack([learner.policy.act(policy, batch) for _ in range(10)])[..., 0, :2]  # (10, B, 2)
    print("\nTen predictions from the same observation: the first action's target")
    spread = (answers.amax(dim=0) - answers.amin(dim=0)).norm(dim=-1)  # (B,) metres
    print(f"  differs by {1000 * float(spread.median()):.1f} mm (median of 64)")
    print("\nThe same 50 episodes, three times:")
    for run in range(3):
        result = _rollout(learner, policy, 50, 10_000, run)
        print(f"  {result.success_rate:4.0%} success, {result.steps.sum()} actions")


class _Validation:
    """Batches that can be iterated repeatedly, except for one pass, which has only `decoded` of them."""

    def __init__(
        self,
        frames: list[Batch],
        fails_at: int,
        on_batch: Any = lambda: None,
        error: str = "OSError",
        decoded: int = 0,
    ) -> None:
        self.frames, self.fails_at, self.on_batch, self.error = frames, fails_at, on_batch, ERRORS[error]
        self.times, self.decoded = 0, decoded

    def __iter__(self) -> Iterator[Batch]:
        self.times += 1
        for number, batch in enumerate(self.frames):
            if self.times == self.fails_at and number == self.decoded:
                raise self.error("frame 217 cannot be decoded")
            self.on_batch()
            yield batch


def _train(learner: Any, seed: int, steps: int) -> tuple[Any, Any]:
    policy = learner.policy.build_policy(seed)
    stream = batches(demonstrations(steps * BATCH_SIZE, seed), BATCH_SIZE, steps, seed)
    held_out = next(batches(demonstrations(128, seed + 1), 128, steps=1, seed=0))
    with private_randomness(seed):
        log = learner.policy.train(
            policy, learner.policy.build_optimizer(policy), stream, _Validation([held_out], FAILS_AT), VALIDATE_EVERY
        )
    return policy, log


def _rollout(learner: Any, policy: Any, episodes: int, first_seed: int, run: int) -> Rollout:
    """Closed-loop episodes through `act`, with different random numbers in each run: a robot is not seeded."""
    draws = count(1_000 * run)

    def predict(observation: Batch) -> Tensor:
        with private_randomness(next(draws)):
            return learner.policy.act(policy, observation)

    return rollout(policy, episodes=episodes, first_seed=first_seed, predict=predict)


def _modes(policy: Any) -> dict[str, bool]:
    return {path: module.training for path, module in policy.named_modules()}
