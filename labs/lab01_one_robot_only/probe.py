"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

import traceback
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labs.vla.dataset import demonstrations
from labs.vla.policy import OBSERVATION_KEYS, PolicyConfig
from labs.vla.rollout import rollout
from labs.vla.training import fit

BATCH_SIZE = 64
TRAINING_STEPS = 200


def train_step(learner: Any, config: dict[str, int], batch: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """One forward and backward of a fresh policy: the loss, the chunk, and which head parameters have a gradient."""
    policy = _policy(learner, config, seed)
    loss = policy(**batch).loss
    loss.backward()
    return {"loss": loss, "gradients": list(_gradients(policy.head)), "chunk": policy.predict(batch)}


def read(learner: Any, config: dict[str, int], noisy: Tensor, feature: Tensor, time: Tensor) -> dict[str, Tensor]:
    """The gradient of a fresh head's velocity with respect to each of its inputs."""
    given = {"feature": feature, "noisy": noisy, "time": time}
    for value in given.values():
        value.requires_grad_()
    velocity = _policy(learner, config, 0).head.velocity(feature, noisy, time)
    torch.sin(velocity + torch.arange(velocity.numel()).view_as(velocity)).sum().backward()
    return {name: torch.zeros_like(value) if value.grad is None else value.grad for name, value in given.items()}


def shapes(learner: Any, config: dict[str, int]) -> dict[str, list[int]]:
    """The shape of every parameter of a fresh head, before it has seen a batch; empty if it has no shape yet."""
    return {
        name: [] if isinstance(parameter, UninitializedParameter) else list(parameter.shape)
        for name, parameter in _policy(learner, config, 0).head.named_parameters()
    }


def seven_joints(learner: Any) -> dict[str, Any]:
    """The sizes in the configuration of the arm with seven joints."""
    config = learner.policy.seven_joint_arm()
    return {name: getattr(config, name) for name in ("action_dim", "horizon", "state_dim")}


def with_parameters(
    learner: Any, config: dict[str, int], parameters: dict[str, Tensor], batch: dict[str, Tensor], seed: int
) -> dict[str, Any]:
    """What a policy with these parameters computes, with `seed` set before each draw.

    The velocity at the batch's own actions, the loss and its gradients, and the chunk in evaluation mode. Loss and
    chunk also when new tensors are on the meta device by default. Or only the parameters that do not fit.
    """
    policy = _policy(learner, config, 0)
    own = policy.state_dict()
    misfits = [name for name, value in parameters.items() if name not in own or own[name].shape != value.shape]
    if misfits:
        return {"misfits": misfits}
    policy.load_state_dict(parameters, strict=False)
    loss = _loss(policy, batch, seed)
    loss.backward()
    with torch.no_grad():
        feature = policy.encode(**_observed(batch))
        velocity = policy.head.velocity(feature, batch["action"], batch["state"][:, 0])
        with torch.device("meta"):
            loss_elsewhere, chunk_elsewhere = _loss(policy, batch, seed), _chunk(policy, batch, seed)
    return {
        "misfits": [],
        "velocity": velocity,
        "loss": loss,
        "gradients": _gradients(policy),
        "chunk": _chunk(policy.eval(), batch, seed),
        "loss elsewhere": loss_elsewhere,
        "chunk elsewhere": chunk_elsewhere,
    }


def moved(learner: Any, config: dict[str, int], feature: Tensor, target: Tensor, is_pad: Tensor) -> dict[str, str]:
    """The devices of the chunk and the loss of a head that is on the meta device, like its inputs."""
    head = _policy(learner, config, 0).head.to("meta")
    feature, target, is_pad = feature.to("meta"), target.to("meta"), is_pad.to("meta")
    return {"chunk": head.predict(feature).device.type, "loss": head.loss(feature, target, is_pad).device.type}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that the pretrained base with a fresh head predicts, from the same noise each time, (B, H, A)."""
    policy = learner.policy.FlowPolicy.from_base(seed=seed).eval()
    torch.manual_seed(seed)
    return policy.predict(batch)


def trained_rollout(learner: Any, seed: int, episodes: int) -> dict[str, Any]:
    """Fine-tune the tabletop's own policy from the base and run closed-loop episodes."""
    policy = learner.policy.FlowPolicy.from_base(seed=seed)
    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, seed)
    losses = fit(policy, frames, steps=TRAINING_STEPS, seed=seed, batch_size=BATCH_SIZE)
    result = rollout(policy, episodes=episodes, first_seed=500_000 + seed)
    return {"final_loss": sum(losses[-20:]) / 20, "success": torch.from_numpy(result.success)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a policy for the arm with seven joints, and a batch of its shapes."""
    policy = learner.policy.FlowPolicy(learner.policy.seven_joint_arm())
    return {
        "model": policy,
        "batch": _random_batch(policy.config, 8),
        "optimizer": torch.optim.AdamW(policy.parameters()),
    }


def symptom(learner: Any) -> None:
    """One batch for each of two robots: what `lab run 01` shows."""
    for name, config in (
        ("the tabletop robot", PolicyConfig.tiny()),
        ("an arm with seven joints", learner.policy.seven_joint_arm()),
    ):
        print(f"One batch for {name}: chunks of {config.horizon} x {config.action_dim}")
        policy = learner.policy.FlowPolicy(config)
        try:
            loss = policy(**_random_batch(config, 32)).loss
        except RuntimeError as error:
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/torch/" not in frame.filename]
            print("  Traceback (most recent call last):")
            for frame in frames[-4:]:
                file = frame.filename.rpartition("/labs/vla/")
                where = f"labs/vla/{file[2]}" if file[1] else frame.filename.rpartition("/")[2]
                print(f"    {where}:{frame.lineno} in {frame.name}\n      {frame.line}")
            print(f"  RuntimeError: {error}")
        else:
            print(f"  loss {loss:.3f}\n")


def _policy(learner: Any, config: dict[str, int], seed: int) -> Any:
    torch.manual_seed(seed)
    return learner.policy.FlowPolicy(PolicyConfig(**config))


def _observed(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: batch[name] for name in OBSERVATION_KEYS}


def _gradients(module: nn.Module) -> dict[str, Tensor]:
    """The gradient of every parameter that has one."""
    return {name: value.grad for name, value in module.named_parameters() if value.grad is not None}


def _loss(policy: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    torch.manual_seed(seed)
    loss: Tensor = policy(**batch).loss
    return loss


def _chunk(policy: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    torch.manual_seed(seed)
    chunk: Tensor = policy(**_observed(batch)).action.detach()
    return chunk


def _random_batch(config: PolicyConfig, size: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "pixel_values": torch.randn(size, 3, config.image_size, config.image_size, generator=generator),
        "input_ids": torch.randint(2, config.vocabulary_size, (size, 8), generator=generator),
        "attention_mask": torch.ones(size, 8, dtype=torch.long),
        "state": torch.randn(size, config.state_dim, generator=generator),
        "action": 0.1 * torch.randn(size, config.horizon, config.action_dim, generator=generator),
        "action_is_pad": torch.zeros(size, config.horizon, dtype=torch.bool),
    }


def drawn_elsewhere(
    learner: Any, config: dict[str, int], feature: Tensor, target: Tensor, is_pad: Tensor
) -> dict[str, list[str]]:
    """The operations that draw random numbers on the device of a head that is on the meta device, like its inputs."""
    head = _policy(learner, config, 0).head.to("meta")
    feature, target, is_pad = feature.to("meta"), target.to("meta"), is_pad.to("meta")
    with _Draws() as loss:
        head.loss(feature, target, is_pad)
    with _Draws() as chunk, torch.no_grad():
        head.predict(feature)
    return {"loss": loss.elsewhere, "chunk": chunk.elsewhere}


class _Draws(TorchDispatchMode):
    """Lists in `elsewhere` the operations that draw random numbers on another device than the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            places = {value.device.type for value in tree_leaves(result) if isinstance(value, Tensor)}
            self.elsewhere += [func.overloadpacket.__name__] if places - {"cpu"} else []
        return result
