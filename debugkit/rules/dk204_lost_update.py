"""The optimizer's updates are smaller than a 16-bit weight can show, so the weights do not move.

## What it finds
Weights in bfloat16 or float16 of which more than 90 % of the elements that have a gradient are bit for bit the same
after `optimizer.step()`, although the same step would change them in float32.

## Why it hurts
Near 1, bfloat16's next number is 0.8 % away. An update below half of that is rounded back to the weight it came from,
at every step and without a sign: the loss stays, or only biases and small weights learn. A lower learning rate, as for
fine-tuning, makes it worse.

## Evidence
`lost_share` (weighted by size, on a sample of each weight), the `threshold`, 0.9, over how many `steps`, the
`learning_rate`, and the largest of the weights that stood still. What float32 would do is computed from the gradient
and the optimizer's own state, without weight decay.

## Fix
Keep the weights in float32 and run the forward pass under `torch.autocast(..., dtype=torch.bfloat16)`; or use an
optimizer with float32 copies, compensated (Kahan) or stochastic rounding.

## When it stays silent
Float32 weights. Optimizers other than torch's SGD, Adam and AdamW, which may keep a copy or round on purpose. Elements
without a gradient, and those that float32 would not change either. While the learning rate is on its way up. Weights
that are 0 (LoRA's B), since there every update counts. A minority of weights, such as norms at 1, beside others that
move.

Under `watch()` three steps in a row must show it, under `check()` the one step there is.

## Cost
Under `watch()`: a sample of each 16-bit weight before and after each step. Under `check()`: one step, shared.

## Lesson
No lab of its own; [Lab 28](../../lessons/numerics/28_fp16_underflow.md) is about gradients that are lost likewise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.parameter_updates import ParameterHistory, ParameterUpdates
from debugkit.registry import Context, rule

_THRESHOLD = 0.9
_IN_A_ROW = 3
_NAMED = 8


@rule(
    "DK204",
    name="lost-update",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    cost="1S",
    modes=("check", "watch"),
    needs=(ParameterUpdates,),
    consequence_of=("DK107", "DK109", "DK209", "DK509"),
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
            f"same: at a learning rate of {rate:.2g} the updates are below their rounding; {first.path} is the "
            "largest.",
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
            fix="Keep the weights in float32 and compute under torch.autocast, or use an optimizer with float32 "
            "copies or stochastic rounding.",
            affects=[p.path for p in still],
        )


def lost_share(parameters: Sequence[ParameterHistory], index: int) -> float:
    """Of all elements, the share that the update with this index (-1 is the last) did not change, weighted by size."""
    total = sum(parameter.numel for parameter in parameters)
    return sum(parameter.numel * (parameter.last[index].lost or 0.0) for parameter in parameters) / total


def _is_shown(parameter: ParameterHistory, needed: int) -> bool:
    updates = parameter.last[-needed:]
    return len(updates) == needed and all(u.lost is not None and not u.rising for u in updates)
