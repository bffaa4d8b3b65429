"""Measures the learner's head for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.policy import OBSERVATION_KEYS
from labs.vla.randomness import private_randomness
from labs.vla.rollout import rollout

BATCH_SIZE = 64
TRAINING_FRAMES = 512


def training_times(learner: Any, frames: int, half: bool, training: bool, seed: int) -> dict[str, Any]:
    """The times at which the head is asked for a velocity in one loss of that many frames, and their dtype.

    If not `training`, the head is in evaluation mode and gradients are not recorded.
    """
    head = _head(learner, 1, 1, 1, half).train(training)
    asked = _answered(head, torch.zeros(1, 1))
    with private_randomness(seed), torch.set_grad_enabled(training):
        head.loss(torch.zeros(frames, 1, dtype=_dtype(half)), torch.zeros(frames, 1, 1), _no_padding(frames, 1))
    times = torch.cat([one["time"] for one in asked])
    return {"time": times.double(), "dtype": str(times.dtype)}


def times_of_zeros(learner: Any, frames: int) -> Tensor:
    """The times (N,) of a loss in bfloat16 in which the first two calls of `Tensor.uniform_` draw nothing but zeros."""
    head = _head(learner, 1, 1, 1, half=True)
    asked = _answered(head, torch.zeros(1, 1))
    calls, uniform = [0], Tensor.uniform_

    def zeros(self: Tensor, *arguments: Any, **keywords: Any) -> Tensor:
        calls[0] += 1
        return self.zero_() if calls[0] <= 2 else uniform(self, *arguments, **keywords)

    Tensor.uniform_ = zeros
    try:
        head.loss(torch.zeros(frames, 1).bfloat16(), torch.zeros(frames, 1, 1), _no_padding(frames, 1))
    finally:
        Tensor.uniform_ = uniform
    return torch.cat([one["time"] for one in asked]).double()


def losses(
    learner: Any, feature: Tensor, target: Tensor, is_pad: Tensor, answer: Tensor, half: bool, seeds: list[int]
) -> list[dict[str, Any]]:
    """For each seed two losses in a row, of a head that answers every question with the velocity `answer` (H, A).

    Each has `loss`, its dtype, and what the head was asked: `feature` (N, D), `noisy` (N, H, A) and `time` (N,).
    """
    head = _head(learner, feature.shape[1], *target.shape[1:], half)
    asked = _answered(head, answer)
    seen = []
    for seed in seeds:
        with private_randomness(seed):
            for _ in range(2):
                asked.clear()
                loss = head.loss(feature.to(_dtype(half)), target, is_pad)
                inputs = {name: torch.cat([one[name].float() for one in asked]) for name in asked[0]}
                seen.append({"loss": loss.detach().double(), "dtype": str(loss.dtype), **inputs})
    return seen


def velocity(learner: Any, weights: dict[str, Tensor], asked: dict[str, Tensor], half: bool) -> dict[str, Any]:
    """The velocity of a head with these weights at the feature (N, D), the noisy chunk (N, H, A) and the time (N,)."""
    feature, noisy = asked["feature"], asked["noisy"]
    head = learner.policy.FlowHead(feature.shape[1], *noisy.shape[1:])
    head.load_state_dict(weights)
    head = head.to(_dtype(half))
    with torch.no_grad():
        output = head(feature.to(_dtype(half)), noisy, asked["time"])
    return {"velocity": output.float(), "dtype": str(output.dtype)}


def integrated(learner: Any, feature: Tensor, half: bool, seed: int) -> dict[str, Any]:
    """The chunk predicted with the velocity `noisy / 2 + time + feature`, its noise, and its times (10, N)."""
    head = _head(learner, feature.shape[1], 4, 3, half)
    asked: list[dict[str, Tensor]] = []

    def pulled(feature: Tensor, noisy: Tensor, time: Tensor) -> Tensor:
        asked.append({"noisy": noisy.clone(), "time": time.clone()})
        return noisy / 2 + time[:, None, None] + feature[:, :1, None].float()

    head.forward = pulled
    with private_randomness(seed), torch.no_grad():
        chunk = head.predict(feature.to(_dtype(half)))
    times = torch.stack([one["time"].float() for one in asked])
    return {"chunk": chunk, "start": asked[0]["noisy"], "times": times}


def built(learner: Any, half: bool, batch: Batch, seed: int) -> dict[str, Any]:
    """A policy after one backward: its weights, their dtypes and gradients' norms, its feature and its loss."""
    policy = learner.policy.build_policy(seed, *([] if half else [torch.float32]))
    with private_randomness(seed):
        loss = policy(**batch).loss
    loss.backward()
    feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
    return {
        "weights": policy.state_dict(),
        "dtypes": {name: str(one.dtype) for name, one in policy.named_parameters()},
        "feature": feature.float(),
        "feature_dtype": str(feature.dtype),
        "loss": loss.detach(),
        "gradients": {name: float(one.grad.norm()) for name, one in policy.named_parameters() if one.grad is not None},
        "trainable": [name for name, one in policy.named_parameters() if one.requires_grad],
    }


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The chunk that a fresh policy predicts from the noise of the seed, (B, H, 3)."""
    policy = learner.policy.build_policy(seed).eval()
    with private_randomness(seed):
        return policy.predict(batch)


def trained(learner: Any, seed: int, steps: int, episodes: int) -> dict[str, Any]:
    """Losses of a short training in bfloat16, and which closed-loop episodes succeed after it."""
    policy, losses = _trained(learner, seed, steps)
    with private_randomness(seed):
        result = rollout(policy, episodes=episodes, first_seed=500_000 + seed)
    return {"losses": torch.tensor(losses), "success": torch.from_numpy(result.success)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a trained head, and the first of 3,000 seeds with which its loss fails, or 0."""
    policy, _ = _trained(learner, 0, 100)  # before that the feature hardly moves the loss
    batch = _recordings(128, 26)
    given = {
        "feature": policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS}),
        "target": policy.action_statistics.normalize(batch["action"]),
        "is_pad": batch["action_is_pad"],
    }
    seed = _failing_seed(learner, 128, tries=3000)

    def loss_fn(head: Any, batch: dict[str, Tensor]) -> Tensor:
        with private_randomness(seed):
            loss: Tensor = head.loss(**batch)
        return loss

    return {"model": policy.head, "batch": given, "loss_fn": loss_fn}


def symptom(learner: Any) -> None:
    """Four runs that differ only in their seed: the output of `lab run 26`."""
    steps = 1000
    print(f"Four runs of {steps} steps in bfloat16: the same code and recordings, different seeds\n")
    print("  seed   loss at step 0   50 steps before the end   last step   its loss")
    for seed in range(4):
        _, losses = _trained(learner, seed, steps)
        print(
            f"  {seed:4d}   {losses[0]:14.3f}   {losses[-51]:23.3f}   {len(losses) - 1:9d}   {losses[-1]:8.3f}",
            flush=True,
        )


def _trained(learner: Any, seed: int, steps: int) -> tuple[Any, list[float]]:
    """A fresh policy after its training, and the losses up to the last or to the first that is not finite."""
    policy = learner.policy.build_policy(seed)
    batch = _recordings(TRAINING_FRAMES, seed)
    feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})  # of the frozen part: once is enough
    target = policy.action_statistics.normalize(batch["action"])
    optimizer = torch.optim.AdamW(policy.head.parameters(), lr=1e-3)
    losses: list[float] = []
    with private_randomness(seed):
        for _ in range(steps):
            rows = torch.randint(len(feature), (BATCH_SIZE,))
            loss = policy.head.loss(feature[rows], target[rows], batch["action_is_pad"][rows])
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]):
                break
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return policy, losses


def _failing_seed(learner: Any, frames: int, tries: int) -> int:
    """The first seed whose times contain a NaN, or 0 if none does."""
    head = learner.policy.build_policy(0).head
    feature = torch.zeros(frames, head.mlp[0].in_features, dtype=torch.bfloat16)
    asked = _answered(head, torch.zeros(head.horizon, head.action_dim))
    chunk = torch.zeros(frames, head.horizon, head.action_dim)
    for seed in range(tries):
        asked.clear()
        with private_randomness(seed):
            head.loss(feature, chunk, _no_padding(frames, head.horizon))
        if any(bool(one["time"].isnan().any()) for one in asked):
            return seed
    return 0


def _head(learner: Any, width: int, horizon: int, action_dim: int, half: bool) -> Any:
    return learner.policy.FlowHead(width, horizon, action_dim).to(_dtype(half))


def _answered(head: Any, answer: Tensor) -> list[dict[str, Tensor]]:
    """Make the head answer with the same velocity (H, A) always; the list fills with what it is asked."""
    asked: list[dict[str, Tensor]] = []

    def forward(feature: Tensor, noisy: Tensor, time: Tensor) -> Tensor:
        asked.append({"feature": feature, "noisy": noisy, "time": time})
        return answer.to(feature.dtype).expand(noisy.shape)

    head.forward = forward
    return asked


def _dtype(half: bool) -> torch.dtype:
    return torch.bfloat16 if half else torch.float32


def _no_padding(frames: int, horizon: int) -> Tensor:
    return torch.zeros(frames, horizon, dtype=torch.bool)


def _recordings(count: int, seed: int) -> Batch:
    return next(batches(demonstrations(count, seed), count, steps=1, seed=seed))


def elsewhere(learner: Any, feature: Tensor, target: Tensor, half: bool, seed: int, device: bool) -> dict[str, Any]:
    """A loss and a prediction after a seed, with all inputs on a simulated `device`, or on the CPU.

    What the head was asked in the loss, `noisy` and `time`, the `chunk` that was predicted with the velocity
    `noisy / 2 + time + feature`, and where each of them is. `raised` is the error that ended the loss or the
    prediction, `drawn` the functions that drew random numbers on the device.
    """
    head = _head(learner, feature.shape[1], *target.shape[1:], half)
    asked: list[dict[str, Tensor]] = []

    def pulled(feature: Tensor, noisy: Tensor, time: Tensor) -> Tensor:
        asked.append({"noisy": noisy, "time": time})
        return noisy / 2 + time[:, None, None] + feature[:, :1, None].float()

    head.forward = pulled
    place = _There if device else Tensor
    given = [one.as_subclass(place) for one in (feature.to(_dtype(half)), target, _no_padding(*target.shape[:2]))]
    found: dict[str, Any] = {"raised": None}
    with private_randomness(seed), _Device() as there:
        try:
            loss = head.loss(*given)
            found |= {"loss": loss, **asked[0]}
            with torch.no_grad():
                found["chunk"] = head.predict(given[0])
        except Exception as error:  # the check reports it
            found["raised"] = f"{type(error).__name__}: {error}"
    tensors = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    return {
        "raised": found["raised"],
        "drawn": there.drawn,
        "places": {name: "the device" if isinstance(value, _There) else "the CPU" for name, value in tensors.items()},
        "values": {name: value.detach().as_subclass(Tensor).float() for name, value in tensors.items()},
    }


class _There(Tensor):
    """A tensor on the simulated device. Its numbers are in the memory of the CPU."""


class _Device(TorchFunctionMode):
    """A simulated device: what is made of its tensors is there too, and it has a generator of its own.

    `drawn` lists the functions that drew random numbers there.
    """

    NAME = torch.device("cuda", 0)
    TOGETHER = frozenset({"add", "sub", "mul", "div", "truediv", "lerp", "cat", "stack", "where"})

    def __init__(self) -> None:
        super().__init__()
        self.state = torch.Generator().manual_seed(2**31 - 1).get_state()
        self.drawn: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return self._called(func, args, kwargs or {})

    def _called(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        leaves = tree_leaves((args, kwargs))
        there = [one for one in leaves if isinstance(one, _There)]
        if func == Tensor.device.__get__:
            return self.NAME if there else torch.device("cpu")
        if func == Tensor.is_cuda.__get__:
            return bool(there)
        name = getattr(func, "__name__", "")
        self._refuse_two_devices(name, leaves)
        to = self._target(name, args, kwargs, leaves)
        is_there = bool(there) if to is None else to
        if name == "cuda":
            func, args, kwargs = Tensor.clone, args[:1], {}
        args, kwargs = tree_map(self._on_the_cpu, (args, kwargs))
        result = self._with_own_generator(func, args, kwargs) if is_there else func(*args, **kwargs)
        mine = _There if is_there else Tensor
        given = {id(one) for one in leaves} if to is None else set()  # what is changed in place stays where it is
        return tree_map(
            lambda one: one.as_subclass(mine) if isinstance(one, Tensor) and id(one) not in given else one, result
        )

    def _with_own_generator(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        before = torch.get_rng_state()
        torch.set_rng_state(self.state)
        try:
            result = func(*args, **kwargs)
        finally:
            after = torch.get_rng_state()
            torch.set_rng_state(before)
        if not torch.equal(after, self.state):
            self.drawn.append(getattr(func, "__name__", str(func)))
            self.state = after
        return result

    def _refuse_two_devices(self, name: str, leaves: list[Any]) -> None:
        places = {isinstance(one, _There) for one in leaves if isinstance(one, Tensor) and one.ndim > 0}
        if name.strip("_").removeprefix("r").removeprefix("i") in self.TOGETHER and len(places) == 2:
            raise RuntimeError("Expected all tensors to be on the same device, but found at least two devices!")

    def _target(self, name: str, args: Any, kwargs: dict[str, Any], leaves: list[Any]) -> bool | None:
        """Whether a call names the device as the place of its result; None if it names no place."""
        if name in ("cpu", "cuda"):
            return name == "cuda"
        named = [one for one in leaves if _place(one)]
        if named:
            return _place(named[-1]) == self.NAME.type
        other = kwargs.get("other", args[1] if len(args) > 1 else None)
        return isinstance(other, _There) if name in ("to", "type_as") and isinstance(other, Tensor) else None

    def _on_the_cpu(self, value: Any) -> Any:
        return torch.device("cpu") if _place(value) == self.NAME.type else value


def _place(value: Any) -> str:
    """The type of the device that `value` names, if it names one."""
    kind = str(value).partition(":")[0] if isinstance(value, str | torch.device) else ""
    return kind if kind in ("cpu", "cuda") else ""


def times_of_frames(learner: Any, frames: int, losses: int, half: bool, seed: int) -> dict[str, Tensor]:
    """The times (losses, N) of that many losses in a row of the same frames, and the frame of each sample."""
    head = _head(learner, 1, 1, 1, half)
    asked = _answered(head, torch.zeros(1, 1))
    feature = torch.arange(frames, dtype=_dtype(half))[:, None]
    seen: dict[str, list[Tensor]] = {"frame": [], "time": []}
    with private_randomness(seed), torch.no_grad():
        for _ in range(losses):
            asked.clear()
            head.loss(feature, torch.zeros(frames, 1, 1), _no_padding(frames, 1))
            seen["frame"].append(torch.cat([one["feature"][:, 0].float() for one in asked]))
            seen["time"].append(torch.cat([one["time"].float() for one in asked]))
    return {name: torch.stack(values) for name, values in seen.items()}
