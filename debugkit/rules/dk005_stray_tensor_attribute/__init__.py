"""A module holds a tensor that is neither parameter nor buffer: `.to()` and checkpoints leave it out.

## What it finds
Tensors that a module holds as plain attributes, or inside lists, dicts or objects (a normaliser with its statistics).

## Why it hurts
`self.positions = torch.arange(n)` works until the model moves to a GPU. It is worse for values that are learnt or
measured, such as the statistics of the actions: the checkpoint does not contain them, so the robot runs with whatever
the constructor creates.

## Evidence
The attribute's path, shape and dtype. If a run on a second device (see DK003) fails because of it, also the operation
that fails.

## Fix
`self.register_buffer("positions", torch.arange(n))`. Add `persistent=False` if the constructor can recreate the value.
Use `nn.Parameter` for a value that trains.

## When it stays silent
Scalars; tensors that each step creates again (caches, the last attention map); weights recomputed from others
(weight_norm, spectral_norm, pruning); tensors that the module moves in its own `_apply`. The finding is `info` unless
the run on a second device fails because of it. It is then as severe as DK003 for a tensor that the step creates.

## Cost
The run on a second device is shared with DK003.

## Lesson
[Lab 04](../../lessons/shapes/04_stays_at_home.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.second_device import SecondDevice, StrayTensor
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule


@dataclass(frozen=True)
class StrayAttribute(PlainData):
    """One such tensor. `path` is the dotted path of the module followed by that of the attribute (`stats.mean`)."""

    module: str
    path: str
    shape: tuple[int, ...]
    dtype: str


@observed_by(".measure:StrayAttributesProbe")
@dataclass(frozen=True)
class StrayAttributes(PlainData):
    """All that a step left in place. A tensor that the step replaced is a cache and is not included."""

    held: tuple[StrayAttribute, ...]


@rule(
    "DK005",
    name="stray-tensor-attribute",
    severity=Severity.INFO,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(StrayAttributes,),
    uses=(SecondDevice,),
)
def judge(seen: StrayAttributes, device: SecondDevice | None, context: Context) -> Iterator[Finding]:
    stopping = {stray.attribute: stray for stray in device.strays if stray.attribute} if device else {}
    for held in seen.held:
        stray = stopping.pop(held.path, None)
        yield _finding(held, stray, device, context)
    for path, stray in stopping.items():  # attributes that the step replaced only after it had used them
        yield _finding(StrayAttribute(stray.module or "", path, stray.shape, stray.dtype), stray, device, context)


def _finding(held: StrayAttribute, stray: StrayTensor | None, device: SecondDevice | None, context: Context) -> Finding:
    name = held.path.removeprefix(f"{held.module}.") if held.module else held.path
    fails = f" On a second device the step fails because of it, at `{stray.operation}`." if stray else ""
    return context.finding(
        f"`{held.path}` is a plain tensor: `.to()` does not move it and `state_dict()` does not save it.{fails}",
        module=held.module,
        parameter=held.path,
        at=stray.used if stray else None,
        evidence={
            "device": device.device if device and stray else None,
            "shape": list(held.shape),
            "dtype": held.dtype,
            "stops": f"the {stray.phase}, at {stray.operation}" if stray else None,
            "message": stray.message if stray else None,
        },
        fix=f'Register it as a buffer: `self.register_buffer("{name.partition(".")[0]}", …)`.',
        severity=device.severity if device and stray else None,
    )
