"""Requirements for a loss over chunks that may reach beyond their episode. Runs in the grader's process; never sees the code.

The reference follows the docstring: the mean absolute error over the numbers of the steps that exist. The head's chunk is
compared with that of the same layers, built here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_frames_to_be_independent, expect_image_and_instruction_to_matter, random_batch
from labs.vla.heads import ActionHead
from labs.vla.policy import Policy, PolicyConfig
from labs.vla.randomness import private_randomness

WIDTH = 16
ERROR_BAR = 0.5


@check(
    kind="behaviour",
    title="An error of one is a loss of one",
    property="If every number of the steps that exist has an error of c, the loss must be c, for any share of padding, also where chunks have no step at all, any chunk length and any number of joints.",
    instrument="debugkit.check(policy, batch, select=['DK309'])",
)
def test_constant_error_is_the_loss(submission: Submission, rng: Rng) -> None:
    for number, action_dim in enumerate((3, 1, 7, rng.integer(8, 33))):
        horizon, seed, size = rng.integer(4, 11), rng.seed(), 1 if action_dim == 1 else 6
        feature = rng.normal(size, WIDTH)
        chunk = submission.observe("chunk", feature=feature, horizon=horizon, action_dim=action_dim, seed=seed)
        expect(chunk, "the chunk").has_shape(size, horizon, action_dim)
        for longest in (horizon, max(1, horizon // 2), 1, 0):
            off = float(rng.uniform(1, low=0.3, high=2.0)) + 2 * number
            target = chunk + off * (2.0 * rng.boolean(size, horizon, action_dim).float() - 1)
            is_pad, training = padding(rng, size, horizon, max(longest, 1)), longest < horizon
            if longest == 0:  # one step in all, so all chunks but one are empty
                is_pad[:] = True
                is_pad[rng.integer(0, size), 0] = False
            seen = submission.observe(
                "head_loss", feature=feature, target=target, is_pad=is_pad, seed=seed, training=training
            )
            what = f"the loss of an error of {off:.3f}, {int(is_pad.sum())} of {is_pad.numel()} steps padded, A = {action_dim},"
            expect(seen["loss"], what).close_to(off, rtol=1e-4, atol=1e-5)


@check(
    kind="behaviour",
    title="Loss and gradient are those of the mean over existing steps",
    property="Loss and gradient must be those of the mean absolute error over the numbers of the steps that exist, wherever the padded steps are.",
    instrument="debugkit.check(policy, batch, select=['DK309'])",
)
def test_loss_equals_the_reference(submission: Submission, rng: Rng) -> None:
    found, errors = [], []
    for horizon, action_dim in ((8, 3), (rng.integer(3, 7), rng.integer(5, 9))):
        feature, target = rng.normal(5, WIDTH), rng.normal(5, horizon, action_dim, std=2.0)
        is_pad = padding(rng, 5, horizon, horizon)
        seen = submission.observe("head_loss", feature=feature, target=target, is_pad=is_pad, seed=rng.seed())
        expect(seen["chunk"], "the chunk").has_shape(5, horizon, action_dim)
        errors.append(((seen["chunk"] - target).abs(), is_pad))
        found.append((seen, *reference(seen["chunk"], target, is_pad), f"for {horizon} steps of {action_dim} numbers"))
    expect(formula([float(seen["loss"]) for seen, *_ in found], errors), "formula")
    for seen, loss, gradient, where in found:
        expect(seen["loss"], f"the loss {where}").close_to(loss, rtol=1e-4, atol=1e-5)
        expect(seen["gradient"], f"the gradient of the chunk {where}").close_to(gradient, rtol=1e-3, atol=1e-6)
    expect_steps_anywhere(submission, rng)
    batch = {**random_batch(rng, 4, horizon=8), "action_is_pad": padding(rng, 4, 8, 8)}
    seen = submission.observe("policy_loss", batch=batch, seed=rng.seed())
    wanted = seen["error"][~batch["action_is_pad"]].mean()
    expect(seen["loss"], "the policy's loss").close_to(wanted, rtol=1e-4, atol=1e-5)


@check(
    kind="behaviour",
    title="Padded steps do not count",
    property="Other numbers in the padded steps must not change the loss; if no step exists, the loss must be 0, and an error that is not finite must not be hidden.",
    instrument="debugkit.check(policy, batch, select=['DK309'])",
)
def test_padded_steps_do_not_count(submission: Submission, rng: Rng) -> None:
    feature, target, is_pad, seed = rng.normal(4, WIDTH), rng.normal(4, 8, 3), padding(rng, 4, 8, 5), rng.seed()
    loss = submission.observe("head_loss", feature=feature, target=target, is_pad=is_pad, seed=seed)["loss"]
    expect(loss, "the loss").above(0.0)
    other = torch.where(is_pad[..., None], rng.normal(4, 8, 3, std=50.0), target)
    changed = submission.observe("head_loss", feature=feature, target=other, is_pad=is_pad, seed=seed)["loss"]
    expect(changed, "the loss with other padded steps").close_to(loss)
    nothing = torch.ones_like(is_pad)
    empty = submission.observe("head_loss", feature=feature, target=target, is_pad=nothing, seed=seed)
    expect(empty["loss"], "the loss of a batch in which no step exists").close_to(0.0)
    expect(empty["gradient"].abs().max(), "the largest gradient of a batch in which no step exists").equals(
        torch.tensor(0.0)
    )
    for number in (float("nan"), float("inf")):
        row, where = rng.integer(0, 4), f"the loss where one target of a step that exists is {number}"
        broken = target.clone()
        broken[row, 0, rng.integer(0, 3)] = number
        found = submission.observe("head_loss", feature=feature, target=broken, is_pad=is_pad, seed=seed)["loss"]
        expect(str(float(found)), where).equals(str(number))


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted chunk.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng, batch=random_batch(rng, 3, horizon=8))


@check(
    kind="invariant",
    title="The head predicts what it predicted",
    property="A head of the same seed must predict the same chunk as before, for any number of steps and of joints.",
    instrument="lab diff 42",
)
def test_head_is_unchanged(submission: Submission, rng: Rng) -> None:
    for horizon, action_dim in ((8, 3), (rng.integer(2, 7), rng.integer(4, 9))):
        feature, seed = rng.normal(3, WIDTH, std=30.0), rng.seed()
        given = submission.observe("chunk", feature=feature, horizon=horizon, action_dim=action_dim, seed=seed)
        with private_randomness(seed), torch.no_grad():
            wanted = ReferenceHead(WIDTH, horizon, action_dim).predict(feature)
        expect(given, f"the chunk of {horizon} steps of {action_dim} numbers").close_to(wanted, rtol=1e-4, atol=1e-5)
        known = submission.observe("sizes", horizon=horizon, action_dim=action_dim)
        expect(known, "the head's own `horizon` and `action_dim`").equals([horizon, action_dim])
    batch, seed = random_batch(rng, 3, horizon=8), rng.seed()
    given = submission.observe("action", batch=batch, seed=seed)
    expect(given, "the policy's chunk").close_to(
        ReferencePolicy.from_base(PolicyConfig(horizon=8), seed=seed).eval().predict(batch), rtol=1e-4, atol=1e-5
    )


@check(
    kind="invariant",
    title="A frame does not depend on the rest of the batch",
    property="The chunk predicted for a frame must be the same whatever else is in the batch.",
    instrument="debugkit.check(policy, batch, select=['DK305'])",
)
def test_frames_are_independent(submission: Submission, rng: Rng) -> None:
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="outcome",
    title="The policy learns the steps that exist",
    property=f"After a short training, the mean error over the steps that exist must be below {ERROR_BAR} on unseen frames.",
    instrument="lab run 42",
)
def test_policy_learns(submission: Submission, seed: int) -> None:
    error = submission.observe("error_after_training", seed=seed)
    expect(error.mean(), "the mean error").below(ERROR_BAR)


@wrong_fix(
    "forgot_the_joints",
    says="The mask has one number per step, the error one per joint: the sum runs over all joints and the divisor does not. The loss grows with the number of joints.",
)
def recognise_joints(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the sum, divided by the steps that exist"


@wrong_fix(
    "no_mask",
    says="Without the mask the padded steps are learnt: the data repeats the last action after the end of the episode, and the policy learns to repeat it.",
)
def recognise_no_mask(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the mean over all steps, padded or not"


@wrong_fix(
    "mean_of_frames",
    says="Every frame has the same weight here: a number of a frame with one step left weighs eight times as much as one of a full chunk. The required loss is a mean over numbers.",
)
def recognise_mean_of_frames(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the mean of the frames' means"


@wrong_fix(
    "whole_chunks_only",
    says="Chunks that reach beyond their episode are left out. The gripper closes in the last step of an episode, so it is now only ever learnt as the last step of a chunk.",
)
def recognise_whole_chunks(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the mean over the chunks without padding"


@wrong_fix(
    "scaled_by_the_horizon",
    says="The divisor is still the number of all steps, times a constant: a guess at the average share of padding. It is correct for one data set at most.",
)
def recognise_scaled(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "a constant times the mean with zeros in it"


FORMULA = "test_loss_equals_the_reference/formula"


class ReferenceHead(ActionHead):
    """An embedding for each step, and one MLP for all steps."""

    def __init__(self, width: int, horizon: int, action_dim: int) -> None:
        super().__init__(horizon, action_dim)
        self.steps = nn.Embedding(horizon, width)
        nn.init.normal_(self.steps.weight, std=0.3)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, action_dim))

    def predict(self, feature: Tensor) -> Tensor:
        """The normalised chunk, (B, H, A)."""
        chunk: Tensor = self.mlp(feature[:, None] + self.steps.weight)
        return chunk


class ReferencePolicy(Policy):
    """The base policy with that head."""

    def build_head(self) -> ReferenceHead:
        return ReferenceHead(self.config.width, self.config.horizon, self.config.action_dim)


def expect_steps_anywhere(submission: Submission, rng: Rng) -> None:
    """Padded steps may be anywhere in a chunk: at its beginning, in the middle or at its end."""
    for horizon, action_dim in ((8, 3), (rng.integer(4, 7), rng.integer(4, 9))):
        feature, target = rng.normal(5, WIDTH), rng.normal(5, horizon, action_dim, std=2.0)
        is_pad = rng.boolean(5, horizon)
        is_pad[0], is_pad[1] = torch.arange(horizon) < 2, torch.arange(horizon) % 2 == 0
        seen = submission.observe("head_loss", feature=feature, target=target, is_pad=is_pad, seed=rng.seed())
        loss, gradient = reference(seen["chunk"], target, is_pad)
        where = f"for {horizon} steps of {action_dim} numbers, with padded steps anywhere in a chunk"
        expect(seen["loss"], f"the loss {where},").close_to(loss, rtol=1e-4, atol=1e-5)
        expect(seen["gradient"], f"the gradient of the chunk {where},").close_to(gradient, rtol=1e-3, atol=1e-6)


def padding(rng: Rng, size: int, horizon: int, longest: int) -> Tensor:
    """Which steps do not exist (B, H): each frame has 1 to `longest` steps, the first frame has `longest`."""
    exist = torch.cat([torch.tensor([longest]), rng.integers(1, longest + 1, size - 1)])
    return torch.arange(horizon)[None] >= exist[:, None]


def reference(chunk: Tensor, target: Tensor, is_pad: Tensor) -> tuple[float, Tensor]:
    """The mean absolute error over the numbers of the steps that exist, and its gradient (B, H, A)."""
    exists = (~is_pad)[..., None].expand_as(chunk)
    difference = (chunk - target).double()
    loss = float(difference.abs()[exists].mean())
    return loss, (torch.sign(difference) * exists / int(exists.sum())).float()


def formula(measured: Sequence[float], errors: Sequence[tuple[Tensor, Tensor]]) -> str:
    """Which formula explains each loss, given the absolute errors (B, H, A) and which steps are padding (B, H)."""
    values = [candidates(error.double(), is_pad) for error, is_pad in errors]
    for name in values[0]:
        if all(close(loss, value[name]) for loss, value in zip(measured, values, strict=True)):
            return name
    factors = [loss / value["the mean with zeros in it"] for loss, value in zip(measured, values, strict=True)]
    if all(close(factor, factors[0]) for factor in factors):
        return "a constant times the mean with zeros in it"
    return "another"


def candidates(error: Tensor, is_pad: Tensor) -> dict[str, float]:
    """The value of each formula that is recognised; the first chunk has no padding."""
    exists = (~is_pad)[..., None].expand_as(error)
    kept = error * exists
    found = {
        "the mean over what exists": error[exists].mean(),
        "the mean with zeros in it": kept.mean(),
        "the sum, divided by the steps that exist": kept.sum() / (~is_pad).sum(),
        "the mean over all steps, padded or not": error.mean(),
        "the mean of the frames' means": (kept.sum(dim=(1, 2)) / exists.sum(dim=(1, 2))).mean(),
        "the mean over the chunks without padding": error[~is_pad.any(dim=1)].mean(),
    }
    return {name: float(value) for name, value in found.items()}


def close(measured: float, wanted: float) -> bool:
    """Equal up to rounding."""
    return abs(measured - wanted) <= 1e-4 * abs(wanted) + 1e-6
