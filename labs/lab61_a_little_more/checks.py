"""What must hold for an epoch that keeps averages. Runs in the grader's process, without the learner's code.

A leak is detected by counting what is alive at the same point of every tenth step: nodes of autograd graphs, and bytes of tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, random_batch

STEPS = 50
SHARE_LEFT = 0.9


@check(
    kind="behaviour",
    title="Graphs do not accumulate",
    property=f"Over {STEPS} steps, the number of live autograd nodes and the bytes of live tensors must stay at their values after ten steps.",
    instrument="debugkit.watch(policy, optimizer)",
)
def test_graphs_do_not_pile_up(submission: Submission, rng: Rng) -> None:
    stream = [random_batch(rng, 2) for _ in range(3)]
    seen = submission.observe("graphs", batches=stream, steps=STEPS, seed=rng.seed())
    expect(len(seen["nodes"]), "the number of counts").equals(STEPS // 10)
    first = seen["nodes"][0]
    expect(seen["nodes"], "the number of autograd nodes alive after each tenth step").between(
        0.5 * first, 1.5 * first + 50
    )
    expect(seen["nodes"][-1] - first, "the growth in live nodes from step ten to step fifty").at_most(50)
    expect(seen["bytes"][-1] / seen["bytes"][0], "the ratio of live tensor bytes, step fifty to step ten,").below(1.1)


@check(
    kind="behaviour",
    title="Averages are over frames",
    property="After each step the average loss must be the mean over all frames seen so far, even if batches differ in size.",
    instrument="lab run 61",
)
def test_averages_are_over_frames(submission: Submission, rng: Rng) -> None:
    stream = uneven_batches(rng)
    seen = submission.observe("epoch", batches=stream, seed=rng.seed())
    wanted, total, frames = [], 0.0, 0
    for loss, batch in zip(seen["losses"], stream, strict=False):
        total, frames = total + loss * len(batch["state"]), frames + len(batch["state"])
        wanted.append(total / frames)
    expect(len(seen["running"]), "the number of steps that were logged").equals(len(stream))
    expect(seen["running"][-1], "the running average")
    expect(seen["running"], "the average loss after each step").close_to(wanted, rtol=1e-4, atol=1e-6)
    expect(seen["averages"]["loss"], "the epoch's average loss").close_to(wanted[-1], rtol=1e-4, atol=1e-6)


@check(
    kind="invariant",
    title="Logging does not affect training",
    property="The weights after an epoch must be those of a loop without logging, and the log must contain all three averages.",
    instrument="debugkit.check(policy, batch)",
)
def test_log_changes_nothing(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("epoch", batches=uneven_batches(rng), seed=rng.seed())
    expect(seen["apart"], "the largest difference of a weight from the loop without logging").below(1e-6)
    expect(sorted(seen["averages"]), "the names in the log").equals(["grip_accuracy", "loss", "movement_error"])
    expect(list(seen["averages"].values()), "the averages").finite()


@check(
    kind="invariant",
    title="The image and the instruction matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="The logged loss falls",
    property=f"The third epoch's average loss must be at most {SHARE_LEFT:.0%} of the first one's.",
    instrument="lab run 61",
)
def test_logged_loss_falls(submission: Submission, seed: int) -> None:
    seen = submission.observe("trained", seed=seed)
    expect(seen["last"] / seen["first"], "the third epoch's average loss, as a fraction of the first one's,").at_most(
        SHARE_LEFT
    )


EPOCH = "test_averages_are_over_frames/epoch"


@wrong_fix(
    "last_loss_only",
    says="Memory is constant because nothing is summed any more: what the log calls an average is the last batch's loss.",
)
def recognise_last_loss(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[EPOCH]
    return flat(evidence) and abs(seen["running"][-1] - seen["losses"][-1]) < 1e-6


@wrong_fix(
    "mean_of_batches",
    says="Memory is constant, but the average is now over batches: a last batch with a single frame counts as much as a full one.",
)
def recognise_mean_of_batches(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[EPOCH]
    mean = sum(seen["losses"]) / len(seen["losses"])
    return flat(evidence) and abs(seen["running"][-1] - mean) < 1e-6


def flat(evidence: Mapping[str, Any]) -> bool:
    """Whether the number of live nodes stayed constant."""
    nodes = evidence["test_graphs_do_not_pile_up/graphs"]["nodes"]
    return bool(nodes[-1] <= nodes[0] + 50)


def uneven_batches(rng: Rng) -> list[dict[str, Tensor]]:
    """Four batches of different sizes."""
    return [random_batch(rng, size) for size in (5, 3, rng.integer(6, 9), 1)]
