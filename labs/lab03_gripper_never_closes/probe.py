"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import OBSERVATION_KEYS
from labs.vla.rollout import rollout
from labs.vla.training import fit, overfit

BATCH_SIZE = 32
TRAINING_STEPS = 150


def losses(learner: Any, batch: dict[str, Tensor], seed: int, factor: float = 1.0) -> dict[str, Tensor]:
    """The loss of a fresh policy on `batch`: in evaluation mode without gradients, and in training mode with them."""
    policy = _policy(learner, seed, factor)
    with torch.no_grad():
        evaluation = policy.eval()(**batch).loss
    return {"evaluation": evaluation, "training": policy.train()(**batch).loss.detach()}


def action(learner: Any, batch: dict[str, Tensor], seed: int, factor: float) -> Tensor:
    """The chunk that a fresh policy predicts."""
    return _policy(learner, seed, factor).eval().predict(batch)


def gradients(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, float]:
    """Norm of every parameter's gradient after one backward; -1 if there is none."""
    policy = learner.policy.GraspPolicy.from_base(seed=seed)
    policy(**batch).loss.backward()
    return {
        name: -1.0 if parameter.grad is None else float(parameter.grad.norm())
        for name, parameter in policy.named_parameters()
    }


@torch.no_grad()
def operands(learner: Any, batch: dict[str, Tensor], seed: int) -> list[list[Any]]:
    """The name and the two shapes of every subtraction and multiplication in `policy.loss`."""
    policy = learner.policy.GraspPolicy.from_base(seed=seed).eval()
    feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
    with _Operands() as seen:
        policy.loss(feature, batch["action"], batch["action_is_pad"])
    return seen.found


def commands_after_overfitting(learner: Any, seed: int, steps: int) -> dict[str, Tensor]:
    """Gripper commands (B,) for one batch of demonstrations after `steps` on nothing else, and the expert's."""
    policy = learner.policy.GraspPolicy.from_base(seed=seed)
    batch = next(batches(demonstrations(BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))
    overfit(policy, batch, steps, seed=seed)
    return {"command": policy.predict(batch)[:, 0, 2], "target": _expert_commands(batch)}


def trained_rollout(learner: Any, seed: int, episodes: int) -> dict[str, Any]:
    """Fine-tune from the base and run closed-loop episodes."""
    policy = learner.policy.GraspPolicy.from_base(seed=seed)
    losses = fit(policy, demonstrations(TRAINING_STEPS * 64, seed), steps=TRAINING_STEPS, seed=seed)
    result = rollout(policy, episodes=episodes, first_seed=500_000 + seed)
    return {
        "final_loss": sum(losses[-20:]) / 20,
        "success": torch.from_numpy(result.success),
        "wrong_block": torch.from_numpy(result.wrong_block),
        "distance": torch.from_numpy(result.distance),
    }


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of demonstrations."""
    policy = learner.policy.GraspPolicy.from_base(seed=0)
    batch = next(batches(demonstrations(BATCH_SIZE, seed=3), BATCH_SIZE, steps=1, seed=3))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    return {"model": policy, "batch": batch, "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """Trains the policy and lets it act: what `lab run 03` shows."""
    seed = 3
    policy = learner.policy.GraspPolicy.from_base(seed=seed)
    print(f"Fine-tuning GraspPolicy from the base, {TRAINING_STEPS} steps\n\n  step    loss")

    def report(step: int, loss: float) -> None:
        if step % 25 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)

    fit(policy, demonstrations(TRAINING_STEPS * 64, seed), steps=TRAINING_STEPS, seed=seed, on_step=report)
    result = rollout(policy, episodes=50)
    batch = next(batches(demonstrations(256, seed=4), 256, steps=1, seed=4))
    command, expert = policy.predict(batch)[:, 0, 2], _expert_commands(batch)
    print(
        f"\n50 episodes: {result.success_rate:.0%} success, {result.never_closed_rate:.0%} never closed the gripper\n"
        f"median distance to the named block at the end {100 * result.final_distance:.0f} cm (closing reaches 7 cm)\n"
        f"gripper command where the expert closes {command[expert > 0].mean():+.2f}, "
        f"elsewhere {command[expert < 0].mean():+.2f} (closes above 0)"
    )


def _expert_commands(batch: dict[str, Tensor]) -> Tensor:
    """Whether the expert closes within the two executed steps, -1 or +1, (B,)."""
    return batch["action"][:, :2, 2].amax(dim=1)


def _policy(learner: Any, seed: int, factor: float) -> Any:
    """A fresh policy with the parameters of both heads multiplied by `factor`."""
    policy = learner.policy.GraspPolicy.from_base(seed=seed)
    with torch.no_grad():
        for parameter in policy.head.parameters():
            parameter.mul_(factor)
    return policy


class _Operands(TorchFunctionMode):
    """Records the operand shapes of every subtraction and multiplication, and of torch's own squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[list[Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = _OPERATIONS.get(getattr(func, "__name__", ""))
        tensors = [value for value in args if isinstance(value, Tensor)]
        if name is not None and len(tensors) == 2:
            self.found.append([name, *(list(tensor.shape) for tensor in tensors)])
        return func(*args, **(kwargs or {}))


_OPERATIONS = dict.fromkeys(("sub", "subtract", "__sub__", "rsub", "__rsub__", "mse_loss"), "subtraction")
_OPERATIONS |= dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), "multiplication")
