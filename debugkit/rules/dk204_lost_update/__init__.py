"""The optimizer's updates are too small for 16-bit weights, so the weights do not change.

## What it finds
Weights in bfloat16 or float16 of which more than 90 % of the elements with a gradient are bit for bit the same after
`optimizer.step()`, although the same step would change them in float32.

## Why it hurts
Near 1, the next bfloat16 number is 0.8 % away. A smaller update than half of that is rounded back to the old weight, in
every step and without a warning. The loss does not move, or only biases and small weights learn. A lower learning rate,
as for fine-tuning, makes it worse.

## Evidence
`lost_share` (weighted by size, measured on a sample of each weight), the `threshold`, 0.9, the number of `steps`, the
`learning_rate`, and the largest weight that did not change. The float32 update is computed from the gradient and the
optimizer's own state, without weight decay.

## Fix
Keep the weights in float32 and run the forward pass under `torch.autocast(..., dtype=torch.bfloat16)`. Or use an
optimizer with float32 copies, with compensated (Kahan) summation, or with stochastic rounding.

## When it stays silent
- Float32 weights.
- Optimizers other than torch's SGD, Adam and AdamW, which may keep a copy or round on purpose.
- Elements without a gradient, and elements that would not change in float32 either.
- Steps in which the learning rate is still rising.
- Weights that are 0 (LoRA's B): there every update has an effect.
- A minority of weights, such as norms at 1, next to others that change.

Under `watch()`, three steps in a row must show it; under `check()`, the one observed step.

## Cost
Under `watch()`, a sample of each 16-bit weight is compared before and after each step.

## Lesson
No lab of its own; [Lab 28](../../lessons/numerics/28_half_the_memory.md) is about gradients that are lost similarly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.parameter_updates import ParameterHistory, ParameterUpdates
from debugkit.rule import Context, rule
from debugkit.rule_text import code

_THRESHOLD = 0.9
_IN_A_ROW = 3
_NAMED = 8


@rule(
    "DK204",
    name="lost-update",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(ParameterUpdates,),
    consequence_of=("DK107", "DK109", "DK209"),
)
def judge(seen: ParameterUpdates, context: Context) -> Iterator[Finding]:
    needed = _IN_A_ROW if context.mode == "watch" else 1
    by_optimizer: dict[str, list[ParameterHistory]] = defaultdict(list)
    for parameter in seen.parameters:
        by_optimizer[parameter.optimizer].append(parameter)
    for label, parameters in by_optimizer.items():
        shown = [parameter for parameter in parameters if _is_shown(parameter, needed)]
        shares = [lost_share(shown, -back) for back in range(1, needed + 1)] if shown else [0.0]
        if min(shares) <= _THRESHOLD:
            continue
        still = sorted((p for p in shown if (p.last[-1].lost or 0.0) > _THRESHOLD), key=lambda p: -p.numel)
        first = still[0]
        rate = first.last[-1].learning_rate
        yield context.finding(
            f"{min(shares):.0%} of the {first.dtype} weights that {label.split(' ')[0]} updates stay bit for bit the "
            f"same: at a learning rate of {rate:.2g} the updates are rounded away. The largest of them is "
            f"{code(first.path)}.",
            parameter=first.path,
            evidence={
                "lost_share": min(shares),
                "threshold": _THRESHOLD,
                "steps": needed,
                "learning_rate": rate,
                "weight_rms": first.last[-1].weight,
                "parameters": [p.path for p in still[:_NAMED]],
                "parameters_lost": len(still),
                "parameters_measured": len(shown),
            },
            fix="Keep the weights in float32 and compute under `torch.autocast`, or use an optimizer with float32 "
            "copies or stochastic rounding.",
            affects=[p.path for p in still],
        )


def lost_share(parameters: Sequence[ParameterHistory], index: int) -> float:
    """The share of all elements that the update with this index (-1 is the last) did not change, weighted by size."""
    total = sum(parameter.numel for parameter in parameters)
    return sum(parameter.numel * (parameter.last[index].lost or 0.0) for parameter in parameters) / total


def _is_shown(parameter: ParameterHistory, needed: int) -> bool:
    updates = parameter.last[-needed:]
    return len(updates) == needed and all(u.lost is not None and not u.rising for u in updates)
