"""What must hold for accumulated gradients. Runs in the grader's process, without the learner's code.

The reference is one backward pass of the base policy on all frames in one batch, in float64, computed here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import HORIZON, expect_image_and_instruction_to_matter, listed, random_batch, relative_error
from labs.named_tensors import as_double
from labs.vla.policy import Policy

Batch = dict[str, Tensor]
Result = tuple[float, Tensor]
"""A loss and its gradient, as one vector."""
STEPS = 12
PARTS = 4
CLOSE = 1e-6
"""Not 1e-12: Llama's RMSNorm computes in float32 even in a float64 policy."""
OPTIMIZER = {"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.01}
MAX_GRADIENT_NORM = 1.0
HEAD_SCALE = 3.0
NOTHING = "nothing"


@check(
    kind="behaviour",
    title="The gradient is the whole batch's, with 1, 2, 4 or 8 micro-batches",
    property="In float64 the accumulated gradient must be that of one batch of all frames, whatever the number of micro-batches and the policy's mode. The same holds for a loss that is infinite or not a number.",
    instrument="debugkit.check(policy, batch, loss_fn, declare=debugkit.Declare(accumulation=4), select=['DK507'])",
)
def test_gradient_is_the_whole_batchs(submission: Submission, rng: Rng) -> None:
    batch, seed = unequal_batch(rng, 8), rng.seed()
    loss, gradient = reference(batch, seed)
    for parts, training in ((2, True), (1, True), (4, True), (8, True), (2, False)):
        window = [rows(batch, index) for index in torch.arange(8).chunk(parts)]
        seen = submission.observe("accumulated", window=window, seed=seed, training=training)
        if parts == 2 and training:
            expect(formula(result(seen), window, seed), "formula")
        said = f"{described(parts)}, in {'training' if training else 'evaluation'} mode"
        expect(apart(seen, gradient), f"the gradient's relative error with {said}").at_most(CLOSE)
        expect(float(seen["loss"]), f"the loss with {said}").close_to(loss, rtol=CLOSE)
    single = submission.observe("accumulated", window=[rows(batch, torch.arange(8))], seed=seed, double=False)
    expect(apart(single, gradient), "the gradient's relative error in float32").at_most(1e-5)
    for value in (math.nan, math.inf):
        action = batch["action"].clone()
        action[2, 0, 0] = value
        spoiled = {**batch, "action": action}
        loss, gradient = reference(spoiled, seed)
        window = [rows(spoiled, index) for index in torch.arange(8).chunk(PARTS)]
        seen = submission.observe("accumulated", window=window, seed=seed)
        said = f"{described(PARTS)}, of which the second has a target that is {value}"
        expect(str(float(seen["loss"])), f"the loss with {said}").equals(str(loss))
        if gradient.isfinite().all():
            expect(apart(seen, gradient), f"the gradient's relative error with {said}").at_most(CLOSE)
        else:
            finite = bool(result(seen)[1].isfinite().all())
            expect(finite, f"whether every number of the gradient is finite with {said}").is_false()


@check(
    kind="behaviour",
    title="Micro-batches may differ in size",
    property="The gradient must be the whole batch's however the frames are divided: the last micro-batch of an epoch is often smaller.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_unequal_micro_batches(submission: Submission, rng: Rng) -> None:
    batch, seed = unequal_batch(rng, 9), rng.seed()
    loss, gradient = reference(batch, seed)
    order, cut = rng.permutation(9), rng.integer(1, 4)
    window = [rows(batch, order[:cut]), rows(batch, order[cut:4]), rows(batch, order[4:])]
    sizes = f"micro-batches of {cut}, {4 - cut} and 5 frames"
    seen = submission.observe("accumulated", window=window, seed=seed)
    expect(formula(result(seen), window, seed), "formula")
    expect(apart(seen, gradient), f"the gradient's relative error with {sizes}").at_most(CLOSE)
    expect(float(seen["loss"]), f"the loss with {sizes}").close_to(loss, rtol=CLOSE)


@check(
    kind="behaviour",
    title="One micro-batch in memory at a time",
    property="While gradients accumulate, there must never be a graph of more frames than the largest micro-batch has, and at the backward pass of a micro-batch no other one may still have a graph.",
    instrument="debugkit.memory_profile(policy, batch)",
)
def test_one_graph_at_a_time(submission: Submission, rng: Rng) -> None:
    batch, size = unequal_batch(rng, 8), rng.integer(3, 6)
    window = [rows(batch, torch.arange(size)), rows(batch, torch.arange(size, 8))]
    seen = submission.observe("accumulated", window=window, seed=rng.seed())
    said = f"the most frames with a graph at a time, with micro-batches of {size} and {8 - size} frames"
    expect(seen["frames_at_once"], said).at_most(max(size, 8 - size))
    window = [rows(batch, index) for index in torch.arange(8).chunk(PARTS)]
    kept = submission.observe("graphs_kept", window=window, seed=rng.seed())
    said = f"how many micro-batches still have a graph at the backward pass of each of {PARTS}"
    expect(kept, said).equals([1] * PARTS)


@check(
    kind="behaviour",
    title="The update is the whole batch's",
    property="Each call of training_step must be an update from one gradient of the whole batch, clipped once to norm 1, whatever the number of micro-batches; it must change no mode.",
    instrument="lab run 53",
)
def test_update_is_the_whole_batchs(submission: Submission, rng: Rng) -> None:
    # All errors of the first batch have the same sign, and the head is scaled: each part's gradient is longer than 1.
    stream, seed = [unequal_batch(rng, 8), unequal_batch(rng, 8)], rng.seed()
    stream[0]["action"] = torch.tensor([0.3, 0.3, 3.0]).expand_as(stream[0]["action"]).clone()
    weights, losses = reference_updates(stream, seed)
    for parts in (1, PARTS):
        seen = submission.observe("updated", stream=stream, parts=parts, seed=seed)
        expect(seen["losses"], f"the list of losses of two updates with {described(parts)}").close_to(
            losses, rtol=CLOSE
        )
        missed = {name for name, value in weights.items() if relative_error(seen["after"][name], value) > CLOSE}
        expect(listed(missed), f"what has other weights after two updates with {described(parts)}").equals(NOTHING)
        expect(listed(other_modes(seen["modes"])), "what is in another mode after an update than before").equals(
            NOTHING
        )


@check(
    kind="invariant",
    title="Every frame once, and unchanged",
    property="split must return `parts` micro-batches with each frame exactly once, with all its steps, sorted by their number; accumulate must not modify its input.",
    instrument="debugkit.trace_batches(policy)",
)
def test_every_frame_once(submission: Submission, rng: Rng) -> None:
    for frames, parts in ((8, 1), (8, 2), (8, PARTS), (9, PARTS)):
        batch, said = rows(unequal_batch(rng, frames), rng.permutation(frames)), f"{frames} frames and parts={parts}"
        given = submission.observe("split_up", batch=batch, parts=parts)
        expect(len(given), f"the number of micro-batches for {said}").equals(parts)
        together = {name: torch.cat([micro_batch[name] for micro_batch in given]) for name in batch}
        order, wanted = together["state"][:, 0].argsort(), batch["state"][:, 0].argsort()
        for name in batch:
            expect(together[name][order], f"`{name}` of all micro-batches, sorted by state, for {said}").equals(
                batch[name][wanted]
            )
        length = (~together["action_is_pad"]).sum(dim=1).diff()
        is_sorted = bool((length >= 0).all()) or bool((length <= 0).all())
        expect(is_sorted, f"whether the frames are sorted by their number of steps for {said}").is_true()
    batch = unequal_batch(rng, 8)
    window = [rows(batch, index) for index in torch.arange(8).chunk(2)]
    after = submission.observe("accumulated", window=window, seed=rng.seed(), double=False)["window"]
    changed = {
        name for one, kept in zip(window, after, strict=True) for name in one if not torch.equal(one[name], kept[name])
    }
    expect(listed(changed), "what accumulate changed in its input").equals(NOTHING)


@check(
    kind="invariant",
    title="The policy and its optimizer are built as before",
    property="`build_policy` must give the pretrained base with a head drawn from the seed, and `build_optimizer` AdamW over all its parameters, with the same settings, without changing a mode.",
    instrument="python -c 'from policy import *; print(build_optimizer(build_policy(0)))'",
)
def test_policy_is_built_as_before(submission: Submission, rng: Rng) -> None:
    seed = rng.seed()
    seen, wanted = submission.observe("settings", seed=seed), Policy.from_base(seed=seed)
    weights = wanted.state_dict()
    expect(listed(weights.keys() ^ seen["weights"].keys()), "what a checkpoint lacks or has too many").equals(NOTHING)
    other = {name for name in weights if not torch.equal(weights[name], seen["weights"][name])}
    expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals(NOTHING)
    expect(seen["optimizer"], "the optimizer").equals("AdamW")
    held = {name for group in seen["groups"] for name in group["names"]}
    expect(listed({name for name, _ in wanted.named_parameters()} ^ held), "what the optimizer lacks").equals(NOTHING)
    for name, value in OPTIMIZER.items():
        for group in seen["groups"]:
            expect(group[name], f"the optimizer's {name}").equals(value)
    expect(listed(other_modes(seen["modes"])), "what `build_optimizer` puts into another mode").equals(NOTHING)


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
    title="Training with four micro-batches gives the same policy",
    property=f"After {STEPS} updates with {PARTS} micro-batches, every loss and the loss on new frames must be the same as with one.",
    instrument="lab run 53",
)
def test_training_is_the_same(submission: Submission, seed: int) -> None:
    whole = submission.observe("training", seed=seed, steps=STEPS, parts=1)
    pieces = submission.observe("training", seed=seed, steps=STEPS, parts=PARTS)
    expect(whole["losses"][-5:].mean() / whole["losses"][0], "the last losses as a fraction of the first").below(0.95)
    expect(pieces["losses"], "the losses with four micro-batches").close_to(whole["losses"], rtol=1e-2, atol=1e-3)
    apart = (pieces["held_out"] - whole["held_out"]).abs()
    expect(float(apart), "the difference between the two losses on new frames").at_most(2e-3)


FORMULA = "test_gradient_is_the_whole_batchs/formula"
UNEQUAL = "test_unequal_micro_batches/formula"


@wrong_fix(
    "sum_of_means",
    says="Now the losses are not divided at all: with k micro-batches, loss and gradient are k times as large, and each micro-batch still counts the same whatever it contains.",
)
def recognise_sum(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == evidence[UNEQUAL] == "sum of means"


@wrong_fix(
    "by_frames",
    says="This weights a micro-batch by its number of frames. The loss is a mean over steps, and the frames do not all have the same number of steps.",
)
def recognise_frames(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "mean of means" and evidence[UNEQUAL] == "by frames"


@wrong_fix(
    "by_all_steps",
    says="Any number of micro-batches now gives the same gradient, but the sum is divided by all steps, padding included. The whole batch's loss is a mean over the steps that are not padding.",
)
def recognise_all_steps(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == evidence[UNEQUAL] == "sum over all steps"


@wrong_fix(
    "first_step_only",
    says="The micro-batches have equal numbers of steps, but only because the other steps are discarded. The chunk's later steps are targets too.",
)
def recognise_truncation(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "first steps only"


def unequal_batch(rng: Rng, size: int) -> Batch:
    """A batch whose frames have 1 to 4 steps, sorted by that number, with both 1 and 4 present."""
    batch = random_batch(rng, size)
    length = rng.integers(1, HORIZON + 1, size).sort().values
    length[0], length[-1] = 1, HORIZON
    return {**batch, "action_is_pad": torch.arange(HORIZON)[None] >= length[:, None]}


def rows(batch: Batch, index: Tensor) -> Batch:
    """The frames of a batch at the given indices."""
    return {name: values[index] for name, values in batch.items()}


def reference(batch: Batch, seed: int) -> Result:
    """Loss and gradient of one backward pass on the whole batch in float64."""
    policy = Policy.from_base(seed=seed).double()
    loss = policy(**as_double(batch)).loss
    loss.backward()
    return float(loss), torch.cat([p.grad.flatten() for _, p in sorted(policy.named_parameters())])


def reference_updates(stream: Sequence[Batch], seed: int) -> tuple[dict[str, Tensor], list[float]]:
    """The weights after an update with SGD from each whole batch in float64, and the losses."""
    policy = Policy.from_base(seed=seed).double()
    with torch.no_grad():
        for parameter in policy.head.parameters():
            parameter *= HEAD_SCALE
    optimizer, losses = torch.optim.SGD(policy.parameters(), lr=0.1), []
    for batch in stream:
        loss = policy(**as_double(batch)).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        losses.append(float(loss))
    return dict(policy.state_dict()), losses


def result(seen: Mapping[str, Any]) -> Result:
    """The loss that was returned, and the gradient as one vector, empty if there is none."""
    found = [seen["gradients"][name].double().flatten() for name in sorted(seen["gradients"])]
    return float(seen["loss"]), torch.cat(found) if found else torch.zeros(0)


def apart(seen: Mapping[str, Any], wanted: Tensor) -> float:
    """The relative distance of two gradients; infinite where a parameter has no gradient."""
    found = result(seen)[1]
    return relative_error(found, wanted) if found.shape == wanted.shape else float("inf")


def formula(measured: Result, window: list[Batch], seed: int) -> str:
    """Which way of combining the micro-batches explains the measured loss and gradient of a window."""
    steps = [int((~batch["action_is_pad"]).sum()) for batch in window]
    frames = [len(batch["state"]) for batch in window]
    means = [reference(batch, seed) for batch in window]
    is_later = torch.arange(HORIZON)[None] > 0
    first = [reference({**one, "action_is_pad": one["action_is_pad"] | is_later}, seed) for one in window]
    candidates = {
        "mean over all steps that count": combined(means, steps, sum(steps)),
        "mean of means": combined(means, [1] * len(window), len(window)),
        "by frames": combined(means, frames, sum(frames)),
        "sum of means": combined(means, [1] * len(window), 1),
        "sum over all steps": combined(means, steps, sum(frames) * HORIZON),
        "first steps only": combined(first, [1] * len(window), len(window)),
    }
    for name, (loss, gradient) in candidates.items():
        same_loss = abs(measured[0] - loss) <= CLOSE * abs(loss)
        if same_loss and measured[1].shape == gradient.shape and relative_error(measured[1], gradient) <= CLOSE:
            return name
    return "another"


def combined(results: Sequence[Result], factors: Sequence[int], divisor: int) -> Result:
    """The weighted sum of losses and of gradients, divided."""
    loss = sum(one[0] * factor for one, factor in zip(results, factors, strict=True))
    gradient = torch.stack([one[1] * factor for one, factor in zip(results, factors, strict=True)]).sum(dim=0)
    return loss / divisor, gradient / divisor


def described(parts: int) -> str:
    """How many micro-batches."""
    return "1 micro-batch" if parts == 1 else f"{parts} micro-batches"


def other_modes(modes: Mapping[str, bool]) -> set[str]:
    """The modules that are not in the mode in which the probe puts them: the vision tower evaluates, the rest trains."""
    return {
        path or "the policy itself"
        for path, training in modes.items()
        if training == (path.partition(".")[0] == "vision")
    }
