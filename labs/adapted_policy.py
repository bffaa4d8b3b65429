"""The healthy policy with low-rank adapters, and the cases in which a submitted one is compared with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from debugkit.measurements.memory_profile.storage_counter import StorageCounter
from labs.grading import Rng, expect
from labs.invariants import TOLERANCE, close, listed, random_batch
from labs.vla.policy import Policy, PolicyConfig

RANK, ALPHA = 8, 16.0
TOWERS = ("vision.encoder.layers", "language_model.layers")
NO_GRADIENT = 1e-5
"""Relative to the largest gradient. Anything smaller is rounding, as in the gradient of a key's bias."""

BASE: dict[str, int] = {}
DEEP = {"layers": 3, "vision_layers": 2}
DEEPER = {"layers": 6, "vision_layers": 4}
WIDE = {"vision_width": 32, "vision_heads": 2, "width": 96, "mlp_width": 80, "key_value_heads": 2, "horizon": 6}
SIZES = {"base": BASE, "deep": DEEP, "deeper": DEEPER, "wide": WIDE}


@dataclass(frozen=True)
class Case:
    """One policy, and the batch that it is given."""

    frames: int
    sizes: Mapping[str, int]
    rank: int = RANK
    training: bool = True
    recompute: bool = True
    new: bool = False
    """Whether every B is zero, as in a policy that was just built."""

    def __str__(self) -> str:
        frames = "1 frame" if self.frames == 1 else f"{self.frames} frames"
        vision, language, rank = self.config.vision_layers, self.config.layers, self.rank
        sizes = f"{frames}, {vision} + {language} layers, rank {rank}"
        if not self.recompute:
            return f"{sizes}, not recomputed"
        return f"{sizes}, training mode" if self.training else f"{sizes}, evaluation mode"

    @property
    def config(self) -> PolicyConfig:
        """The policy's sizes."""
        return PolicyConfig(**self.sizes)

    @property
    def asked(self) -> dict[str, Any]:
        """The probe's arguments."""
        return {
            "sizes": dict(self.sizes),
            "rank": self.rank,
            "training": self.training,
            "recompute": self.recompute,
        }

    @property
    def layers(self) -> list[str]:
        """The names of the transformer layers."""
        counts = (self.config.vision_layers, self.config.layers)
        return sorted(f"{tower}.{i}" for tower, count in zip(TOWERS, counts, strict=True) for i in range(count))


class Adapted(nn.Module):
    """W x + (16 / rank) · B A x."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.a = nn.Linear(linear.in_features, rank, bias=False)
        self.b = nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """The sum of both."""
        rank = self.a.out_features
        return self.linear(features) + ALPHA / rank * (features @ self.a.weight.T) @ self.b.weight.T


def reference_policy(case: Case, parameters: Mapping[str, Tensor] | None = None) -> Policy:
    """The adapted policy of these sizes; with `parameters`, their values."""
    policy = Policy(case.config).requires_grad_(False)
    policy.head.requires_grad_(True)
    for layer in case.layers:
        linears = [name for name, module in policy.get_submodule(layer).named_modules() if type(module) is nn.Linear]
        for name in linears:
            parent, _, own = f"{layer}.{name}".rpartition(".")
            linear = policy.get_submodule(f"{layer}.{name}")
            setattr(policy.get_submodule(parent), own, Adapted(linear, case.rank))
    if parameters is not None:
        policy.load_state_dict(parameters)
    return policy.train(case.training)


class Peak(StorageCounter):
    """Counts the bytes of live storages beyond those of the policy and its batches."""

    def __init__(self, policy: nn.Module, batches: Sequence[Mapping[str, Tensor]]) -> None:
        super().__init__()
        held = [value for batch in batches for value in batch.values()]
        self.hold([*policy.parameters(), *policy.buffers(), *held], "parameters")
        self.before = self.live

    @property
    def most(self) -> int:
        """The peak, in bytes."""
        return 0 if self.peak is None else max(0, self.peak.bytes - self.before)


def reference_step(case: Case, parameters: Mapping[str, Tensor], batches: list[dict[str, Tensor]]) -> dict[str, Any]:
    """`step` of the healthy policy, which keeps every activation."""
    return step(reference_policy(case, parameters), batches)


def step(policy: nn.Module, batches: Sequence[Mapping[str, Tensor]]) -> dict[str, Any]:
    """Forward and backward for each batch: the losses, the sums of the gradients and the memory's peak."""
    losses = []
    with Peak(policy, batches) as memory:
        for batch in batches:
            loss = policy(**batch).loss
            loss.backward()
            losses.append(loss.detach())
            del loss
    gradients = {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}
    return {"losses": torch.stack(losses), "gradients": gradients, "peak": memory.most}


def batch_of(rng: Rng, case: Case, size: int | None = None) -> dict[str, Tensor]:
    """A random batch for this case in which later steps may be padding."""
    size, horizon = size or case.frames, case.config.horizon
    length = rng.integers(1, horizon + 1, size)
    is_pad = torch.arange(horizon)[None] >= length[:, None]
    return {**random_batch(rng, size, horizon=horizon), "action_is_pad": is_pad}


def random_parameters(rng: Rng, case: Case) -> dict[str, Tensor]:
    """A state in which every matrix counts: each B is random too, unless the case says that the adapters are new."""
    torch.manual_seed(rng.seed())
    state = {name: value.clone() for name, value in reference_policy(case).state_dict().items()}
    for name in adapter_names(state)[1]:
        state[name] = torch.zeros_like(state[name]) if case.new else rng.normal(*state[name].shape, std=0.05)
    return state


def adapter_names(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The names of every A, and of every B."""
    inside = [name for name in names if name.startswith(TOWERS)]
    return [name for name in inside if name.endswith(".a.weight")], [
        name for name in inside if name.endswith(".b.weight")
    ]


def is_trained(name: str) -> bool:
    """Whether a parameter of this name trains: the head's, and the adapters'."""
    return name.startswith("head.") or (name.startswith(TOWERS) and name.endswith((".a.weight", ".b.weight")))


def parts_of(names: Iterable[str]) -> str:
    """The parts of the policy in which these parameters are, or "nothing"."""
    return ", ".join(sorted({name.split(".")[0] for name in names})) or "nothing"


def of_another_value(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> set[str]:
    """The names of gradients that differ by more than rounding."""
    least = NO_GRADIENT * max(float(value.norm()) for value in wanted.values())
    small = {name for name, value in wanted.items() if float(value.norm()) <= least}
    other = {name for name in wanted.keys() - small if not close(found[name], wanted[name], rtol=TOLERANCE)}
    return other | {name for name in small if not float(found[name].norm()) <= 2 * least}


def expect_adapters_to_be_new(
    found: dict[str, Tensor], again: dict[str, Tensor], other: dict[str, Tensor], of: str
) -> None:
    """Each B must be zero, and each A drawn from the seed."""
    a, b = adapter_names(found)
    expect(listed(name for name in b if found[name].any()), f"which B does not start at zero ({of})").equals("nothing")
    same = {name for name in a if torch.equal(found[name], other[name])}
    expect(listed(same), f"which A does not depend on the seed ({of})").equals("nothing")
    differ = {name for name in a if not torch.equal(found[name], again[name])}
    expect(listed(differ), f"which A differs for one seed ({of})").equals("nothing")
    sizes = [float(found[name].std() * found[name].shape[1] ** 0.5) for name in a]
    expect(min(sizes), f"the smallest standard deviation of an A, times the root of its inputs ({of}),").above(0.3)
