"""Validation on held-out frames: the loss, and how much each linear layer tells the frames apart.

A layer whose output is the same for every frame has collapsed: whatever comes after it does not see the image or the
instruction any more. Its *spread* shows that before the loss does.

What the job relies on
- The loss is the mean error of the frames, in evaluation mode.
- A layer's spread is the standard deviation of its output from frame to frame, over all held-out frames: the mean over
  positions is taken first, that over the output's features last.
- Nothing is learnt from a validation. Afterwards, also after an error, the policy is as it was, with its modes and its
  hooks, and so are the random state and everything that is alive, except for the numbers returned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from model import NightlyPolicy, evaluating
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from labs.vla.dataset import Batch


@dataclass(frozen=True)
class Validation:
    """The numbers of one validation; `spread` is by the layer's path in the policy."""

    loss: float
    spread: dict[str, float] = field(default_factory=dict)


@torch.no_grad()
def validate(policy: NightlyPolicy, held_out: Sequence[Batch], watched: Sequence[str]) -> Validation:
    """Loss and spreads on held-out batches; `watched` names the parts whose linear layers are reported."""
    layers = linear_layers(policy, watched)
    with evaluating(policy), outputs_of(layers) as outputs:
        errors = torch.cat([policy.frame_errors(batch) for batch in held_out])  # (N,)
    return Validation(errors.mean().item(), {name: spread(torch.cat(outputs[name])) for name in layers})


def linear_layers(policy: nn.Module, watched: Sequence[str]) -> dict[str, nn.Linear]:
    """The linear layers of the parts `watched`, by their paths in the policy."""
    return {
        f"{part}.{name}" if name else part: module
        for part in watched
        for name, module in policy.get_submodule(part).named_modules()
        if isinstance(module, nn.Linear)
    }


@contextmanager
def outputs_of(layers: dict[str, nn.Linear]) -> Iterator[dict[str, list[Tensor]]]:
    """Collects the outputs of layers inside a block: for each, a list of (B, ..., F), one for each call."""
    outputs: dict[str, list[Tensor]] = defaultdict(list)

    def keep(name: str) -> RemovableHandle:
        return layers[name].register_forward_hook(
            lambda _module, _inputs, output: outputs[name].append(output.detach())
        )

    handles = [keep(name) for name in layers]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def spread(output: Tensor) -> float:
    """The standard deviation of an output (N, ..., F) from frame to frame, the mean over features."""
    positions = output.flatten(1, -2).mean(dim=1) if output.dim() > 2 else output  # (N, F)
    return positions.std(dim=0, correction=0).mean().item()
