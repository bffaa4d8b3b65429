"""Mixed precision is switched on, but most of the work runs in float32, or the scaler keeps skipping steps.

## What it finds
A step in which autocast is entered, and more than half of the arithmetic of linear layers and convolutions runs in
float32 all the same: autocast for another device type, around the loss only, or switched off again where it matters. Or
a GradScaler that skips more than a quarter of its steps, once it has had 100, or each of the first 32.

## Why it hurts
Memory and time of float32, while everyone believes to train in half precision. A scaler that skips throws away the
forward and backward pass it skips, and if it skips all, nothing is trained.

## Evidence
`float32_share` of the `operations` with its `threshold`, 0.5, the largest `modules` of them, and where autocast was
entered. For the scaler `skipped` of `asked`, its `threshold`, 0.25, and its last `scale`.

## Fix
`torch.autocast(device_type=...)` with the device the model is on, around model and loss. A scaler that skips all: look
for the Inf that no scale removes (DK201, DK202). One that skips often: a lower `growth_factor` or a longer
`growth_interval`, or bfloat16, which needs no scaler.

## When it stays silent
No autocast. Parts in float32 on purpose, as long as they are the lesser work: norms, losses, an action head. A scaler
that searches its first scale. Passes without gradients. Weights in half precision. Products written as functions, which
no module hook sees, are not counted.

## Cost
A hook on each linear layer and convolution, which reads no value.

## Lesson
No lab of its own; [Lab 17](../../lessons/gradients/17_clip_before_unscale.md) trains with a scaler.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.autocast_use import AutocastUse, Product
from debugkit.observations.grad_scaler import ScalerUse
from debugkit.registry import Context, rule

_FLOAT32_SHARE = 0.5
_SKIPPED_SHARE = 0.25
_ENOUGH = 100
_HOPELESS = 32  # 2**16 halved as often is far below any scale that helps
_NAMED = 5


@rule(
    "DK208",
    name="mixed-precision-inactive",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check", "watch"),
    needs=(AutocastUse,),
    uses=(ScalerUse,),
    consequence_of=("DK201", "DK202"),
)
def judge(seen: AutocastUse, scaler: ScalerUse | None, context: Context) -> Iterator[Finding]:
    yield from _judge_autocast(seen, context)
    if scaler is not None:
        yield from _judge_scaler(scaler, context)


def _judge_autocast(seen: AutocastUse, context: Context) -> Iterator[Finding]:
    total = sum(product.operations for product in seen.products)
    wide = sorted((p for p in seen.products if p.dtype == "float32"), key=lambda product: -product.operations)
    share = sum(product.operations for product in wide) / total if total else 0.0
    if not seen.regions or share <= _FLOAT32_SHARE:
        return
    region = seen.regions[0]
    yield context.finding(
        f"Autocast is on for {region.device}, yet {share:.0%} of the arithmetic runs in float32: {_why(seen, wide)}.",
        module=wide[0].module,
        at=region.at,
        evidence={
            "float32_share": share,
            "threshold": _FLOAT32_SHARE,
            "operations": total,
            "modules": [product.module for product in wide[:_NAMED]],
            "autocast_for": [f"{each.device} {each.dtype}" for each in seen.regions],
        },
        fix=f'Enter torch.autocast(device_type="{wide[0].device}", dtype=...) around the model\'s forward pass and the '
        "loss, and see that no part of the model disables it.",
    )


def _why(seen: AutocastUse, wide: list[Product]) -> str:
    device, module = wide[0].device, wide[0].module or "the model"
    if all(region.device != device for region in seen.regions):
        return f"the model is on {device}"
    if wide[0].autocast:
        return f"{module} returns float32 although autocast is on there"
    return f"it is off where {module} runs, the largest part"


def _judge_scaler(seen: ScalerUse, context: Context) -> Iterator[Finding]:
    all_skipped = seen.asked >= _HOPELESS and seen.skipped == seen.asked
    often = seen.asked >= _ENOUGH and seen.skipped > _SKIPPED_SHARE * seen.asked
    if not all_skipped and not often:
        return
    yield context.finding(
        f"The GradScaler skipped {seen.skipped} of {seen.asked} steps; its scale is {seen.scale:.3g} now."
        if seen.scale is not None
        else f"The GradScaler skipped {seen.skipped} of {seen.asked} steps.",
        severity=Severity.ERROR if all_skipped else Severity.WARNING,
        evidence={
            "skipped": seen.skipped,
            "asked": seen.asked,
            "threshold": _SKIPPED_SHARE,
            "scale": seen.scale,
        },
        fix="Find the Inf that no scale removes with debugkit.first_nonfinite."
        if all_skipped
        else "Use bfloat16, which needs no scaler, or let the scale grow less often.",
    )
