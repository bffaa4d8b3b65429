"""Mixed precision is enabled, but most operations run in float32, or the scaler keeps skipping steps.

## What it finds
A step that enters autocast and still runs more than half of the operations of linear layers and convolutions in
float32. Autocast is then enabled for another device type, only around the loss, or disabled again inside the model. Or
a GradScaler that skips more than a quarter of at least 100 steps, all of the first 32, or all steps of a run that has
ended, if there were eight.

## Why it hurts
The run has the memory use and the speed of float32, while everyone believes that it trains in half precision. A scaler
that skips a step discards a complete forward and backward pass. If it skips all of them, nothing is trained.

## Evidence
`float32_share` of the `operations` with its `threshold`, 0.5, the `modules` with most of them, and where autocast was
entered. For the scaler, `skipped` of `asked`, its `threshold`, 0.25, and its last `scale`.

## Fix
Use `torch.autocast(device_type=...)` with the model's device, around model and loss. If a scaler skips every step, look
for the Inf that no scale removes (DK201, DK202). If it often skips, use a lower `growth_factor`, a longer
`growth_interval`, or bfloat16, which needs no scaler.

## When it stays silent
- No autocast, and weights in half precision.
- Parts in float32 on purpose (norms, losses, an action head), as long as they need less than half of the operations.
- A scaler that is searching for its first scale.
- Passes without gradients.
- Products computed by functions, which module hooks do not see: they are not counted.

## Cost
A hook on each linear layer and convolution, which reads no values.

## Lesson
No lab of its own; [Lab 17](../../lessons/gradients/17_on_the_spot.md) trains with a scaler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.loop.scaler_use import ScalerUse
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, or_too_short, rule
from debugkit.rule_text import amount, counted, module_name


@dataclass(frozen=True)
class Product(PlainData):
    """The matrix products or convolutions of one module in one step. `operations` counts multiplications and additions.

    `autocast` is whether autocast was enabled for the module's device while the module ran.
    """

    module: str
    device: str
    dtype: str
    autocast: bool
    operations: int


@dataclass(frozen=True)
class AutocastRegion(PlainData):
    """One place that enables autocast for a device type."""

    device: str
    dtype: str
    at: SourceLine | None


@observed_by(".measure:AutocastUseProbe")
@dataclass(frozen=True)
class AutocastUse(PlainData):
    """One training step: its forward passes with gradients, outside backward."""

    regions: tuple[AutocastRegion, ...]
    products: tuple[Product, ...]


_FLOAT32_SHARE = 0.5
_SKIPPED_SHARE = 0.25
_ENOUGH = 100
_HOPELESS = 32  # 2**16 halved 32 times is far below any useful scale
_FEW = 8
"""All steps of a run that has ended: the scale starts at 2**16 and can hardly need to fall below 2**8."""
_NAMED = 5


@rule(
    "DK208",
    name="mixed-precision-inactive",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(AutocastUse,),
    uses=(ScalerUse,),
    consequence_of=("DK201", "DK202"),
)
def judge(seen: AutocastUse, scaler: ScalerUse | None, context: Context) -> Iterator[Finding]:
    found = list(_judge_autocast(seen, context))
    if scaler is None and context.mode == "watch" and not found:
        raise NotExamined("The use of a GradScaler is judged with the whole run.")
    if scaler is None or not scaler.asked:
        yield from found
    else:
        calls = "calls of `scaler.step()`"
        yield from or_too_short([*found, *_judge_scaler(scaler, context)], scaler.asked, _HOPELESS, calls, calls)


def _judge_autocast(seen: AutocastUse, context: Context) -> Iterator[Finding]:
    total = sum(product.operations for product in seen.products)
    wide = sorted((p for p in seen.products if p.dtype == "float32"), key=lambda product: -product.operations)
    share = sum(product.operations for product in wide) / total if total else 0.0
    if not seen.regions or share <= _FLOAT32_SHARE:
        return
    region = seen.regions[0]
    yield context.finding(
        f"Autocast is enabled for {_device(region.device)}, but {share:.0%} of the operations run in float32: "
        f"{_why(seen, wide)}.",
        module=wide[0].module,
        at=region.at,
        evidence={
            "float32_share": share,
            "threshold": _FLOAT32_SHARE,
            "operations": total,
            "modules": [product.module for product in wide[:_NAMED]],
            "autocast_for": [f"{each.device} {each.dtype}" for each in seen.regions],
        },
        fix=f'Enter `torch.autocast(device_type="{wide[0].device}", dtype=…)` around the model\'s forward pass and the '
        "loss, and check that no part of the model disables it.",
    )


def _why(seen: AutocastUse, wide: list[Product]) -> str:
    device, module = wide[0].device, module_name(wide[0].module)
    if all(region.device != device for region in seen.regions):
        return f"the model runs on {_device(device)}"
    if wide[0].autocast:
        return f"{module}, the largest part, returns float32 although autocast is enabled there"
    return f"autocast is disabled in {module}, the largest part"


def _device(kind: str) -> str:
    return kind.upper() if kind in ("cpu", "cuda", "mps", "xpu") else kind


def _judge_scaler(seen: ScalerUse, context: Context) -> Iterator[Finding]:
    all_skipped = seen.asked >= (_FEW if context.ended else _HOPELESS) and seen.skipped == seen.asked
    often = seen.asked >= _ENOUGH and seen.skipped > _SKIPPED_SHARE * seen.asked
    if not all_skipped and not often:
        return
    yield context.finding(
        f"The GradScaler skipped {seen.skipped:,} of {counted(seen.asked, 'step')}."
        + (f" Its scale is now {amount(seen.scale)}." if seen.scale is not None else ""),
        severity=Severity.ERROR if all_skipped else Severity.WARNING,
        evidence={
            "skipped": seen.skipped,
            "asked": seen.asked,
            "threshold": _SKIPPED_SHARE,
            "scale": seen.scale,
        },
        fix="Use `debugkit.first_nonfinite` to find the Inf that no scale removes."
        if all_skipped
        else "Use bfloat16, which needs no scaler, or make the scale grow less often.",
    )
