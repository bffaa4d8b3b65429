"""What a training loop with two phases must do. Runs in the grader's process, which never sees the learner's code.

The reference is the loop as the docstrings describe it, run here on the same batches from the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    PARTS,
    TOLERANCE,
    close,
    expect_equal,
    expect_image_and_instruction_to_matter,
    listed,
    random_batch,
    relative_error,
)
from labs.vla.policy import OBSERVATION_KEYS, Policy

LEARNING_RATE, BETAS, WEIGHT_DECAY = 1e-3, (0.9, 0.95), 0.01
HEAD_STEPS, STEPS = 2, 6
DEFAULT_HEAD_STEPS = 40
LOUD = 30.0
"""Factor on the head's last layer, so that the second phase has gradients with a norm of 3 or more."""
NO_GRADIENT = 1e-5
"""Relative to the largest gradient. A smaller one, such as that of a key's bias, is zero except for rounding."""
OVERFIT_HEAD_STEPS, OVERFIT_STEPS = 20, 60
OVERFIT_BAR = 0.3
"""The final loss must be below this fraction of the first."""
HEAD, BELOW = "head.mlp.2.weight", "projector.0.weight"


@check(
    kind="behaviour",
    title="Each step uses the gradient of its own batch",
    property="At every optimizer step, in both phases, the gradients must be those of a single backward pass on that step's batch.",
    instrument="with debugkit.watch(policy, optimizer) as run: train(policy, optimizer, stream)",
)
def test_each_step_uses_a_fresh_gradient(submission: Submission, rng: Rng) -> None:
    stream = [random_batch(rng, rng.integer(2, 6)) for _ in range(STEPS)]
    given = {"stream": stream, "seed": rng.seed(), "head_steps": HEAD_STEPS, "louder": LOUD}
    seen = submission.observe("gradients_at_each_step", **given)
    expect(len(seen["used"]), f"the number of optimizer steps in {STEPS} batches").equals(STEPS)
    for step, (used, fresh) in enumerate(zip(seen["used"], seen["fresh"], strict=True)):
        for name in (name for name in fresh if step >= HEAD_STEPS or name.startswith("head.")):
            of = f"the gradient of {name} at step {step} of {STEPS} ({HEAD_STEPS} with the head alone)"
            expect("missing" if used[name] is None else "there", of).equals("there")
            expect(relative_error(used[name], fresh[name]), f"the relative error of {of}").at_most(TOLERANCE)


@check(
    kind="behaviour",
    title="The first phase changes only the head",
    property="While only the head is trained, no other weight may change, also when the policy was trained before. Afterwards every part must change.",
    instrument="debugkit.gradient_table(policy)",
)
def test_phases_train_what_they_say(submission: Submission, rng: Rng) -> None:
    stream = [random_batch(rng, 3) for _ in range(3)]
    alone = submission.observe("trained", stream=stream, seed=rng.seed(), head_steps=3, training=True)
    expect("head" in changed_parts(alone), "whether the first phase changed the head").is_true()
    expect(listed(changed_parts(alone) - {"head"}), "what the first phase changed besides the head").equals("nothing")
    both = submission.observe("trained", stream=stream, seed=rng.seed(), head_steps=1, training=True)
    expect(listed(set(PARTS) - changed_parts(both)), "what the second phase did not change").equals("nothing")
    again = submission.observe("trained_again", stream=stream, seed=rng.seed())
    expect(
        listed(changed_parts(again) - {"head"}), "what the first phase of a trained policy changed besides the head"
    ).equals("nothing")


@check(
    kind="behaviour",
    title="Training equals the reference",
    property="After a few steps of both phases, the weights and the log must equal those of the loop that the docstrings describe, whatever mode the policy was in, and for batches of one frame. A batch whose loss is not a number must have its line, too.",
    instrument="lab run 51",
)
def test_training_equals_the_reference(submission: Submission, rng: Rng) -> None:
    for head_steps, largest, training, louder in (
        (HEAD_STEPS, 6, False, LOUD),
        (0, 6, True, 1.0),
        (HEAD_STEPS, 1, True, 1.0),
    ):
        stream, seed = [random_batch(rng, rng.integer(1, largest + 1)) for _ in range(STEPS)], rng.seed()
        given = {"stream": stream, "seed": seed, "head_steps": head_steps, "training": training, "louder": louder}
        seen = submission.observe("trained", **given)
        policy, losses, norms = reference(stream, seed, head_steps, louder)
        frames = "single frames" if largest == 1 else "batches"
        of = f"of {frames}, {head_steps} of {STEPS} steps with the head alone"
        expect(seen["steps"], f"the numbers of the logged steps ({of})").equals(list(range(STEPS)))
        phases = ["head"] * head_steps + ["whole"] * (STEPS - head_steps)
        expect(seen["phases"], f"the logged phases ({of})").equals(phases)
        expect_equal(seen["losses"], losses, f"the losses ({of})")
        expect_equal(seen["norms"], norms, f"the gradient norms ({of})")
        least = NO_GRADIENT * max(value.grad.norm() for value in policy.parameters())
        start = seen["before"]
        moved = {
            name
            for name, value in policy.named_parameters()
            if value.grad.norm() > least
            and not close(seen["after"][name] - start[name], value.detach() - start[name], rtol=0.05)
        }
        expect(listed(moved), f"what moved otherwise ({of})").equals("nothing")
    for at in (0, HEAD_STEPS):
        stream = [random_batch(rng, 2) for _ in range(HEAD_STEPS + 2)]
        stream[at]["action"][0, 0, 0] = math.nan
        seen = submission.observe("trained", stream=stream, seed=rng.seed(), head_steps=HEAD_STEPS, training=True)
        of = f"of {len(stream)} batches, of which number {at} has a loss that is not a number"
        expect(seen["steps"], f"the numbers of the logged steps ({of})").equals(list(range(len(stream))))
        expect(seen["phases"], f"the logged phases ({of})").equals(["head"] * HEAD_STEPS + ["whole"] * 2)
        for name, what in (("losses", "loss"), ("norms", "gradient norm")):
            lost = bool(seen[name][at].isnan())
            expect(lost, f"whether the {what} in that batch's line is not a number ({of})").is_true()


@check(
    kind="invariant",
    title="One optimizer, one step per batch, unchanged data",
    property="Training must step the optimizer it was given, once per batch, and must not modify the batches.",
    instrument="debugkit.trace_batches(policy, stream)",
)
def test_one_optimizer_and_untouched_data(submission: Submission, rng: Rng) -> None:
    stream, seed = [random_batch(rng, 3) for _ in range(4)], rng.seed()
    seen = submission.observe("gradients_at_each_step", stream=stream, seed=seed, head_steps=1, louder=1.0)
    expect(len(seen["used"]), "the number of optimizer steps in 4 batches").equals(4)
    expect(seen["optimizers"], "the number of optimizers that stepped").equals(1)
    after = submission.observe("trained", stream=stream, seed=seed, head_steps=1, training=True)["stream"]
    changed = {
        name for old, new in zip(stream, after, strict=True) for name in old if not torch.equal(old[name], new[name])
    }
    expect(listed(changed), "what training changed in the batches").equals("nothing")


@check(
    kind="invariant",
    title="The settings are those of the file",
    property=f"The optimizer must be AdamW over every parameter with the settings of the file, the first phase has {DEFAULT_HEAD_STEPS} steps by default, and `train` trains in training mode and ends in evaluation mode.",
    instrument="python -c 'from policy import *; print(build_optimizer(build_policy(0)))'",
)
def test_settings_are_those_of_the_file(submission: Submission, rng: Rng) -> None:
    wanted = {"lr": LEARNING_RATE, "betas": list(BETAS), "weight_decay": WEIGHT_DECAY}
    groups = submission.observe("settings")
    names = [name for group in groups for name in group["names"]]
    expect(listed({name for name, _ in Policy().named_parameters()} ^ set(names)), "what is not trained").equals(
        "nothing"
    )
    for name, value in wanted.items():
        for group in groups:
            expect(group[name], f"the optimizer's {name}").equals(value)
    stream = [random_batch(rng, 1) for _ in range(DEFAULT_HEAD_STEPS + 1)]
    expect(listed(submission.observe("changes_the_mode", batch=stream[0])), "what changes the policy's mode").equals(
        "nothing"
    )
    for training in (True, False):
        few = stream if training else stream[:2]
        seen = submission.observe(
            "trained", stream=few, seed=rng.seed(), head_steps=None if training else 1, training=training
        )
        before = "training" if training else "evaluation"
        expect(seen["modes"], f"whether a policy that was in {before} mode trains in training mode").equals([True])
        expect(seen["mode after"], f"whether it is in training mode afterwards ({before} mode before)").is_false()
        if training:
            expect(seen["phases"].count("head"), "how many steps the first phase has by default").equals(
                DEFAULT_HEAD_STEPS
            )


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
    title="The second phase reduces the loss",
    property=f"After {OVERFIT_STEPS} steps of both phases on one repeated batch, the loss must be below {OVERFIT_BAR:.0%} of the first.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_second_phase_learns(submission: Submission, seed: int) -> None:
    losses = submission.observe("overfitted", seed=seed, head_steps=OVERFIT_HEAD_STEPS, steps=OVERFIT_STEPS)
    expect(losses, "the losses").has_shape(OVERFIT_STEPS)
    expect(losses[-1] / losses[0], "the last loss as a fraction of the first").below(OVERFIT_BAR)


GRADIENTS = "test_each_step_uses_a_fresh_gradient/gradients_at_each_step"


@wrong_fix(
    "smaller_learning_rate",
    says="Smaller steps in the same wrong direction: each step still uses the sum of all gradients so far. The loss only rises more slowly.",
)
def recognise_smaller_steps(evidence: Mapping[str, Any]) -> bool:
    rates = [group["lr"] for group in evidence["test_settings_are_those_of_the_file/settings"]]
    return 0 < max(rates) < LEARNING_RATE and not fresh_in(evidence, HEAD_STEPS) and accumulates(evidence)


@wrong_fix(
    "new_optimizer_each_step",
    says="A new optimizer loses its momentum, not the gradients: they are stored in the parameters, and still accumulate there.",
)
def recognise_new_optimizers(evidence: Mapping[str, Any]) -> bool:
    return evidence[GRADIENTS]["optimizers"] >= STEPS - HEAD_STEPS and accumulates(evidence)


@wrong_fix(
    "clipped",
    says="The gradient is now short enough, but it is still the sum of all gradients so far. Clipping hides this fault better than anything else.",
)
def recognise_clipping(evidence: Mapping[str, Any]) -> bool:
    norms = evidence[GRADIENTS]["used_norm"][-2:]
    shares = shares_of_the_sum(evidence)
    return abs(norms[0] - norms[1]) < 1e-3 * norms[1] and all(0 < share < 0.99 for share in shares)


@wrong_fix(
    "reset_once",
    says="The gradients are reset where the second phase begins, and accumulate again from there: every step needs a fresh gradient, not only every phase.",
)
def recognise_reset_once(evidence: Mapping[str, Any]) -> bool:
    return fresh_in(evidence, HEAD_STEPS) and not fresh_in(evidence, STEPS - 1) and accumulates(evidence)


@wrong_fix(
    "zeroed_before_the_step",
    says="The gradients are reset between backward and step, so the step has no gradient to use: the loop runs, but only weight decay and momentum can change a weight.",
)
def recognise_too_early(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[GRADIENTS]
    nothing = all(gradient is None or not gradient.any() for used in seen["used"] for gradient in used.values())
    return nothing and len(seen["used"]) == seen["backward"] == STEPS


@wrong_fix(
    "averaged",
    says="The sum of all gradients is divided by their number: a mean over gradients at weights that no longer exist. Its length looks healthy, but its direction is out of date.",
)
def recognise_average(evidence: Mapping[str, Any]) -> bool:
    numbers = [1 / share if share else 0.0 for share in shares_of_the_sum(evidence)]
    return all(abs(number - round(number)) < 0.01 for number in numbers) and 1 < round(numbers[0]) < round(numbers[1])


def reference(
    stream: Sequence[Mapping[str, Tensor]], seed: int, head_steps: int, louder: float
) -> tuple[Policy, Tensor, Tensor]:
    """The loop as described: the trained policy with its last gradients, the losses (N,) and the gradient norms (N,)."""
    policy = Policy.from_base(seed=seed).train()
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(louder)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY)
    losses, norms = [], []
    for step, batch in enumerate(stream):
        with torch.set_grad_enabled(step >= head_steps):
            feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
        loss = policy.loss(feature, batch["action"], batch["action_is_pad"])
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None]).norm())
        optimizer.step()
        losses.append(loss.detach())
    return policy, torch.stack(losses), torch.stack(norms)


def changed_parts(seen: Mapping[str, Any]) -> set[str]:
    """The parts in which training changed a weight."""
    before, after = seen["before"], seen["after"]
    return {name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])}


def fresh_in(evidence: Mapping[str, Any], step: int) -> bool:
    """Whether the head's gradient at a step was that of the step's own batch."""
    seen = evidence[GRADIENTS]
    used, fresh = seen["used"][step][HEAD], seen["fresh"][step][HEAD]
    return used is not None and close(used, fresh)


def shares_of_the_sum(evidence: Mapping[str, Any]) -> list[float]:
    """At the last two steps, which share of its batch's gradient and the step before's together a step used; or 0.

    It is 0 if what the step used does not have the direction of that sum.
    """
    seen, shares = evidence[GRADIENTS], []
    for step in (STEPS - 2, STEPS - 1):
        before, used, fresh = seen["used"][step - 1][BELOW], seen["used"][step][BELOW], seen["fresh"][step][BELOW]
        if before is None or used is None or not before.any() or close(used, fresh):
            return [0.0, 0.0]
        added = before + fresh
        share = float((used * added).sum() / (added * added).sum())
        shares.append(share if close(used, share * added) else 0.0)
    return shares


def accumulates(evidence: Mapping[str, Any]) -> bool:
    """Whether each of the last steps used what the step before had used, and its own batch's gradient in addition."""
    return all(abs(share - 1) < TOLERANCE for share in shares_of_the_sum(evidence))
