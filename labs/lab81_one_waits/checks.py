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
from labs.invariants import (
    WORDS,
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    expect_step_on_a_second_device,
    listed,
    random_batch,
    random_padding,
)
from labs.policy_comparison import with_louder_head
from labs.process_endings import BOTH_FINISHED, endings
from labs.vla.policy import Policy

Batch = dict[str, Tensor]
STEPS = 24
LOSS_BAR = 0.72
RATE, EPSILON = 1e-3, 1e-2
SIGHT = [(1, 1), (1, 0), (1, 1), (0, 1), (1, 0), (0, 0), (1, 1)]
"""For each step, which of the two processes have images. Process 0 lacks them in two steps, process 1 in three."""
LOUDER = 30.0
"""Outputs this large exceed the range of the demonstrated actions. Nothing may limit them."""
LONGEST_TIMEOUT_S = 60
"""A minute, as the starter's docstring says."""
ONE_BLIND, NONE_BLIND = "if only process 0 has images", "if both processes have images"


@check(
    kind="behaviour",
    title="Both processes finish, whichever has no image",
    property="Whichever process has a batch without images, both must take one step per batch, and have the weights that one process would have after training on all frames. The time-out must stay at most a minute.",
    instrument="debugkit.watch(model, optimizer, select=['DK801', 'DK802', 'DK804'])",
)
def test_both_processes_finish(submission: Submission, rng: Rng) -> None:
    size, seed = rng.integer(3, 6), rng.seed()
    streams = [[frames(rng, size, seeing=bool(seen[rank])) for seen in SIGHT] for rank in (0, 1)]
    ranks = submission.observe("trained_together", streams=streams, seed=seed, rate=RATE, normalized=True)
    expect([rank["counts"] for rank in ranks], "the counts of each process")
    expect(endings(ranks), "how the two processes ended").equals(BOTH_FINISHED)
    declared = submission.observe("declared_timeout")
    for rank, result in enumerate(ranks):
        expect(result["counts"]["timeout_s"], f"the time-out of process {rank}, in seconds,").above(0)
        expect(result["counts"]["timeout_s"], f"the time-out of process {rank}, in seconds,").equals(declared)
        expect(result["counts"]["timeout_s"], f"the time-out of process {rank}, in seconds,").at_most(LONGEST_TIMEOUT_S)
        expect(
            result["counts"]["evaluations"], f"the number of forward passes of process {rank} in evaluation mode"
        ).equals(0.0)
    first, second = (rank["parameters"] for rank in ranks)
    different = sorted(name for name in first if not torch.equal(first[name], second[name]))
    expect(listed(different), "what differs between the weights of the two processes").equals("nothing")
    losses, parameters = reference_training(streams, seed)
    for rank, (result, wanted) in enumerate(zip(ranks, losses, strict=True)):
        expect(len(result["losses"]), f"the number of losses that process {rank} returned").equals(len(wanted))
        expect(torch.tensor(result["losses"]), f"the losses that process {rank} returned").close_to(
            torch.tensor(wanted), rtol=1e-3, atol=1e-5
        )
    off = max(float((first[name] - parameters[name]).abs().max()) for name in parameters) / RATE
    expect(
        off, f"the weights' largest difference from those of one process, in learning rates, after {len(SIGHT)} steps,"
    ).at_most(0.05)


@check(
    kind="behaviour",
    title="Two processes take the same step as one",
    property="The averaged gradient must be that of all frames of both processes together, including those without an image.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_gradient_is_that_of_one_process(submission: Submission, rng: Rng) -> None:
    whose, off = {}, {}
    for which, sight in ((ONE_BLIND, (1, 0)), (NONE_BLIND, (1, 1))):
        size, seed = rng.integer(3, 6), rng.seed()
        batches = [frames(rng, size, seeing=bool(seen)) for seen in sight]
        ranks = submission.observe("trained_together", streams=[[batch] for batch in batches], seed=seed)
        expect(endings(ranks), f"how the two processes ended {which}").equals(BOTH_FINISHED)
        wanted = reference_gradients(batches, seed)
        scale = max(float(gradient.abs().max()) for gradient in wanted.values())
        given = {name: ranks[0]["before"][name] - value for name, value in ranks[0]["parameters"].items()}
        whose[which] = closest(given, batches, wanted, seed)
        off[which] = max(float((given[name] - wanted[name]).abs().max()) for name in wanted) / scale
    expect(whose, "whose gradient it is")
    for which, difference in off.items():
        expect(
            difference,
            f"the averaged gradient's largest difference from that of all frames, as a fraction of its largest value, {which},",
        ).at_most(1e-4)


@check(
    kind="behaviour",
    title="A frame without an image uses no image",
    property="The chunk predicted without an image, and the loss, must be those of instruction and state alone, without a blank image in between.",
    instrument="policy.predict(batch)",
)
def test_no_picture_is_no_picture(submission: Submission, rng: Rng) -> None:
    for size, seeing in ((rng.integer(3, 6), False), (rng.integer(3, 6), True), (1, False), (1, True)):
        batch, seed = frames(rng, size, seeing=seeing), rng.seed()
        batch["action_is_pad"] = random_padding(rng, size)
        reference = Policy.from_base(seed=seed).eval()
        loud = with_louder_head(Policy.from_base(seed=seed), LOUDER).eval()
        with torch.no_grad():
            feature = features(reference, batch)
            chunk, loud_chunk = reference.decode(feature), loud.decode(features(loud, batch))
            losses = {
                "with `action_is_pad`": reference.loss(feature, batch["action"], batch["action_is_pad"]),
                "without `action_is_pad`": reference.loss(feature, batch["action"], batch["action_is_pad"] & False),
            }
        where = f"for a batch of {size} with{'' if seeing else 'out'} images"
        given = submission.observe("action", batch=batch, seed=seed)
        expect(given, f"the predicted chunks {where}").close_to(chunk, rtol=1e-3, atol=1e-4)
        given = submission.observe("action", batch=batch, seed=seed, louder=LOUDER)
        expect(given, f"the chunks predicted with larger weights in the head {where}").close_to(
            loud_chunk, rtol=1e-3, atol=1e-3
        )
        given = submission.observe("losses", batch=batch, seed=seed)
        for padding, loss in losses.items():
            expect(given[padding], f"the loss {padding} {where}").close_to(loss, rtol=1e-3, atol=1e-5)
        expect(given["graph"], f"the chunk predicted {where} requires a gradient,").is_false()


@check(
    kind="invariant",
    title="A step without images runs on a second device",
    property="With the policy and a batch without images on another device, no tensor may be left on the CPU, and forward and backward must both complete.",
    instrument="debugkit.simulate_device(policy, batch)",
)
def test_runs_on_a_second_device(submission: Submission, rng: Rng) -> None:
    expect_step_on_a_second_device(submission, frames(rng, rng.integer(2, 5), seeing=False), rng.seed())


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
    wanted = {name: True for name, _ in Policy.from_base(seed=0).named_parameters()}
    untrained = sorted(name for name in wanted if not required.get(name, True))
    expect(listed(untrained), "the parameters that do not require a gradient:").equals("nothing")
    expect(listed(sorted(required.keys() - wanted.keys())), "the additional parameters:").equals("nothing")
    expect(listed(sorted(wanted.keys() - required.keys())), "the missing parameters:").equals("nothing")


@check(
    kind="outcome",
    title="Two processes learn with missing images",
    property=f"After {STEPS} steps in two processes, with three out of ten batches without images, the loss must be below {LOSS_BAR}.",
    instrument="lab run 81",
)
def test_training_gets_through(submission: Submission, seed: int) -> None:
    ranks = submission.observe("trained_on_demonstrations", seed=seed, steps=STEPS)
    expect(endings(ranks), "how the two processes ended").equals(BOTH_FINISHED)
    last = [loss for rank in ranks for loss in rank["losses"][-8:]]
    expect(sum(last) / max(len(last), 1), "the mean of the last losses").below(LOSS_BAR)


ENDED = "test_both_processes_finish/how the two processes ended"
COUNTS = "test_both_processes_finish/the counts of each process"
WHOSE = "test_gradient_is_that_of_one_process/whose gradient it is"
SHIPPED_TIMEOUT_S = 5


@wrong_fix(
    "longer_timeout",
    says="No process times out any more, but none finishes either: the waiting process now waits longer for something that never happens.",
)
def recognise_patience(evidence: Mapping[str, Any]) -> bool:
    longer = all(made["timeout_s"] > SHIPPED_TIMEOUT_S for made in evidence[COUNTS])
    return longer and _leaves_the_tower_out(evidence) and not _runs_the_tower(evidence)


@wrong_fix(
    "blank_outside_the_graph",
    says="The tower runs in every step, but where there is no image no loss depends on its output. Its parameters get no gradient there, as before: their hooks fire in the backward pass, not in the forward pass.",
)
def recognise_unused_blank(evidence: Mapping[str, Any]) -> bool:
    return _leaves_the_tower_out(evidence) and _runs_the_tower(evidence)


@wrong_fix(
    "empty_batch",
    says="The tower is given zero images. It cannot compute with them: it raises on the process that has no image, and the other process waits.",
)
def recognise_empty_batch(evidence: Mapping[str, Any]) -> bool:
    return "raised" in evidence[ENDED] and any(made["empty"] for made in evidence[COUNTS])


@wrong_fix(
    "no_sync",
    says="Under no_sync, one process keeps its gradients for itself, while the other waits in its backward pass to average. It averages with the next step of the first process: from there on the two are one step apart.",
)
def recognise_no_sync(evidence: Mapping[str, Any]) -> bool:
    return evidence[ENDED] != BOTH_FINISHED and any(made["unsynchronized"] for made in evidence[COUNTS])


@wrong_fix(
    "drop_the_batch",
    says="One process skips its batch, so it takes fewer steps than the other. The backward passes are paired by order, not by batch: from there on the processes average different steps, and the last step waits alone.",
)
def recognise_dropped_batch(evidence: Mapping[str, Any]) -> bool:
    dropped = any(made["forwards"] < made["batches"] for made in evidence[COUNTS])
    return dropped and _only_waits(evidence) and not any(made["without_gradient"] for made in evidence[COUNTS])


@wrong_fix(
    "skip_the_step",
    says="One process skips its backward pass when it has no image. The other one waits in its own for gradients that are never sent, and the first one waits in its next forward pass.",
)
def recognise_skipped_step(evidence: Mapping[str, Any]) -> bool:
    skipped = any(made["backwards"] < made["losses"] for made in evidence[COUNTS])
    return skipped and _only_waits(evidence) and _all_forwards(evidence)


@wrong_fix(
    "both_leave_it_out",
    says="The processes agree to skip a step if one of them has no image. They stay in step, but all data in those batches are lost, including the images of the other process.",
)
def recognise_left_out_together(evidence: Mapping[str, Any]) -> bool:
    whose = evidence[WHOSE]
    return (
        evidence[ENDED] == BOTH_FINISHED
        and whose[ONE_BLIND] == "none: no weight changed"
        and whose[NONE_BLIND] == "that of all frames"
    )


@wrong_fix(
    "blank_that_is_seen",
    says="Both processes finish, because the tower always runs. But a frame without an image now uses a blank one: the policy learns from blank images, and its predictions without a camera change.",
)
def recognise_seen_blank(evidence: Mapping[str, Any]) -> bool:
    return evidence[WHOSE][ONE_BLIND] == "that of frames with a blank image"


def _leaves_the_tower_out(evidence: Mapping[str, Any]) -> bool:
    """Whether a process took a step without the tower's gradients, and its next forward pass raised."""
    without = any(made["tower_without_gradient"] and made["losses"] < made["forwards"] for made in evidence[COUNTS])
    return without and "Expected to have finished reduction" in evidence[ENDED] and _all_forwards(evidence)


def _runs_the_tower(evidence: Mapping[str, Any]) -> bool:
    """Whether every completed forward pass ran the tower."""
    return all(made["towers"] >= made["losses"] for made in evidence[COUNTS])


def _all_forwards(evidence: Mapping[str, Any]) -> bool:
    """Whether each process began a forward pass, under synchronization, for each batch that it took."""
    return all(made["forwards"] == made["batches"] and not made["unsynchronized"] for made in evidence[COUNTS])


def _only_waits(evidence: Mapping[str, Any]) -> bool:
    """Whether a process waits at the end although none has raised."""
    return "waiting" in evidence[ENDED] and "raised" not in evidence[ENDED]


def frames(rng: Rng, size: int, *, seeing: bool) -> Batch:
    """A random batch, with instructions of 3 to 8 words.

    With `seeing`, some frames have an image, at least the first; else none has.
    """
    batch = random_batch(rng, size)
    words = rng.integers(3, WORDS + 1, size)
    batch["attention_mask"] = (torch.arange(WORDS)[None] < words[:, None]).long()
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


def reference_training(streams: Sequence[Sequence[Batch]], seed: int) -> tuple[list[list[float]], dict[str, Tensor]]:
    """The losses of each process and the weights at the end, from one process that trains on all frames."""
    policy = Policy.from_base(seed=seed).train()
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=RATE, alpha=0.0, eps=EPSILON)
    losses: list[list[float]] = [[] for _ in streams]
    for batches in zip(*streams, strict=True):
        found = [policy.loss(features(policy, batch), batch["action"], batch["action_is_pad"]) for batch in batches]
        optimizer.zero_grad()
        torch.stack(found).mean().backward()
        optimizer.step()
        for own, loss in zip(losses, found, strict=True):
            own.append(loss.item())
    return losses, {name: value.detach() for name, value in policy.named_parameters()}


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
