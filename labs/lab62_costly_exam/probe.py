"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn

from labs.reference_training import with_dropout
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import PolicyOutput
from labs.vla.randomness import private_randomness

BATCH_SIZE = 16
HELD_OUT_BATCHES = 4
TRAINING_STEPS = 40


def validation(
    learner: Any,
    batch: dict[str, Tensor],
    sizes: list[int],
    seed: int,
    modes: dict[str, bool],
    frozen: list[str],
    gradients: bool,
) -> dict[str, Any]:
    """Validate a policy with dropout on `batch`, cut into batches of `sizes`, and look at what it was before and after.

    Each module of `modes` is put into training mode or evaluation mode, in this order. The modules of `frozen` require
    no gradient; all other parameters have one. `gradients` is torch's setting around the call. Returns the result's
    fields, the bytes kept for a backward pass (the peak, and the rest while the result is held), and both states.
    """
    policy = with_dropout(learner.policy.build_policy(seed))
    for name, mode in modes.items():
        policy.get_submodule(name).train(mode)
    for name in frozen:
        policy.get_submodule(name).requires_grad_(False)
    for parameter in policy.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    with torch.set_grad_enabled(gradients), KeptForBackward(policy) as kept:
        before = _state(policy)
        result = learner.policy.validate(policy, iter(_cut(batch, sizes)))
        alive, after = kept.alive, _state(policy)
    fields = _fields(result)
    return {
        **{name: value.detach() for name, value in fields.items()},
        "requires_grad": [name for name, value in fields.items() if value.requires_grad],
        "most_bytes": kept.most,
        "left_bytes": alive,
        "before": before,
        "after": after,
    }


def fine_tuned(learner: Any, seed: int, steps: int, batch_size: int) -> dict[str, Any]:
    """The record of a short training of a policy with dropout and a frozen projector, on few frames."""
    policy = with_dropout(learner.policy.build_policy(seed)).eval()
    policy.projector.requires_grad_(False)
    frames = demonstrations(steps * batch_size, seed)
    held_out = list(batches(demonstrations(2 * batch_size, seed + 1), batch_size, 2, seed))
    with private_randomness(seed):
        run = learner.policy.train(policy, frames, held_out, steps=steps, batch_size=batch_size, seed=seed)
    return {
        "losses": run.losses,
        "validations": [
            {name: value.detach() for name, value in _fields(result).items()} for result in run.validations
        ],
    }


def long_run(learner: Any, batch: dict[str, Tensor], steps: int) -> dict[str, Any]:
    """The record of a long training, validated on `batch`, whose policy does not look at the frames.

    After n steps, the training loss is n, every step of a chunk has the loss n, and every movement is off by n metres
    along x. A step costs next to nothing: the policy is its head only, of which one
    bias is trained, and its gradient is zero.
    """
    policy = learner.policy.build_policy(0).requires_grad_(False)
    for name in [name for name, _ in policy.named_children() if name != "head"]:
        setattr(policy, name, nn.Identity())
    bias = policy.head.mlp[-1].bias.requires_grad_()
    count = 0

    def forward(**_: Tensor) -> PolicyOutput:
        nonlocal count
        count += 1
        return PolicyOutput(loss=count + 0.0 * bias.sum())

    def act_and_score(given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        off = torch.tensor([1.0, 0.0, 0.0]) * count
        return given["action"] + off, torch.full(given["action"].shape[:2], float(count))

    policy.forward, policy.act_and_score = forward, act_and_score
    run = learner.policy.train(policy, demonstrations(steps, seed=62), [batch], steps=steps, batch_size=1, seed=62)
    return {
        "losses": torch.tensor(run.losses),
        "validation_losses": torch.stack([result.loss for result in run.validations]),
        "errors": torch.stack([result.error.mean() for result in run.validations]),
        "frames": [len(result.error) for result in run.validations],
    }


def training_bytes(learner: Any, batch: dict[str, Tensor], seed: int) -> int:
    """The most bytes that one training step on `batch` keeps for its backward pass."""
    policy = learner.policy.build_policy(seed)
    policy.train()
    with KeptForBackward(policy) as kept:
        policy(**batch).loss.backward()
    return kept.most


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a newly built policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def trained_run(learner: Any, seed: int) -> dict[str, Any]:
    """A short training with the learner's loop: its losses, its validations, and the bytes that each left behind."""
    policy, run, seen = _train(learner, seed)
    return {
        "losses": run.losses,
        "validation_losses": [float(validation.loss) for validation in run.validations],
        "frames": [len(validation.error) for validation in run.validations],
        "left_bytes": [left for _, left in seen],
        "training": policy.training,
    }


def subject(learner: Any) -> dict[str, Any]:
    """debugkit's arguments: a newly built policy, a batch, and a few steps of the learner's loop."""
    policy = learner.policy.build_policy(0)
    held_out = list(batches(demonstrations(2 * BATCH_SIZE, seed=63), BATCH_SIZE, steps=2, seed=63))
    frames = demonstrations(20 * BATCH_SIZE, seed=62)

    def loop() -> None:
        learner.policy.train(policy, frames, held_out, steps=20, batch_size=BATCH_SIZE, seed=62)

    return {"model": policy, "batch": held_out[0], "loop": loop}


def symptom(learner: Any) -> None:
    """Train, validate every ten steps, and print what each keeps in memory: what `lab run 62` shows."""
    batch = next(batches(demonstrations(BATCH_SIZE, seed=62), BATCH_SIZE, steps=1, seed=62))
    training = training_bytes(learner, batch, seed=0)
    print(f"Training on batches of {BATCH_SIZE}; every ten steps {HELD_OUT_BATCHES * BATCH_SIZE} held-out frames\n")
    print("                 loss    kept for a backward pass, at most    left behind")
    print(f"  one training step      {training / 1e6:20.1f} MB {0:19.1f} MB")
    _, run, seen = _train(learner, 62)
    for number, (validation, (most, left)) in enumerate(zip(run.validations, seen, strict=True), start=1):
        print(f"  validation {number}   {validation.loss:6.3f} {most / 1e6:20.1f} MB {left / 1e6:19.1f} MB")
    print(f"\n  after {len(run.losses)} steps, error along the chunk in cm: ", end="")
    print("  ".join(f"{100 * error:.1f}" for error in run.validations[-1].along_the_chunk().tolist()))


class KeptForBackward:
    """Bytes of the storages that autograd keeps for backward passes: `alive` is the current value, `most` the peak.

    Parameters are excluded, because they exist anyway. Each storage counts once, however many operations keep it.
    """

    def __init__(self, policy: nn.Module) -> None:
        self._parameters = {parameter.untyped_storage().data_ptr() for parameter in policy.parameters()}
        self._holders: dict[int, int] = {}
        self._bytes: dict[int, int] = {}
        self.most = 0
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._keep, lambda held: held.tensor)

    @property
    def alive(self) -> int:
        """The bytes that are kept now."""
        return sum(self._bytes.values())

    def __enter__(self) -> KeptForBackward:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)

    def _keep(self, tensor: Tensor) -> _Held:
        # Keeping the tensor itself would keep its graph alive, so nothing would ever be freed.
        held = _Held(tensor.detach())
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if key not in self._parameters:
            self._holders[key] = self._holders.get(key, 0) + 1
            self._bytes[key] = storage.nbytes()
            self.most = max(self.most, self.alive)
            weakref.finalize(held, self._drop, key)
        return held

    def _drop(self, key: int) -> None:
        self._holders[key] -= 1
        if self._holders[key] == 0:
            del self._holders[key], self._bytes[key]


class _Held:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def _train(learner: Any, seed: int) -> tuple[Any, Any, list[tuple[int, int]]]:
    """The policy, the learner's Run, and for each validation the peak of the bytes kept and the bytes left behind."""
    policy = learner.policy.build_policy(seed)
    count = HELD_OUT_BATCHES * BATCH_SIZE
    held_out = list(batches(demonstrations(count, seed + 400_000), BATCH_SIZE, HELD_OUT_BATCHES, seed))
    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, seed)
    validate, seen = learner.policy.validate, []
    with KeptForBackward(policy) as kept:

        def watched(*args: Any, **kwargs: Any) -> Any:
            kept.most = kept.alive
            result = validate(*args, **kwargs)
            seen.append((kept.most, kept.alive))
            return result

        learner.policy.validate = watched
        try:
            run = learner.policy.train(policy, frames, held_out, steps=TRAINING_STEPS, batch_size=BATCH_SIZE, seed=seed)
        finally:
            learner.policy.validate = validate
    return policy, run, seen


def _fields(result: Any) -> dict[str, Tensor]:
    return {
        "loss": result.loss,
        "error": result.error,
        "valid": result.valid,
        "along_the_chunk": result.along_the_chunk(),
    }


def _state(policy: nn.Module) -> dict[str, Any]:
    """What a validation must not change: by the name of the module or tensor."""
    parameters = dict(policy.named_parameters())
    return {
        "modes": {name: module.training for name, module in policy.named_modules()},
        "requires_grad": {name: parameter.requires_grad for name, parameter in parameters.items()},
        "values": {name: value.clone() for name, value in policy.state_dict().items()},
        "gradients": {name: value.grad.clone() for name, value in parameters.items() if value.grad is not None},
        "enabled": torch.is_grad_enabled(),
    }


def _cut(batch: dict[str, Tensor], sizes: list[int]) -> list[dict[str, Tensor]]:
    parts = {name: value.split(sizes) for name, value in batch.items()}
    return [{name: part[index] for name, part in parts.items()} for index in range(len(sizes))]
