"""A module holds a tensor that is neither parameter nor buffer: `.to()` and checkpoints leave it out.

## What it finds
Tensors held as plain attributes, in lists, dicts or objects such as a normaliser with its statistics.

## Why it hurts
`self.positions = torch.arange(n)` works until the model moves to a GPU. Worse is the value that is learnt or measured,
such as the statistics of the actions: the checkpoint does not hold it, and what is loaded on the robot is whatever the
constructor makes.

## Evidence
The attribute's path, shape and dtype; and, where a second device shows that the step fails for it (see DK003), the
operation that it stops.

## Fix
`self.register_buffer("positions", torch.arange(n))`; with `persistent=False` for what the constructor can make again.
An `nn.Parameter` for what trains.

## When it stays silent
Scalars; tensors that a step makes anew (caches, the last attention map); weights recomputed from others (weight_norm,
spectral_norm, pruning). Without the proof that it stops a step it is `info`.

## Cost
Free. The proof is DK003's run on a second device.

## Lesson
[Lab 04](../../lessons/shapes/04_stray_device.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.second_device import SecondDevice, StrayTensor
from debugkit.observations.stray_attributes import StrayAttribute, StrayAttributes
from debugkit.registry import Context, rule


@rule(
    "DK005",
    name="stray-tensor-attribute",
    severity=Severity.INFO,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check",),
    needs=(StrayAttributes,),
    uses=(SecondDevice,),
)
def judge(seen: StrayAttributes, device: SecondDevice | None, context: Context) -> Iterator[Finding]:
    stopping = {stray.attribute: stray for stray in device.strays if stray.attribute} if device else {}
    for held in seen.held:
        yield _finding(held, stopping.pop(held.path, None), context)
    for path, stray in stopping.items():  # those that the step itself replaced, too late
        yield _finding(StrayAttribute(stray.module or "", path, stray.shape, stray.dtype), stray, context)


def _finding(held: StrayAttribute, stray: StrayTensor | None, context: Context) -> Finding:
    name = held.path.removeprefix(f"{held.module}.") if held.module else held.path
    fails = f", and on a second device the step fails for it at {stray.operation}" if stray else ""
    return context.finding(
        f"`{held.path}` is a plain tensor: .to() leaves it behind and state_dict() leaves it out{fails}.",
        module=held.module,
        parameter=held.path,
        at=stray.used if stray else None,
        evidence={
            "shape": list(held.shape),
            "dtype": held.dtype,
            "stops": f"the {stray.phase}, at {stray.operation}" if stray else None,
            "message": stray.message if stray else None,
        },
        fix=f'Hold it as a buffer: self.register_buffer("{name.partition(".")[0]}", …).',
        severity=Severity.ERROR if stray else None,
    )
