"""Requirements for training in float16. Runs in the grader's process; judges data, and never sees the code.

The reference is the same loss, its gradient and AdamW in float32, on random batches with random frame weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, padded_batch
from labs.vla.policy import OBSERVATION_KEYS, Policy

Batch = dict[str, Tensor]

ROUNDING = 1e-2
LOSS_ROUNDING = 3e-3
LEARNING_RATE, BETAS, EPSILON = 1e-3, (0.9, 0.95), 1e-20
FINGER_TRAVEL = 0.04
FRAMES_IN_DATA_SET = 1_000_000
HEAVY_FRAMES, HEAVIEST = 12, 20.0
"""Frames of the highest quality: with a scale that only just fits frames of mean quality, their gradient overflows."""
NEAR = 1e-4
"""Less than half of float16's step between 0.5 and 1: targets so near the chunk lose their distance in float16."""
REPEATED = 24
"""Calls of `backward` on one batch: a scale that doubles with each of them overflows after about 17."""
LARGE = 0.1
"""A gradient of at least this share of its parameter's largest has the same sign in float16."""
NOISE = 1e-4
"""The keys' biases have a gradient only by rounding: less than this share of the largest of all."""
SHARE_LEFT = 0.3


@check(
    kind="behaviour",
    title="The gradient equals that of float32",
    property="The optimizer must receive float32 gradients within one per cent of those of the same loss computed in float32, for frame weights from 0 to twenty times the mean, one batch after another, in every one of many calls, and none for a part that is frozen, from the beginning or later.",
    instrument="debugkit.check(half, batch, select=['DK209'])",
)
def test_gradient_is_float32s(submission: Submission, rng: Rng) -> None:
    sizes = (rng.integer(3, 9), 1, rng.integer(3, 9), 2)
    stream, seed = [weighted_batch(rng, *pair) for pair in zip(sizes, (1.0, 1.0, 0.2, 5.0), strict=True)], rng.seed()
    measured = submission.observe("gradients", stream=stream, seed=seed)
    wanted = [reference(batch, seed) for batch in stream]
    first, float32s = joined(measured[0]["gradient"]), joined(wanted[0][1])
    expect(float((first == 0).double().mean()), "share of zeros")
    expect(lengths(measured, wanted), "lengths over float32's")
    expect(float(torch.cosine_similarity(first, float32s, dim=0)), "direction")
    expect([seen["loss"] / loss for seen, (loss, _) in zip(measured, wanted, strict=True)], "losses over float32's")
    expect([float(batch["frame_weight"].sum()) for batch in stream], "sums of the frame weights")
    submission.observe("scaling", batch=stream[0], seed=seed)
    for size, seen, (_, gradient) in zip(sizes, measured, wanted, strict=True):
        of = f"of {size} frame{'s' * (size > 1)}"
        missing = [name for name in gradient if name not in seen["gradient"]]
        expect(named(missing), f"the list of parameters without a gradient {of}").equals("none")
        others = [name for name, value in seen["gradient"].items() if value.dtype != torch.float32]
        expect(named(others), f"the list of gradients {of} in another dtype").equals("none")
        distance = apart(seen["gradient"], gradient)
        expect(distance, f"the relative distance of the gradient {of} from float32's").below(ROUNDING)
    (frozen,) = submission.observe("gradients", stream=stream[:1], seed=seed, frozen="vision")
    _, later = submission.observe("gradients", stream=stream[:2], seed=seed, frozen_later="vision")
    for seen, (_, gradient), when in ((frozen, wanted[0], ""), (later, wanted[1], " after the first batch")):
        trained = {name: value for name, value in gradient.items() if not name.startswith("vision.")}
        others = sorted(set(seen["gradient"]) ^ set(trained))
        what = f"the list of parameters frozen{when} with a gradient, and trained ones without,"
        expect(named(others), what).equals("none")
        distance = apart(seen["gradient"], trained)
        expect(distance, f"the relative distance of the gradient, with a tower frozen{when}, from float32's").below(
            ROUNDING
        )
    heavy, uncounted = (
        {**padded_batch(rng, size), "frame_weight": torch.full((size,), weight / FRAMES_IN_DATA_SET)}
        for size, weight in ((HEAVY_FRAMES, HEAVIEST), (2, 0.0))
    )
    large, zero = submission.observe("gradients", stream=[heavy, uncounted], seed=seed)
    distance = apart(large["gradient"], reference(heavy, seed)[1])
    of = f"of {HEAVY_FRAMES} frames with {HEAVIEST:g} times the mean weight"
    expect(distance, f"the relative distance of the gradient {of} from float32's").below(ROUNDING)
    largest = float(joined(zero["gradient"]).abs().max())
    expect(largest, "the largest absolute value in the gradient of frames whose weight is 0").equals(0.0)
    heavy = {name: value[:1] for name, value in heavy.items()}
    wanted = {name: value for name, value in reference(heavy, seed)[1].items() if name.startswith("head.")}
    distances = [
        apart(seen, wanted)
        for seen in submission.observe("repeated", batch=heavy, seed=seed, trained="head", times=REPEATED)
    ]
    of = f"of one frame with {HEAVIEST:g} times the mean weight"
    expect(
        max(distances),
        f"the largest relative distance of the head's gradient {of} from float32's, in {REPEATED} calls,",
    ).below(ROUNDING)


@check(
    kind="behaviour",
    title="The layers run in float16",
    property="Every layer with parameters must compute in float16 and in training mode, forward and backward, in the towers and in the head, from images in float16.",
    instrument="debugkit.detect_overflow(policy, batch)",
)
def test_layers_run_in_float16(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("dtypes", batch=weighted_batch(rng, 3), seed=rng.seed())
    ran = {name: ways for name, ways in seen.items() if name != "vision"}
    names = [name for name, layer in Policy().named_modules() if list(layer.parameters(recurse=False))]
    missing = [name for name in names if "backward" not in ran.get(name, {}) and not name.endswith(NOT_CALLED)]
    expect(named(missing), "the list of layers that did not run forward and backward").equals("none")
    others = [f"{name} ({way}: {ways[way]})" for name, ways in ran.items() for way in WAYS if ways.get(way) != HALF]
    expect(named(others), "the list of layers that ran in another dtype").equals("none")
    expect(seen.get("vision", {}).get("images"), "the dtype of the images").equals(HALF)
    evaluated = [name for name, ways in ran.items() if ways["mode"] != "training"]
    expect(named(evaluated), "the list of layers that did not run in training mode").equals("none")


@check(
    kind="invariant",
    title="AdamW is the one of the file",
    property="For given gradients, however small, the optimizer must move the master's weights as AdamW with the file's learning rate, betas and epsilon, without weight decay.",
    instrument="python -c 'from policy import *; print(HalfPrecisionTrainer(Policy.from_base()).optimizer)'",
)
def test_optimizer_is_adamw(submission: Submission, rng: Rng) -> None:
    seed, policy = rng.seed(), Policy.from_base()
    gradients = [
        {name: rng.normal(*value.shape, std=1e-11) for name, value in policy.named_parameters()} for _ in range(3)
    ]
    seen = submission.observe("optimized", gradients=gradients, seed=seed)
    expect(seen["learning_rate"], "the learning rate").equals(LEARNING_RATE)
    reference = Policy.from_base(seed=seed)
    optimizer = adamw(reference)
    for given in gradients:
        for name, parameter in reference.named_parameters():
            parameter.grad = given[name]
        optimizer.step()
    wanted = {name: parameter.detach() for name, parameter in reference.named_parameters()}
    others = differing(seen["after"], wanted, rtol=1e-5, atol=1e-5)
    expect(others, "the list of weights that are not AdamW's after three steps with given gradients").equals("none")


@check(
    kind="invariant",
    title="A step moves the master and updates the copy",
    property="A step must give the gradient to AdamW once, which moves each weight by the learning rate in the first step, and then copy the rounded master into the float16 policy.",
    instrument="debugkit.gradient_table(policy)",
)
def test_step_moves_the_weights(submission: Submission, rng: Rng) -> None:
    stream, seed = [weighted_batch(rng, 5), weighted_batch(rng, 1)], rng.seed()
    first, second = submission.observe("steps", stream=stream, seed=seed)
    before = dict(Policy.from_base(seed=seed).named_parameters())
    _, gradient = reference(stream[0], seed)
    for number, seen in (("first", first), ("second", second)):
        expect(len(seen["gradients"]), f"the number of AdamW's steps in the {number} step").equals(1)
        rounded = {name: weight.half() for name, weight in seen["master"].items()}
        stale = differing(seen["half"], rounded, rtol=1e-3, atol=1e-7)
        expect(
            stale, f"the list of weights in which the float16 policy is not the master after the {number} step"
        ).equals("none")
    distance = apart(first["gradients"][0], gradient)
    expect(distance, "the relative distance of the gradient that AdamW gets from float32's").below(ROUNDING)
    smallest = NOISE * max(float(value.abs().max()) for value in gradient.values())
    moved = {name: (first["master"][name] - before[name].detach()) / LEARNING_RATE for name in gradient}
    too_far = [name for name, value in moved.items() if value.abs().max() > 1.01]
    expect(named(too_far), "the list of weights that moved by more than the learning rate").equals("none")
    large = {n: (g.abs() > LARGE * g.abs().max()) & (g.abs() > smallest) for n, g in gradient.items()}
    down = {name: -value.sign() * large[name] for name, value in gradient.items()}
    others = differing({name: moved[name] * large[name] for name in moved}, down, rtol=0.0, atol=1e-2)
    expect(others, "the list of weights that did not move down a large gradient by the learning rate").equals("none")


@check(
    kind="invariant",
    title="The loss is reported in square metres, as a share of the data set's",
    property="The reported loss and that of `weighted_loss` must equal that of float32, in square metres, whatever factor the backward pass uses, also for targets very near the predicted chunk, and the frames' weights must add up to one over the data set.",
    instrument="lab run 28",
)
def test_loss_is_reported_in_square_metres(submission: Submission, rng: Rng) -> None:
    quality = rng.uniform(7, low=0.2, high=1.8)
    stream, seed = [weighted_batch(rng, size) for size in (rng.integer(3, 9), 1)], rng.seed()
    measured = submission.observe("gradients", stream=stream, seed=seed)
    for batch, seen in zip(stream, measured, strict=True):
        size = len(batch["state"])
        loss, _ = reference(batch, seed)
        ratio = seen["loss"] / loss
        expect(ratio, f"the reported loss of {size} frame{'s' * (size > 1)} over float32's").close_to(
            1.0, rtol=LOSS_ROUNDING
        )
    ratio = submission.observe("loss_alone", batch=stream[1], seed=seed) / loss
    expect(ratio, "the result of weighted_loss, for 1 frame, over float32's loss").close_to(1.0, rtol=LOSS_ROUNDING)
    size = rng.integer(3, 9)
    batch = weighted_batch(rng, size)
    offset = NEAR * rng.uniform(*batch["action"].shape, low=-1.0, high=1.0)
    seen = submission.observe("near", batch=batch, offset=offset, seed=seed)
    wanted = loss_of_chunk(seen["chunk"].double(), {**batch, "action": seen["action"].double()})
    of = f"the reported loss of {size} frames, whose targets are within {NEAR:g} of the chunk, over the exact loss"
    expect(seen["loss"] / float(wanted), of).close_to(1.0, rtol=LOSS_ROUNDING)
    weights = submission.call("frame_weights", quality)
    expect(weights, "the result of frame_weights").has_shape(len(quality))
    for index in (0, 1):
        share = float(weights[index].double() * FRAMES_IN_DATA_SET)
        of = f"1,000,000 times the weight of a frame of quality {float(quality[index]):.3f}"
        expect(share, of).close_to(float(quality[index]), rtol=3e-7, atol=0.0)


@check(
    kind="invariant",
    title="Training equals the reference",
    property="On batches of different sizes `train` must give the losses that float32 gives, in square metres, and leave the given policy trained and in evaluation mode.",
    instrument="lab run 28",
)
def test_training_equals_the_reference(submission: Submission, rng: Rng) -> None:
    stream, seed = [padded_batch(rng, size) for size in (5, 3, 1, 4, 6)], rng.seed()
    seen = submission.observe("trained_on", stream=stream, seed=seed)
    policy = Policy.from_base(seed=seed)
    optimizer, losses = adamw(policy), []
    for batch in stream:
        optimizer.zero_grad()
        loss = loss_of(policy, equally_weighted(batch))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    expect(len(seen["losses"]), "the number of losses").equals(len(stream))
    for step, (measured, wanted) in enumerate(zip(seen["losses"], losses, strict=True)):
        expect(measured / wanted, f"the loss in step {step} over float32's").close_to(1.0, rtol=LOSS_ROUNDING)
    expect(seen["training"], "whether the policy is in training mode after training").is_false()
    with torch.no_grad():
        wanted = float(loss_of(policy, equally_weighted(stream[0])))
        measured = float(loss_of_chunk(seen["action"], equally_weighted(stream[0])))
    expect(measured / wanted, "the trained policy's loss over float32's").close_to(1.0, rtol=10 * LOSS_ROUNDING)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="The policy learns in float16",
    property=f"After forty steps on one batch, the loss, computed in float32, must be at most {SHARE_LEFT:.0%} of its first value.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_policy_learns(submission: Submission, seed: int) -> None:
    expect(submission.observe("trained", seed=seed)["left"], "the share of the loss that is left").at_most(SHARE_LEFT)


GRADIENT = "test_gradient_is_float32s"
ZEROS = f"{GRADIENT}/share of zeros"
LENGTHS = f"{GRADIENT}/lengths over float32's"
LOSSES = f"{GRADIENT}/losses over float32's"
SCALING = f"{GRADIENT}/scaling"
RATE = "test_optimizer_is_adamw/the learning rate"
HALF, WAYS = "float16", ("forward", "backward")
NOT_CALLED = ("position_embedding", "embeddings")
"""Modules whose parameters others read: they are not called as layers."""


@wrong_fix(
    "higher_learning_rate",
    says="The gradient is zero, not small: any learning rate times zero is zero.",
)
def recognise_learning_rate(evidence: Mapping[str, Any]) -> bool:
    return evidence[ZEROS] > 0.9 and evidence[RATE] > 1.5 * LEARNING_RATE


@wrong_fix(
    "everything_in_float32",
    says="Nothing underflows in float32. But the accelerator has no float32, which is why the policy was moved to float16: move the gradients into float16's range instead.",
)
def recognise_float32(evidence: Mapping[str, Any]) -> bool:
    ran = evidence["test_layers_run_in_float16/dtypes"]
    layers = [ways for name, ways in ran.items() if name != "vision"]
    return len(layers) > 0 and {ways[way] for ways in layers for way in WAYS} == {"float32"}


@wrong_fix(
    "never_divided",
    says="The gradients no longer underflow, but they are never divided by the scale again. AdamW is insensitive to that, so the loss falls; clipping, logging or another optimizer is not.",
)
def recognise_never_divided(evidence: Mapping[str, Any]) -> bool:
    scale = evidence[SCALING]["scale"]
    kept = all(abs(length / scale - 1) < 0.05 for length in evidence[LENGTHS])
    return scale > 2 and kept and reports_the_loss(evidence)


@wrong_fix(
    "scaled_after_backward",
    says="The gradients are scaled after the backward pass, where they are already zero: any scale times zero is zero. Scale the loss before it.",
)
def recognise_scaled_after(evidence: Mapping[str, Any]) -> bool:
    scaling = evidence[SCALING]
    unscaled = abs(scaling["scale"] - 1) < 0.01
    return evidence[ZEROS] > 0.9 and unscaled and max(scaling["after_backward"], default=0.0) > 2


@wrong_fix(
    "default_scale",
    says="Most of the gradient is there now, but much of it is subnormal: its length is correct, but it differs from float32's by more than one per cent. Measure how small the gradients are before you choose the scale.",
)
def recognise_default_scale(evidence: Mapping[str, Any]) -> bool:
    some_are_there = evidence[ZEROS] < 0.9 and abs(evidence[LENGTHS][0] - 1) < 0.05
    too_small = 2.0**8 < evidence[SCALING]["scale"] < 2.0**21
    return some_are_there and too_small and reports_the_loss(evidence) and evidence[GRADIENT]["outcome"] == "failed"


@wrong_fix(
    "weights_of_the_batch",
    says="These weights sum to one over the batch instead of the data set. The gradients are large enough, but they belong to a different loss: a batch of poor frames now counts as much as one of good frames.",
)
def recognise_batch_weights(evidence: Mapping[str, Any]) -> bool:
    sums = evidence[f"{GRADIENT}/sums of the frame weights"]
    means = [loss * total for loss, total in zip(evidence[LOSSES], sums, strict=True)]
    return evidence[ZEROS] < 0.9 and nearly_equal(means) and not nearly_equal(evidence[LOSSES])


def reports_the_loss(evidence: Mapping[str, Any]) -> bool:
    """Whether the reported losses are those of float32."""
    return nearly_equal([1.0, *evidence[LOSSES]])


def nearly_equal(values: list[float]) -> bool:
    """Whether positive values agree within two per cent."""
    return min(values) > 0 and max(values) < 1.02 * min(values)


def weighted_batch(rng: Rng, size: int, heaviness: float = 1.0) -> Batch:
    """A batch with a different `frame_weight` for each frame; later steps may be padded, the first never."""
    weight = heaviness * rng.uniform(size, low=0.2, high=1.8) / FRAMES_IN_DATA_SET
    return {**padded_batch(rng, size), "frame_weight": weight}


def equally_weighted(batch: Batch) -> Batch:
    """The batch with frames of mean quality."""
    return {**batch, "frame_weight": torch.full((len(batch["state"]),), 1 / FRAMES_IN_DATA_SET)}


def adamw(policy: Policy) -> torch.optim.AdamW:
    """The optimizer of the file."""
    return torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, betas=BETAS, eps=EPSILON, weight_decay=0.0)


def loss_of(policy: Policy, batch: Batch) -> Tensor:
    """The reference loss in square metres, in the policy's own precision."""
    return loss_of_chunk(policy.decode(policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})), batch)


def loss_of_chunk(action: Tensor, batch: Batch) -> Tensor:
    """The reference loss of a predicted chunk (B, H, A)."""
    error = (action - batch["action"]) * torch.tensor([1.0, 1.0, FINGER_TRAVEL])
    counted = (~batch["action_is_pad"]).float()
    of_frame = (error.square().mean(dim=-1) * counted).sum(dim=1) / counted.sum(dim=1)
    return (batch["frame_weight"] * of_frame).sum()


def reference(batch: Batch, seed: int) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients in float32, the gradients by the parameter's name where there is one."""
    policy = Policy.from_base(seed=seed)
    loss = loss_of(policy, batch)
    loss.backward()
    return float(loss.detach()), {name: one.grad for name, one in policy.named_parameters() if one.grad is not None}


def differing(measured: Mapping[str, Tensor], wanted: Mapping[str, Tensor], *, rtol: float, atol: float) -> str:
    """The names of the tensors that differ or are missing, or "none"."""

    def same(name: str) -> bool:
        found = measured.get(name)
        return found is not None and torch.allclose(found.double(), wanted[name].double(), rtol=rtol, atol=atol)

    return named([name for name in wanted if not same(name)])


def named(names: list[str]) -> str:
    """A list of names as text: the first of them and how many more, or "none"."""
    if len(names) < 2:
        return names[0] if names else "none"
    return f"{names[0]} and {len(names) - 1} other{'s' * (len(names) > 2)}"


def joined(gradient: Mapping[str, Tensor]) -> Tensor:
    """All gradients as one vector in float64."""
    return torch.cat([torch.zeros(1).double(), *(value.flatten().double() for value in gradient.values())])


def apart(gradient: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> float:
    """The distance of two gradients over the length of the second; what a gradient lacks counts as zero."""
    gaps = [(gradient.get(name, torch.zeros_like(value)).double() - value).norm() for name, value in wanted.items()]
    return float(torch.stack(gaps).norm() / joined(wanted).norm())


def lengths(measured: list[dict[str, Any]], wanted: list[tuple[float, dict[str, Tensor]]]) -> list[float]:
    """The length of each measured gradient over that of float32's."""
    pairs = zip(measured, wanted, strict=True)
    return [float(joined(seen["gradient"]).norm() / joined(gradient).norm()) for seen, (_, gradient) in pairs]
