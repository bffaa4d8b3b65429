"""What must hold for a module that Lightning trains. Runs in the grader's process, without the learner's code.

The reference is the docstring's loss, computed here in double precision from the chunks that the module's head predicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    PARTS,
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    expect_step_on_a_second_device,
    padded_batch,
)

SHAKING, LATER = 0.5, 0.9
SHARE_LEFT = 0.3


@check(
    kind="behaviour",
    title="The loss is the documented one",
    property="The loss must be the mean square of the error's cosine waves, with less weight on later steps and more on faster waves. Padded steps must not count.",
    instrument="debugkit.trace_shapes(module, batch, lambda module, batch: module.training_step(batch))",
)
def test_loss_is_the_one_described(submission: Submission, rng: Rng) -> None:
    submission.observe("held")
    for size in (1, rng.integer(2, 4), rng.integer(4, 8)):
        batch = batch_that_ends_early(rng, size)
        seen = submission.observe("step", batch=batch, seed=rng.seed())
        expect(seen["loss"], "the loss").has_shape()
        expect(seen["loss"], "the loss").close_to(reference(seen, batch["action_is_pad"]).float(), rtol=1e-4)


@check(
    kind="behaviour",
    title="The framework can choose the precision",
    property='With Trainer(precision="64-true"), fit and validate must run, and the loss must be float64 like the module.',
    instrument='lightning.Trainer(accelerator="cpu", precision="64-true", fast_dev_run=True).fit(module, loader)',
)
def test_runs_in_double_precision(submission: Submission, rng: Rng) -> None:
    batch = batch_that_ends_early(rng, rng.integer(2, 6))
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
    title="The framework can choose the device",
    property="With module and batch on another device, no tensor may stay on the CPU, and forward and backward must both complete.",
    instrument="debugkit.simulate_device(module, batch, lambda module, batch: module.training_step(batch))",
)
def test_runs_on_a_second_device(submission: Submission, rng: Rng) -> None:
    expect_step_on_a_second_device(submission, batch_that_ends_early(rng, rng.integer(2, 5)), rng.seed())


@check(
    kind="invariant",
    title="Only the policy is trained",
    property="Every trainable parameter must belong to the policy, and all of the policy's parameters must be trainable.",
    instrument="debugkit.check(module, batch, loss_fn, select=['DK113'])",
)
def test_only_the_policy_trains(submission: Submission) -> None:
    names = submission.observe("trainable")
    parts = sorted({name.partition(".")[0] for name in names})
    expect(parts, "the list of trained parts of the module").equals(["policy"])
    inside = sorted({name.split(".")[1] for name in names})
    expect(inside, "the list of trained parts of the policy").equals(PARTS)


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
    title="A frame does not depend on the rest of the batch",
    property="The action predicted for a frame must be the same whatever else is in the batch.",
    instrument="debugkit.check(module.policy, batch, select=['DK305'])",
)
def test_frames_are_independent(submission: Submission, rng: Rng) -> None:
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="outcome",
    title="fast_dev_run passes, and one batch can be overfitted in double precision",
    property=f"After 60 steps of Trainer(overfit_batches=1, precision='64-true'), the base policy's loss must be below {SHARE_LEFT:.0%} of its initial value.",
    instrument="lab run 91",
)
def test_learns_in_double_precision(submission: Submission, seed: int) -> None:
    seen = submission.observe("trained", seed=seed)
    expect(seen["fast_dev_run"], "what fast_dev_run raised").equals(None)
    expect(seen["raised"], "what the training raised").equals(None)
    expect(seen["after"] / seen["before"], "the final loss as a fraction of the first").below(SHARE_LEFT)


def batch_that_ends_early(rng: Rng, size: int) -> dict[str, Tensor]:
    """A padded batch in which at least the first chunk ends early."""
    batch = padded_batch(rng, size)
    batch["action_is_pad"][0, -1] = True
    return batch


def weighted_error(seen: Mapping[str, Any], is_pad: Tensor) -> Tensor:
    """The chunk's error (B, H, A) in double precision, with less weight on later steps and none on padded ones."""
    error = seen["predicted"].double() - seen["target"].double()
    importance = torch.tensor([LATER**step for step in range(error.shape[1])], dtype=torch.float64)
    return error * (~is_pad)[..., None] * importance[:, None]


def reference(seen: Mapping[str, Any], is_pad: Tensor) -> Tensor:
    """The loss of the predicted chunks in double precision, computed wave by wave."""
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
    says="The step now runs on any device, because the error is moved back to the CPU each time. The table of waves itself still has the device and the dtype of the constructor.",
)
def recognise_cpu(evidence: Mapping[str, Any]) -> bool:
    return raised(evidence, "fit") and no_stray(evidence)


@wrong_fix(
    "dtype_literal",
    says="The table of waves is now hard-coded to float64. Lightning chooses the precision, so now the float32 run fails instead.",
)
def recognise_dtype_literal(evidence: Mapping[str, Any]) -> bool:
    return "torch.float64" in evidence["held"]["plain"].values()


@wrong_fix(
    "error_in_float32",
    says="Nothing raises any more: the error is cast to the table's dtype, so a double-precision run computes its loss in single precision. And the table of waves still does not move.",
)
def recognise_cast_down(evidence: Mapping[str, Any]) -> bool:
    seen = evidence["in_double"]["fit"]
    return seen["raised"] is None and seen["loss"].dtype == torch.float32


@wrong_fix(
    "moved_when_fit_starts",
    says="fit moves the table of waves first, and runs. validate, test and predict do not call on_fit_start, so for them the table stays where it was created.",
)
def recognise_fit_only(evidence: Mapping[str, Any]) -> bool:
    return not raised(evidence, "fit") and raised(evidence, "validate")


@wrong_fix(
    "trained_waves",
    says="A parameter moves with the module, but the optimizer also trains it: the loss can now fall by changing the waves instead of the policy.",
)
def recognise_trained(evidence: Mapping[str, Any]) -> bool:
    return any(not name.startswith("policy.") for name in evidence["trainable"])


@wrong_fix(
    "no_waves",
    says="Without the waves nothing can stay on the wrong device. But the loss is now the plain squared error, and a shaking chunk costs no more than one with a constant offset.",
)
def recognise_plain(evidence: Mapping[str, Any]) -> bool:
    seen = evidence["step"]
    error = weighted_error(seen, seen["is_pad"])
    plain = error.square().sum() / ((~seen["is_pad"]).sum() * error.shape[2])
    return torch.allclose(seen["loss"].double(), plain, rtol=1e-4)


def raised(evidence: Mapping[str, Any], verb: str) -> bool:
    """Whether the trainer's method raised."""
    return evidence["in_double"][verb]["raised"] is not None


def no_stray(evidence: Mapping[str, Any]) -> bool:
    """Whether no tensor stayed on the CPU in the step on the second device."""
    return not evidence["second_device"]["strays"]
