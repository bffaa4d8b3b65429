"""What must hold of a module that Lightning trains. Runs in the grader's process; judges, and never sees the code.

The reference is the docstring's loss, computed here in double precision from the chunks that the module's own head predicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_frames_to_be_independent, expect_image_and_instruction_to_matter, random_batch

SHAKING, LATER = 0.5, 0.9
SHARE_LEFT = 0.3


@check(
    kind="behaviour",
    title="The loss is the one that is described",
    property="The loss must be the mean square of the error's cosine waves, with later steps less important and faster waves dearer; padded steps count nowhere.",
    instrument="debugkit.trace_shapes(module, batch, lambda module, batch: module.training_step(batch))",
)
def test_loss_is_the_one_described(submission: Submission, rng: Rng) -> None:
    submission.observe("held")
    for size in (1, rng.integer(2, 4), rng.integer(4, 8)):
        batch = padded_batch(rng, size)
        seen = submission.observe("step", batch=batch, seed=rng.seed())
        expect(seen["loss"], "the loss").has_shape()
        expect(seen["loss"], "the loss").close_to(reference(seen, batch["action_is_pad"]).float(), rtol=1e-4)


@check(
    kind="behaviour",
    title="The framework may choose the precision",
    property='With Trainer(precision="64-true") fit and validate must run, and the loss must be float64, as the module is.',
    instrument='lightning.Trainer(accelerator="cpu", precision="64-true", fast_dev_run=True).fit(module, loader)',
)
def test_runs_in_double_precision(submission: Submission, rng: Rng) -> None:
    batch = padded_batch(rng, rng.integer(2, 6))
    told = submission.observe("in_double", batch=batch, seed=rng.seed())
    for verb in ("fit", "validate"):
        seen = told[verb]
        expect(seen["raised"], f"what {verb} raised").equals(None)
        expect(seen["predicted"].dtype, f"the dtype of the chunk in {verb}").equals(torch.float64)
        expect(seen["loss"].double(), f"the loss of {verb}").close_to(
            reference(seen, batch["action_is_pad"]), rtol=1e-5
        )
    expect(told["fit"]["loss"].dtype, "the dtype of the loss").equals(torch.float64)


@check(
    kind="behaviour",
    title="The framework may choose the device",
    property="With module and batch on another device, no tensor may be left on the CPU, and forward and backward must both end.",
    instrument="debugkit.simulate_device(module, batch, lambda module, batch: module.training_step(batch))",
)
def test_runs_on_a_second_device(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("second_device", batch=padded_batch(rng, rng.integer(2, 5)), seed=rng.seed())
    left = [stray["attribute"] or stray["operation"] for stray in seen["strays"]]
    expect(left, "the list of tensors left on the CPU").equals([])
    expect(seen["not_examined"], "the reason why the step was not examined").equals(None)
    expect(seen["forward"], "the forward on the second device").is_true()
    expect(seen["backward"], "the backward on the second device").is_true()


@check(
    kind="invariant",
    title="What trains is the policy, and nothing else",
    property="Every parameter that trains must be the policy's own, and all of those must train.",
    instrument="debugkit.check(module, batch, loss_fn, select=['DK113'])",
)
def test_only_the_policy_trains(submission: Submission) -> None:
    names = submission.observe("trainable")
    parts = sorted({name.partition(".")[0] for name in names})
    expect(parts, "the list of trained parts of the module").equals(["policy"])
    inside = sorted({name.split(".")[1] for name in names})
    wanted = ["head", "language_model", "projector", "proprioception", "vision"]
    expect(inside, "the list of trained parts of the policy").equals(wanted)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(module.policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="invariant",
    title="A frame does not depend on its neighbours",
    property="The action predicted for a frame must be the same whatever else is in the batch.",
    instrument="debugkit.check(module.policy, batch, select=['DK305'])",
)
def test_frames_are_independent(submission: Submission, rng: Rng) -> None:
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="outcome",
    title="fast_dev_run is green, and one batch is learnt by heart in double precision",
    property=f"After 60 steps of Trainer(overfit_batches=1, precision='64-true') the policy's own loss must be below {SHARE_LEFT:.0%} of its start.",
    instrument="lab run 91",
)
def test_learns_in_double_precision(submission: Submission, seed: int) -> None:
    seen = submission.observe("trained", seed=seed)
    expect(seen["fast_dev_run"], "what fast_dev_run raised").equals(None)
    expect(seen["raised"], "what the training raised").equals(None)
    expect(seen["after"] / seen["before"], "the share of the loss that is left").below(SHARE_LEFT)


def padded_batch(rng: Rng, size: int) -> dict[str, Tensor]:
    """A random batch in which some chunks end early, the first one certainly."""
    batch = random_batch(rng, size)
    ends = [rng.integer(1, 5) if index else rng.integer(1, 4) for index in range(size)]
    batch["action_is_pad"] = torch.arange(4) >= torch.tensor(ends)[:, None]
    return batch


def weighted_error(seen: Mapping[str, Any], is_pad: Tensor) -> Tensor:
    """The chunk's error (B, H, A) in double precision, later steps counted less and padded ones not at all."""
    error = seen["predicted"].double() - seen["target"].double()
    importance = torch.tensor([LATER**step for step in range(error.shape[1])], dtype=torch.float64)
    return error * (~is_pad)[..., None] * importance[:, None]


def reference(seen: Mapping[str, Any], is_pad: Tensor) -> Tensor:
    """The loss of the chunks that were predicted, in double precision, wave by wave."""
    error = weighted_error(seen, is_pad)
    _, horizon, width = error.shape
    total = torch.zeros((), dtype=torch.float64)
    for wave in range(horizon):
        scale = math.sqrt((2 if wave else 1) / horizon) * (1 + SHAKING * wave)
        cosines = [math.cos(math.pi / horizon * wave * (step + 0.5)) for step in range(horizon)]
        amplitude = sum(cosine * error[:, step] for step, cosine in enumerate(cosines))  # (B, A)
        total = total + (scale * amplitude).square().sum()
    return total / ((~is_pad).sum() * width)


@wrong_fix(
    "cpu_in_the_step",
    says="The step runs on any device now, because what it compares is brought back to the CPU each time. The table itself is still where it was made, and of the dtype it was made of.",
)
def recognise_cpu(evidence: Mapping[str, Any]) -> bool:
    return raised(evidence, "fit") and no_stray(evidence)


@wrong_fix(
    "dtype_literal",
    says="The table is float64 by decree now. Lightning chooses the precision, so yesterday's float32 run is the one that fails.",
)
def recognise_dtype_literal(evidence: Mapping[str, Any]) -> bool:
    return "torch.float64" in evidence["held"]["plain"].values()


@wrong_fix(
    "error_in_float32",
    says="Nothing raises any more: the error is cast down to the table's dtype, so a double-precision run computes its loss in single precision. And the table has not moved.",
)
def recognise_cast_down(evidence: Mapping[str, Any]) -> bool:
    seen = evidence["in_double"]["fit"]
    return seen["raised"] is None and seen["loss"].dtype == torch.float32


@wrong_fix(
    "moved_when_fit_starts",
    says="fit moves the table first, and runs. validate, test and predict have no on_fit_start, and meet the table where it was made.",
)
def recognise_fit_only(evidence: Mapping[str, Any]) -> bool:
    return not raised(evidence, "fit") and raised(evidence, "validate")


@wrong_fix(
    "trained_waves",
    says="A parameter follows the module, and the optimizer changes it as well: the loss can now fall by unlearning what a motion is.",
)
def recognise_trained(evidence: Mapping[str, Any]) -> bool:
    return any(not name.startswith("policy.") for name in evidence["trainable"])


@wrong_fix(
    "no_waves",
    says="With the waves gone nothing can be left behind. But the loss is the plain squared error now, and a trembling chunk costs no more than one that is off.",
)
def recognise_plain(evidence: Mapping[str, Any]) -> bool:
    seen = evidence["step"]
    error = weighted_error(seen, seen["is_pad"])
    plain = error.square().sum() / ((~seen["is_pad"]).sum() * error.shape[2])
    return torch.allclose(seen["loss"].double(), plain, rtol=1e-4)


def raised(evidence: Mapping[str, Any], verb: str) -> bool:
    """Whether the trainer's verb ended in an exception."""
    return evidence["in_double"][verb]["raised"] is not None


def no_stray(evidence: Mapping[str, Any]) -> bool:
    """Whether the step ran on the second device with nothing left behind."""
    return not evidence["second_device"]["strays"]
