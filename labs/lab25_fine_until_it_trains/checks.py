"""Requirements for an action expert in float16. Runs in the grader's process; judges data, and never sees the code.

The reference is the block's formula in float64, with weights that these checks draw: those of `load_expert`, and those of
another checkpoint in which the last weight of the massive unit is four times as large. A value that only just fits is
not a fix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, padded_batch, random_batch
from labs.vla.policy import OBSERVATION_KEYS, Policy
from labs.vla.randomness import private_randomness

Weights = dict[str, Tensor]

WIDTH, HIDDEN = 64, 256
OUTPUT_SCALE = 1e-4
KEPT = 1 / 0.9
MASSIVE_UNIT, MASSIVE_CHANNEL = 17, 5
MASSIVE_GATE, MASSIVE_WEIGHT = 98.5, 6.46
HEAVIER = 4.0
LARGEST_HALF = 65504.0
COUNTED = 0.05
"""A contribution of at least this size is large next to float16's rounding of the feature."""

TRAINING_STEPS = 30
LOSS_BAR = 0.75


@check(
    kind="behaviour",
    title="The expert computes the same in half precision as in float32",
    property="In evaluation mode the expert's output must be finite and equal the formula, within 1e-2 under float16 autocast and within 1e-3 without it, from a feature in float32 or float16, also with another checkpoint's weights, which are four times as large.",
    instrument="debugkit.detect_overflow(policy, batch, loss_fn)",
)
def test_expert_in_half_is_right(submission: Submission, rng: Rng) -> None:
    some = rng.integer(3, 20)
    for size, heavier, half, dtype, spread in (
        (some, 1.0, True, torch.float32, 1.0),
        (some, HEAVIER, True, torch.float32, 1.0),
        (1, HEAVIER, True, torch.float16, 1.0),
        (some, HEAVIER, False, torch.float32, 1.0),
        (some, 1.0, False, torch.float32, 1e-3),  # here the norm's epsilon counts
    ):
        weights = checkpoint(rng.seed(), heavier, channel=rng.integer(0, WIDTH), unit=rng.integer(0, HIDDEN))
        feature, where = rng.normal(size, WIDTH, std=spread, dtype=dtype), situation(size, heavier, half)
        output = submission.observe(
            "evaluated", batch=random_batch(rng, size), feature=feature, weights=weights, half=half, seed=rng.seed()
        )
        wanted = formula(feature, weights)
        added, largest = of_largest(output - feature, wanted - feature), float((wanted - feature).abs().max())
        expect(ratio(output - feature, wanted - feature), f"contribution over the formula's {where}")
        expect(added / largest, f"share of the largest contribution {where}")
        expect(added, f"the largest contribution {where}").close_to(largest, rtol=1e-2)
        tolerance = 1e-2 if half else 1e-3
        expect(output, f"the expert's output {where}").close_to(wanted, rtol=tolerance, atol=tolerance)


@check(
    kind="behaviour",
    title="A training step in half precision is finite",
    property="In training mode under float16 autocast, the loss and every gradient must be finite, also with another checkpoint's weights, which are four times as large.",
    instrument="debugkit.first_nonfinite(policy, batch, loss_fn)",
)
def test_training_step_is_finite(submission: Submission, rng: Rng) -> None:
    for size, heavier in ((rng.integer(16, 25), 1.0), (rng.integer(16, 25), HEAVIER), (1, HEAVIER)):
        weights, where = checkpoint(rng.seed(), heavier), situation(size, heavier, half=True)
        seen = submission.observe("training_step", batch=padded_batch(rng, size), weights=weights, seed=rng.seed())
        expect(seen["loss"], f"the training loss {where}").finite()
        norms = seen["gradients"]
        without = [name for name, norm in norms.items() if norm is None]
        expect(without, f"the list of parameters without a gradient {where}").equals([])
        infinite = [name for name, norm in norms.items() if not norm < float("inf")]
        expect(infinite, f"the list of parameters whose gradient is not finite {where}").equals([])


@check(
    kind="behaviour",
    title="Training adds the same contribution, with the same gradient",
    property="In training mode each of the expert's contributions must be the formula's, dropped or multiplied by 1 / 0.9, and its gradients must be within 2 % of the formula's, under float16 autocast and without it.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_training_follows_the_formula(submission: Submission, rng: Rng) -> None:
    for size, heavier, half in ((16, 1.0, True), (16, HEAVIER, True), (16, HEAVIER, False)):
        weights, feature = checkpoint(rng.seed(), heavier), rng.normal(size, WIDTH)
        where = situation(size, heavier, half)
        contribution = formula(feature, weights) - feature
        counted = contribution.abs() > COUNTED
        cotangent = rng.normal(size, WIDTH, std=10.0) * counted
        seen = submission.observe(
            "trained_on",
            batch=random_batch(rng, size),
            feature=feature,
            weights=weights,
            cotangent=cotangent,
            half=half,
            seed=rng.seed(),
        )
        factor = (seen["output"] - feature) / contribution
        expect(factor[counted], f"contribution over the formula's {where}, trained").finite()
        kept = factor > KEPT / 2
        expect(seen["output"] * counted, f"the expert's output {where}").close_to(
            (feature + kept * KEPT * contribution) * counted, rtol=1e-2, atol=1e-2
        )
        wanted = gradients_of_formula(feature, weights, kept * cotangent * KEPT, cotangent)
        off = {name: distance(seen["gradients"][name], gradient) for name, gradient in wanted.items()}
        wrong = [f"{name} ({off[name]:.0%})" for name in off if not off[name] < 0.02]
        expect(wrong, f"the list of gradients that are not the formula's {where}").equals([])


@check(
    kind="behaviour",
    title="The robot gets the same action in half precision",
    property="The chunk predicted under float16 autocast must be within 1e-2, and without it within 1e-4, of the base policy's chunk with the expert's formula before the head.",
    instrument="debugkit.detect_overflow(policy, batch, loss_fn)",
)
def test_action_in_half_is_the_action(submission: Submission, rng: Rng) -> None:
    batch, seed = random_batch(rng, rng.integer(3, 9)), rng.seed()
    batch["attention_mask"][0, 5:] = 0
    wanted = reference_chunk(batch, seed)
    for half, tolerance in ((True, 1e-2), (False, 1e-4)):
        chunk = submission.observe("predicted", batch=batch, half=half, seed=seed)
        expect(chunk, f"the chunk predicted {precision(half)}").close_to(wanted, rtol=tolerance, atol=tolerance)


@check(
    kind="invariant",
    title="Everything else still runs in half precision",
    property="Every linear layer and convolution outside the expert must return float16 under autocast, in training and in evaluation.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_the_rest_runs_in_half(submission: Submission, rng: Rng) -> None:
    layers = [name for name, layer in Policy().named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    for mode in ("training", "evaluation"):
        seen = submission.observe("dtypes", batch=random_batch(rng, 2), training=mode == "training", seed=rng.seed())
        outside = {name: dtype for name, dtype in seen.items() if not name.startswith("expert.")}
        before = {dtype for name, dtype in outside.items() if not name.startswith("head.")}
        expect(sorted(before), f"dtypes before the expert in {mode}")
        expect(sorted({seen[name] for name in seen if name not in outside}), f"dtypes in the expert in {mode}")
        wide = sorted(name for name, dtype in outside.items() if dtype != "float16")
        expect(wide, f"the list of layers that do not return float16 in {mode}").equals([])
        expect(sorted(outside), f"the list of layers outside the expert that ran in {mode}").equals(sorted(layers))


@check(
    kind="invariant",
    title="The precision is the same on a GPU",
    property="Every matrix product and convolution must run in the same dtype under autocast on a GPU as on this processor. The GPU is simulated: tensors only say that they are on it.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_same_precision_on_a_gpu(submission: Submission, rng: Rng) -> None:
    asked = {"batch": random_batch(rng, rng.integer(1, 4)), "seed": rng.seed()}
    here, there = (submission.observe("products", device=device, **asked) for device in ("cpu", "cuda"))
    expect(len(here), "the number of products in a prediction on the processor").at_least(1)
    expect(there.count("float32"), "the number of products in float32 on a simulated GPU").equals(here.count("float32"))
    expect(there == here, "each product on a simulated GPU has the dtype that it has on the processor,").is_true()


@check(
    kind="invariant",
    title="The weights are those of the checkpoint",
    property="`build_policy` must return the pretrained base with the weights that `load_expert` sets in the starter, under the same names and in float32.",
    instrument="python -c 'from policy import *; print(build_policy(0).expert.mlp.down.weight.abs().max())'",
)
def test_weights_are_the_checkpoints(submission: Submission, rng: Rng) -> None:
    seed = rng.seed()
    seen = submission.observe("stored", seed=seed)
    wanted = Policy.from_base(seed=seed).state_dict()
    wanted |= {f"expert.{name}": value for name, value in checkpoint(seed).items()}
    expect(sorted(seen), "the list of stored tensors").equals(sorted(wanted))
    others = [name for name, value in wanted.items() if not same(seen[name], value)]
    expect(others, "the list of stored tensors that are not those of the checkpoint").equals([])


@check(
    kind="invariant",
    title="The dropout is still there",
    property="In training mode about one in ten of the block's contributions must be dropped, and the others multiplied by 1 / 0.9.",
    instrument="python -c 'from policy import *; print(build_policy(0).train().expert)'",
)
def test_dropout_is_still_there(submission: Submission, rng: Rng) -> None:
    feature, weights = rng.normal(128, WIDTH), checkpoint(rng.seed())
    seen = submission.observe(
        "trained_on",
        batch=random_batch(rng, 128),
        feature=feature,
        weights=weights,
        cotangent=torch.zeros_like(feature),
        half=False,
        seed=rng.seed(),
    )
    contribution = formula(feature, weights) - feature
    factor = ((seen["output"] - feature) / contribution)[contribution.abs() > COUNTED]
    dropped = factor.abs() < KEPT / 2
    expect(float(dropped.float().mean()), "the share of contributions that were dropped").between(0.07, 0.13)
    expect(factor[~dropped].median(), "the factor on the others").between(1.11, 1.113)


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
DROPPED = "test_dropout_is_still_there/the share of contributions that were dropped"
BEFORE = "test_the_rest_runs_in_half/dtypes before the expert in training"
WITHIN = "test_the_rest_runs_in_half/dtypes in the expert in training"


@wrong_fix(
    "clamp",
    says="The Inf became the largest float16, which is finite but not the correct value: the block's output is cut off, and the clamped value has no gradient.",
)
def recognise_clamp(evidence: Mapping[str, Any]) -> bool:
    products = [one / OUTPUT_SCALE for one in measured(evidence, "the largest contribution")]
    others = all(0.95 < one < 1.05 for one in measured(evidence, "contribution"))
    return others and len(products) == 2 and 0.98 * LARGEST_HALF < products[1] < 1.005 * LARGEST_HALF


@wrong_fix(
    "scale_down_and_forget",
    says="It fits now, because the block's output is a fraction of what it was. A value scaled down before the product must be scaled up after it, in a dtype with enough range.",
)
def recognise_forgotten(evidence: Mapping[str, Any]) -> bool:
    ratios = measured(evidence, "contribution")
    shares = measured(evidence, "share of the largest contribution")
    return len(ratios) == len(shares) == 1 and 1e-3 < ratios[0] < 0.9 and abs(shares[0] / ratios[0] - 1) < 0.05


@wrong_fix(
    "whole_model_in_float32",
    says="There is no overflow, but no float16 either: the towers and the language model, which never overflowed, have lost the savings in time and memory.",
)
def recognise_float32(evidence: Mapping[str, Any]) -> bool:
    return evidence.get(BEFORE) == ["float32"] and evidence.get(WITHIN) == ["float32"]


@wrong_fix(
    "bfloat16_block",
    says="bfloat16 has the range, but this card does not support it. It also has three bits less precision than float16: the block's output is off by up to one per cent.",
)
def recognise_bfloat16(evidence: Mapping[str, Any]) -> bool:
    return evidence.get(BEFORE) == ["float16"] and evidence.get(WITHIN) == ["bfloat16"]


@wrong_fix(
    "no_dropout",
    says="Without dropout nothing divides by 0.9, and 6.3e4 just fits. If a weight grows by four percent, it overflows again.",
)
def recognise_no_dropout(evidence: Mapping[str, Any]) -> bool:
    return evidence.get(DROPPED) == 0.0 and evidence[EXPERT]["outcome"] == "failed"


def measured(evidence: Mapping[str, Any], what: str) -> list[float]:
    """What the first check measured under names that begin with `what`, in order; NaN counts as a number."""
    return [value for name, value in evidence.items() if name.startswith(f"{EXPERT}/{what}")]


def situation(size: int, heavier: float, half: bool) -> str:
    """In words: how many frames, which weights, which precision."""
    weights = "the shipped weights" if heavier == 1 else f"a massive weight {heavier:g} times as large"
    return f"for {size} frame{'s' * (size > 1)} {precision(half)} with {weights}"


def precision(half: bool) -> str:
    """In words."""
    return "under float16 autocast" if half else "in float32"


def checkpoint(seed: int, heavier: float = 1.0, *, unit: int = MASSIVE_UNIT, channel: int = MASSIVE_CHANNEL) -> Weights:
    """The expert's weights with one massive unit, as `load_expert` sets them: by their names in the expert."""
    with private_randomness(seed):
        gate, up = (torch.empty(HIDDEN, WIDTH).normal_() for _ in range(2))
        down = torch.empty(WIDTH, HIDDEN).normal_(std=2.0)
    bias = torch.zeros(HIDDEN)
    gate[unit] *= 0.02
    up[unit] *= 0.02
    bias[unit] = MASSIVE_GATE
    down[channel] *= 0.2
    down[:, unit] = 0.0
    down[channel, unit] = heavier * MASSIVE_WEIGHT
    mlp = {"gate.weight": gate, "gate.bias": bias, "up.weight": up, "up.bias": bias.clone(), "down.weight": down}
    return {"norm.weight": torch.ones(WIDTH), **{f"mlp.{name}": value for name, value in mlp.items()}}


def formula(feature: Tensor, weights: Weights) -> Tensor:
    """The expert in evaluation mode, in float64, as float32 (B, D)."""
    wide = {name: value.double() for name, value in weights.items()}
    return (feature.double() + OUTPUT_SCALE * gated_gelu(feature.double(), wide)).float()


def gated_gelu(x: Tensor, w: Weights) -> Tensor:
    """The last product for the normalised feature, (B, D), without dropout."""
    normed = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * w["norm.weight"]
    gate = normed @ w["mlp.gate.weight"].T + w["mlp.gate.bias"]
    up = normed @ w["mlp.up.weight"].T + w["mlp.up.bias"]
    return (F.gelu(gate) * up) @ w["mlp.down.weight"].T


def gradients_of_formula(feature: Tensor, weights: Weights, of_block: Tensor, of_feature: Tensor) -> Weights:
    """Gradients of the feature plus the block, given those of either summand's (B, D), in float64."""
    wide = {"feature": feature, **weights}
    wide = {name: value.double().requires_grad_() for name, value in wide.items()}
    block = OUTPUT_SCALE * gated_gelu(wide["feature"], wide)
    total = (block * of_block.double()).sum() + (wide["feature"] * of_feature.double()).sum()
    return dict(zip(wide, torch.autograd.grad(total, list(wide.values())), strict=True))


def reference_chunk(batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk (B, H, 3) of the base policy with the formula between language model and head."""
    policy = Policy.from_base(seed=seed)
    with torch.no_grad():
        feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
        return policy.decode(formula(feature, checkpoint(seed)))


def of_largest(added: Tensor, wanted: Tensor) -> float:
    """What was added where the largest contribution is expected, positive if in its direction."""
    at = wanted.abs().argmax()
    return float(added.flatten()[at] * wanted.flatten()[at].sign())


def ratio(added: Tensor, wanted: Tensor) -> float:
    """The median of the contributions over those expected, of those that are not small."""
    return float((added / wanted)[wanted.abs() > COUNTED].median())


def distance(gradient: Any, wanted: Tensor) -> float:
    """How far a gradient is from the one wanted, relative to its length; infinitely far if there is none."""
    if not isinstance(gradient, Tensor):
        return float("inf")
    return float((gradient.double() - wanted).norm() / wanted.norm())


def same(stored: Tensor, wanted: Tensor) -> bool:
    """Whether a stored tensor is the one wanted, in shape and dtype too."""
    return stored.dtype == wanted.dtype and stored.shape == wanted.shape and torch.allclose(stored, wanted)
