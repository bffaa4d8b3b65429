"""Requirements for an action expert in float16. Runs in the grader's process; judges data, and never sees the code.

The reference is the block's formula in float64, with the weights of the learner's policy. Each numerical check runs with the weights as
they are and with a last weight four times as large: a value that only just fits is not a fix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, random_batch

WIDTH = 64
OUTPUT_SCALE = 1e-4
LOUDER = (1.0, 4.0)
EXPERT_PARAMETERS = {
    "norm.weight",
    "mlp.gate.weight",
    "mlp.gate.bias",
    "mlp.up.weight",
    "mlp.up.bias",
    "mlp.down.weight",
}

TRAINING_STEPS = 30
LOSS_BAR = 0.75


@check(
    kind="behaviour",
    title="The expert computes the same in half precision as in float32",
    property="Under float16 autocast the expert's output must be finite and within 1e-2 of the formula in full precision, also with a last weight four times as large.",
    instrument="debugkit.detect_overflow(policy, batch, loss_fn)",
)
def test_expert_in_half_is_right(submission: Submission, rng: Rng) -> None:
    for size in (rng.integer(3, 20), 1):
        for louder in LOUDER:
            feature = rng.normal(size, WIDTH)
            seen = submission.observe(
                "expert_in_half", batch=random_batch(rng, size), feature=feature, seed=rng.seed(), louder=louder
            )
            expect(sorted(seen["weights"]), "the expert's weights").equals(sorted(EXPERT_PARAMETERS))
            wanted = reference(feature, seen["weights"])
            output = seen["output"].float()
            expect(massive(output - feature, wanted - feature), "share of the largest contribution")
            expect(output, "the expert's output in half").finite()
            expect(output, "the expert's output in half").close_to(wanted, rtol=1e-2, atol=1e-2)


@check(
    kind="behaviour",
    title="A training step in half precision is finite",
    property="In training mode under float16 autocast, the loss and every gradient must be finite, also with a last weight four times as large.",
    instrument="debugkit.first_nonfinite(policy, batch, loss_fn)",
)
def test_training_step_is_finite(submission: Submission, rng: Rng) -> None:
    for louder in LOUDER:
        batch = random_batch(rng, rng.integer(16, 25))
        seen = submission.observe("training_step", batch=batch, seed=rng.seed(), louder=louder)
        expect(seen["loss"], "the training loss").finite()
        norms = seen["gradients"]
        expect(sorted(n for n, v in norms.items() if v < 0), "the list of parameters without a gradient").equals([])
        expect(list(norms.values()), "the gradient norms").finite()


@check(
    kind="behaviour",
    title="The robot gets the same action in half precision",
    property="The chunk predicted under float16 autocast must be within 1e-2 of the one predicted in float32.",
    instrument="debugkit.detect_overflow(policy, batch, loss_fn)",
)
def test_action_in_half_is_the_action(submission: Submission, rng: Rng) -> None:
    for louder in LOUDER:
        batch = random_batch(rng, rng.integer(3, 9))
        seen = submission.observe("evaluation", batch=batch, seed=rng.seed(), louder=louder)
        expect(seen["half"], "the chunk predicted in half").close_to(seen["float32"], rtol=1e-2, atol=1e-2)


@check(
    kind="invariant",
    title="Everything else still runs in half precision",
    property="Every linear layer outside the expert's block must return float16 under autocast.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_the_rest_runs_in_half(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("dtypes", batch=random_batch(rng, 2), seed=rng.seed())
    outside = {name: dtype for name, dtype in seen.items() if not name.startswith("expert.")}
    expect(len(outside), "the number of layers outside the expert").at_least(20)
    wide = sorted(name for name, dtype in outside.items() if dtype != "torch.float16")
    expect(wide, "the list of layers that do not run in half precision").equals([])


@check(
    kind="invariant",
    title="The dropout is still there",
    property="In training mode about one in ten of the block's contributions must be dropped, and the others multiplied by 1 / 0.9.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_dropout_is_still_there(submission: Submission, rng: Rng) -> None:
    feature, seed = rng.normal(64, WIDTH), rng.seed()
    asked = {"batch": random_batch(rng, 64), "feature": feature, "seed": seed}
    added = submission.observe("dropped", **asked)
    weights = submission.observe("expert_in_half", **asked, louder=1.0)["weights"]
    wanted = reference(feature, weights) - feature
    # A contribution that is not tiny must either be larger or be dropped.
    counts = wanted.abs() > 0.05
    ratio = (added / wanted)[counts]
    expect(float((ratio.abs() < 0.05).float().mean()), "the share of contributions that were dropped").between(
        0.05, 0.15
    )
    expect(ratio[ratio.abs() >= 0.05].median(), "the factor on the others").between(1.10, 1.12)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted chunk.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="The policy trains in half precision",
    property=f"Over {TRAINING_STEPS} steps under float16 autocast the loss must stay finite and fall below {LOSS_BAR:.0%} of its first value.",
    instrument="debugkit.overfit_one_batch(policy, batch, loss_fn)",
)
def test_trains_in_half(submission: Submission, seed: int) -> None:
    losses = submission.observe("trained_in_half", seed=seed, steps=TRAINING_STEPS)
    expect(losses, "the training losses").finite()
    expect(sum(losses[-3:]) / sum(losses[:3]), "the last losses, relative to the first").below(LOSS_BAR)


EXPERT = "test_expert_in_half_is_right"


@wrong_fix(
    "clamp",
    says="The Inf became the largest float16, which is finite but not the correct value: the block's output is cut off, and the clamped value has no gradient.",
)
def recognise_clamp(evidence: Mapping[str, Any]) -> bool:
    share = evidence.get(f"{EXPERT}/share of the largest contribution", 1.0)
    return evidence[EXPERT]["outcome"] == "failed" and 0.2 < share < 0.35


@wrong_fix(
    "scale_down_and_forget",
    says="It fits now, because the block's output is an eighth of what it was. A value scaled down before the product must be scaled up after it, in a dtype with enough range.",
)
def recognise_forgotten(evidence: Mapping[str, Any]) -> bool:
    share = evidence.get(f"{EXPERT}/share of the largest contribution", 1.0)
    return evidence[EXPERT]["outcome"] == "failed" and 0.0 < share < 0.2


@wrong_fix(
    "whole_model_in_float32",
    says="There is no overflow, but no float16 either: the towers and the language model, which never overflowed, have lost the savings in time and memory.",
)
def recognise_float32(evidence: Mapping[str, Any]) -> bool:
    return evidence[EXPERT]["outcome"] == "passed" and evidence["test_the_rest_runs_in_half"]["outcome"] == "failed"


@wrong_fix(
    "no_dropout",
    says="Without dropout nothing divides by 0.9, and 6.3e4 just fits. If a weight grows by four percent, it overflows again.",
)
def recognise_no_dropout(evidence: Mapping[str, Any]) -> bool:
    kept = evidence.get("test_dropout_is_still_there/the share of contributions that were dropped", 0.1)
    return kept == 0.0 and evidence[EXPERT]["outcome"] == "failed"


def reference(feature: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """The expert's formula in evaluation mode, in float64, as float32 (B, D)."""
    w = {name: value.double() for name, value in weights.items()}
    x = feature.double()
    normed = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * w["norm.weight"]
    gate = normed @ w["mlp.gate.weight"].T + w["mlp.gate.bias"]
    up = normed @ w["mlp.up.weight"].T + w["mlp.up.bias"]
    return (x + OUTPUT_SCALE * ((F.gelu(gate) * up) @ w["mlp.down.weight"].T)).float()


def massive(added: Tensor, wanted: Tensor) -> float:
    """At the largest expected contribution: the share of it that was added; 0 if that is not finite."""
    at = wanted.abs().argmax()
    share = float(added.flatten()[at] / wanted.flatten()[at])
    return share if abs(share) < 1e3 else 0.0
