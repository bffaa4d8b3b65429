"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.dataset import batches, demonstrations

BATCH_SIZE = 16
HELD_OUT_BATCHES = 4
TRAINING_STEPS = 40


def validation(learner: Any, batch: dict[str, Tensor], sizes: list[int], seed: int) -> dict[str, Any]:
    """Validate a policy on `batch`, cut into batches of `sizes`, with its vision tower in evaluation mode.

    Returns the three fields of the result, which of them require a gradient, the bytes kept for a backward pass (the
    peak, and the rest while the result is held), and the state of the policy and of torch afterwards.
    """
    policy = learner.policy.build_policy(seed)
    policy.train()
    policy.vision.eval()
    modes = [module.training for module in policy.modules()]
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    with KeptForBackward(policy) as kept:
        result = learner.policy.validate(policy, _cut(batch, sizes))
        alive = kept.alive
    fields = {"loss": result.loss, "error": result.error, "valid": result.valid}
    return {
        **{name: value.detach() for name, value in fields.items()},
        "along_the_chunk": result.along_the_chunk().detach(),
        "requires_grad": [name for name, value in fields.items() if value.requires_grad],
        "most_bytes": kept.most,
        "left_bytes": alive,
        "modes_changed": sum(module.training != mode for module, mode in zip(policy.modules(), modes, strict=True)),
        "frozen": [name for name, parameter in policy.named_parameters() if not parameter.requires_grad],
        "changed": [name for name, value in policy.state_dict().items() if not torch.equal(value, before[name])],
        "gradients_enabled": torch.is_grad_enabled(),
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


def _cut(batch: dict[str, Tensor], sizes: list[int]) -> list[dict[str, Tensor]]:
    parts = {name: value.split(sizes) for name, value in batch.items()}
    return [{name: part[index] for name, part in parts.items()} for index in range(len(sizes))]
