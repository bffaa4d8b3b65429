"""What must hold for a policy that two processes train on batches with and without images. Runs in the grader's process.

The reference is the healthy policy in the grader's single process: it processes every frame alone, with its image or
without one, and averages the losses of all frames of both processes. Two processes must take the same step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_frames_to_be_independent, expect_image_and_instruction_to_matter, random_batch
from labs.vla.policy import Policy

Batch = dict[str, Tensor]
FINISHED = ["finished", "finished"]
STEPS = 24
LOSS_BAR = 0.72


@check(
    kind="behaviour",
    title="Both processes finish, whichever has no image",
    property="Whichever process has a batch without images, both must take one step per batch, finish, and end with the same weights.",
    instrument="debugkit.watch(model, optimizer, select=['DK801', 'DK802', 'DK804']), in each process",
)
def test_both_processes_finish(submission: Submission, rng: Rng) -> None:
    size = rng.integer(3, 6)
    sight = [[1, 1], [1, 0], [1, 1], [0, 0], [1, 1]]  # for each step, which processes have images
    streams = [[frames(rng, size, seeing=bool(seen[rank])) for seen in sight] for rank in (0, 1)]
    ranks = submission.observe("trained_together", streams=streams, seed=rng.seed(), rate=0.01)
    expect([rank["at"] for rank in ranks], "where they ended")
    expect([len(rank["losses"]) for rank in ranks], "the steps of each process")
    expect([rank["ended"] for rank in ranks], "how the two processes ended").equals(FINISHED)
    expect([len(rank["losses"]) for rank in ranks], "the number of losses of each process").equals([len(sight)] * 2)
    first, second = (rank["parameters"] for rank in ranks)
    different = sorted(name for name in first if not torch.equal(first[name], second[name]))
    expect(different, "the list of parameters that differ between the processes").equals([])


@check(
    kind="behaviour",
    title="Two processes take the same step as one",
    property="The averaged gradient must be that of all frames of both processes together, including those without an image.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_gradient_is_that_of_one_process(submission: Submission, rng: Rng) -> None:
    for sight in ((1, 0), (1, 1)):
        size, seed = rng.integer(3, 6), rng.seed()
        batches = [frames(rng, size, seeing=bool(seen)) for seen in sight]
        ranks = submission.observe("trained_together", streams=[[batch] for batch in batches], seed=seed)
        expect([rank["ended"] for rank in ranks], "how the two processes ended").equals(FINISHED)
        wanted = reference_gradients(batches, seed)
        scale = max(float(gradient.abs().max()) for gradient in wanted.values())
        given = {name: ranks[0]["before"][name] - value for name, value in ranks[0]["parameters"].items()}
        expect(closest(given, batches, wanted, seed), "whose gradient it is")
        off = max(float((given[name] - wanted[name]).abs().max()) for name in wanted) / scale
        expect(
            off, "the gradient's largest difference from the reference, as a fraction of its largest value,"
        ).at_most(1e-4)


@check(
    kind="behaviour",
    title="A frame without an image uses no image",
    property="The chunk predicted without an image must be that of instruction and state alone, without a blank image in between.",
    instrument="policy.predict(batch)",
)
def test_no_picture_is_no_picture(submission: Submission, rng: Rng) -> None:
    for seeing in (False, True):
        batch, seed = frames(rng, rng.integer(3, 6), seeing=seeing), rng.seed()
        given = submission.observe("action", batch=batch, seed=seed)
        reference = Policy.from_base(seed=seed).eval()
        with torch.no_grad():
            wanted = reference.decode(features(reference, batch))
        expect(given, "the predicted chunks").close_to(wanted, rtol=1e-3, atol=1e-4)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="invariant",
    title="The trained parameters are unchanged",
    property="Every parameter of the policy must require a gradient, and the policy must have no additional parameters.",
    instrument="debugkit.check(policy, batch, select=['DK113'])",
)
def test_trainable_parameters_are_the_same(submission: Submission) -> None:
    required = submission.observe("trainable")
    wanted = dict.fromkeys((name for name, _ in Policy.from_base(seed=0).named_parameters()), True)
    expect(required, "which parameters are trained").equals(wanted)


@check(
    kind="outcome",
    title="Two processes learn with missing images",
    property=f"After {STEPS} steps in two processes, with three out of ten batches without images, the loss must be below {LOSS_BAR}.",
    instrument="lab run 81",
)
def test_training_gets_through(submission: Submission, seed: int) -> None:
    ranks = submission.observe("trained_on_demonstrations", seed=seed, steps=STEPS)
    expect([rank["ended"] for rank in ranks], "how the two processes ended").equals(FINISHED)
    last = [loss for rank in ranks for loss in rank["losses"][-8:]]
    expect(sum(last) / max(len(last), 1), "the mean of the last losses").below(LOSS_BAR)


ENDED = "test_both_processes_finish/how the two processes ended"
STEPS_MADE = "test_both_processes_finish/the steps of each process"
WHOSE = "test_gradient_is_that_of_one_process/whose gradient it is"


@wrong_fix(
    "longer_timeout",
    says="No process times out any more, but none finishes either: the waiting process now waits longer for something that never happens.",
)
def recognise_patience(evidence: Mapping[str, Any]) -> bool:
    return any("still waiting" in ended for ended in evidence.get(ENDED, ()))


@wrong_fix(
    "drop_the_batch",
    says="One process skips its batch, so it takes fewer steps than the other. The backward passes are paired by order, not by batch: from there on the processes average different steps, and the last step waits alone.",
)
def recognise_dropped_batch(evidence: Mapping[str, Any]) -> bool:
    return _made_fewer_steps(evidence)


@wrong_fix(
    "skip_the_step",
    says="One process skips its backward pass when it has no image. The other is in its backward pass at that time, and averages with the next one of the first process: from there on the two are one step apart.",
)
def recognise_skipped_step(evidence: Mapping[str, Any]) -> bool:
    ended = evidence.get(ENDED, FINISHED)
    unused = any("Expected to have finished" in end or "still waiting" in end for end in ended)
    return ended != FINISHED and not unused and not _made_fewer_steps(evidence)


def _made_fewer_steps(evidence: Mapping[str, Any]) -> bool:
    """Whether one process finished with fewer steps than it had batches, and the other did not finish."""
    ended, made = evidence.get(ENDED, FINISHED), evidence.get(STEPS_MADE, ())
    return ended != FINISHED and any(end == "finished" and n < 5 for end, n in zip(ended, made, strict=False))


@wrong_fix(
    "both_leave_it_out",
    says="The processes agree to skip a step if one of them has no image. They stay in step, but all data in those batches are lost, including the images of the other process.",
)
def recognise_left_out_together(evidence: Mapping[str, Any]) -> bool:
    return evidence.get(ENDED) == FINISHED and evidence.get(WHOSE) == "none: no weight changed"


@wrong_fix(
    "blank_that_is_seen",
    says="Both processes finish, because the tower always runs. But a frame without an image now uses a blank one: the policy learns from blank images, and its predictions without a camera change.",
)
def recognise_seen_blank(evidence: Mapping[str, Any]) -> bool:
    return evidence.get(WHOSE) == "that of frames with a blank image"


def frames(rng: Rng, size: int, *, seeing: bool) -> Batch:
    """A random batch: with `seeing`, some frames have an image, at least the first; else none has."""
    batch = random_batch(rng, size)
    has_image = rng.boolean(size) if seeing else torch.zeros(size, dtype=torch.bool)
    has_image[0] |= seeing
    return {**batch, "pixel_values": batch["pixel_values"][has_image], "has_image": has_image}


def features(policy: Policy, batch: Batch, *, blank: bool = False) -> Tensor:
    """The reference, frame by frame: the feature that the head reads, (B, D), without images from words and state alone.

    With `blank`, frames without an image use a blank one.
    """
    found, pictures = [], iter(batch["pixel_values"])
    for row in range(len(batch["state"])):
        words, mask, state = (batch[name][row : row + 1] for name in ("input_ids", "attention_mask", "state"))
        if batch["has_image"][row]:
            images = policy.embed_images(next(pictures)[None])
        elif blank:
            images = policy.embed_images(torch.zeros(1, 3, 64, 64))
        else:
            images = torch.zeros(1, 0, policy.config.width)
        found.append(policy.run_language_model(*policy.join_prefix(images, words, mask, state))[:, -1])
    return torch.cat(found)


def reference_gradients(batches: Sequence[Batch], seed: int, *, blank: bool = False) -> dict[str, Tensor]:
    """The gradient of the mean loss over all frames of all processes, in one process."""
    policy = Policy.from_base(seed=seed).train()
    feature = torch.cat([features(policy, batch, blank=blank) for batch in batches])
    target, padded = (torch.cat([batch[name] for batch in batches]) for name in ("action", "action_is_pad"))
    policy.loss(feature, target, padded).backward()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in policy.named_parameters()}


def closest(given: Mapping[str, Tensor], batches: Sequence[Batch], wanted: Mapping[str, Tensor], seed: int) -> str:
    """Describes whose gradient a step of plain SGD at rate 1 used."""
    if not any(step.any() for step in given.values()):
        return "none: no weight changed"
    candidates = {"that of all frames": wanted}
    if not all(batch["has_image"].all() for batch in batches):
        candidates["that of frames with a blank image"] = reference_gradients(batches, seed, blank=True)
    for rank, batch in enumerate(batches):
        candidates[f"that of process {rank}'s frames alone"] = reference_gradients([batch], seed)
    for name, gradients in candidates.items():
        scale = max(float(gradient.abs().max()) for gradient in gradients.values())
        if all(float((given[key] - gradients[key]).abs().max()) <= 1e-4 * scale for key in gradients):
            return name
    return "another one"
