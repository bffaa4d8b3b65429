"""What a training loop with two phases must do. Runs in the grader's process, which never sees the learner's code.

The reference is the loop as the docstrings describe it, run here on the same batches from the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import PARTS, expect_image_and_instruction_to_matter, random_batch
from labs.vla.policy import OBSERVATION_KEYS, Policy

LEARNING_RATE, BETAS, WEIGHT_DECAY = 1e-3, (0.9, 0.95), 0.01
HEAD_STEPS, STEPS = 2, 6
OVERFIT_HEAD_STEPS, OVERFIT_STEPS = 20, 60
OVERFIT_BAR = 0.3
"""The final loss must be below this fraction of the first."""


@check(
    kind="behaviour",
    title="Each step uses the gradient of its own batch",
    property="At every optimizer step, in both phases, the gradients must be those of a single backward pass on that step's batch.",
    instrument="with debugkit.watch(policy, optimizer) as run: train(policy, optimizer, stream)",
)
def test_each_step_uses_a_fresh_gradient(submission: Submission, rng: Rng) -> None:
    stream = [random_batch(rng, rng.integer(2, 6)) for _ in range(STEPS)]
    seen = submission.observe("gradients_at_each_step", stream=stream, seed=rng.seed(), head_steps=HEAD_STEPS)
    expect(len(seen["used"]), "the number of optimizer steps").equals(STEPS)
    for step, (used, fresh) in enumerate(zip(seen["used"], seen["fresh"], strict=True)):
        trained = [name for name in fresh if step >= HEAD_STEPS or name.startswith("head.")]
        for name in trained:
            there = "None" if used[name] is None else "a tensor"
            expect(there, f"the gradient of {name} in step {step}").equals("a tensor")
            scale = float(fresh[name].abs().max())
            expect(used[name] / scale, f"the gradient of {name} in step {step}").close_to(
                fresh[name] / scale, rtol=1e-3, atol=1e-4
            )


@check(
    kind="behaviour",
    title="Training equals the reference",
    property="After a few steps of both phases, the weights and the logged losses and norms must equal those of the loop that the docstrings describe.",
    instrument="lab run 51",
)
def test_training_equals_the_reference(submission: Submission, rng: Rng) -> None:
    stream, seed = [random_batch(rng, rng.integer(2, 6)) for _ in range(STEPS)], rng.seed()
    for head_steps in (HEAD_STEPS, 0):
        seen = submission.observe("trained", stream=stream, seed=seed, head_steps=head_steps)
        weights, losses, norms = reference(stream, seed, head_steps)
        expect(seen["losses"], f"the losses with {head_steps} head-only steps").close_to(losses, rtol=2e-3)
        expect(seen["norms"], f"the gradient norms with {head_steps} head-only steps").close_to(norms, rtol=2e-2)
        for name in ("head.mlp.2.weight", "projector.0.weight", "language_model.layers.0.mlp.up_proj.weight"):
            expect(seen["after"][name], f"{name} after {STEPS} steps").close_to(weights[name], rtol=1e-3, atol=2e-4)


@check(
    kind="behaviour",
    title="The first phase changes only the head",
    property="While only the head is trained, no other weight may change. Afterwards every part must change.",
    instrument="debugkit.gradient_table(policy)",
)
def test_phases_train_what_they_say(submission: Submission, rng: Rng) -> None:
    stream = [random_batch(rng, 3) for _ in range(3)]
    alone = submission.observe("trained", stream=stream, seed=rng.seed(), head_steps=3)
    expect(changed_parts(alone), "the list of parts that the first phase changed").equals(["head"])
    both = submission.observe("trained", stream=stream, seed=rng.seed(), head_steps=1)
    expect(changed_parts(both), "the list of parts that both phases changed").equals(PARTS)


@check(
    kind="invariant",
    title="One optimizer, one step per batch, unchanged data",
    property="Training must step the optimizer it was given, once per batch, and must not modify the batches.",
    instrument="debugkit.trace_batches(policy, stream)",
)
def test_one_optimizer_and_untouched_data(submission: Submission, rng: Rng) -> None:
    stream, seed = [random_batch(rng, 3) for _ in range(4)], rng.seed()
    seen = submission.observe("gradients_at_each_step", stream=stream, seed=seed, head_steps=1)
    expect(len(seen["used"]), "the number of optimizer steps").equals(4)
    expect(seen["optimizers"], "the number of optimizers that stepped").equals(1)
    after = submission.observe("trained", stream=stream, seed=seed, head_steps=1)
    expect(after["stream"], "the batches after training").close_to(stream, rtol=0.0, atol=0.0)


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
TRAINED = "test_training_equals_the_reference/trained"


@wrong_fix(
    "smaller_learning_rate",
    says="Smaller steps in the same wrong direction: each step still uses the sum of all gradients so far. The loss only rises more slowly.",
)
def recognise_smaller_steps(evidence: Mapping[str, Any]) -> bool:
    return step_length(evidence) < 0.8 * LEARNING_RATE and piles_up(evidence) and not follows_nothing(evidence)


@wrong_fix(
    "new_optimizer_each_step",
    says="A new optimizer loses its momentum, not the gradients: they are stored in the parameters, and still accumulate there.",
)
def recognise_new_optimizers(evidence: Mapping[str, Any]) -> bool:
    return evidence[GRADIENTS]["optimizers"] > 1


@wrong_fix(
    "clipped",
    says="The gradient is now short enough, but it is still the sum of all gradients so far. Clipping hides this fault better than anything else.",
)
def recognise_clipping(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[GRADIENTS]
    used, fresh = seen["used"][0]["head.mlp.2.weight"], seen["fresh"][0]["head.mlp.2.weight"]
    return used is not None and float(used.norm() / fresh.norm()) < 0.95 and piles_up(evidence)


@wrong_fix(
    "reset_once",
    says="The gradients are reset where the second phase begins, and accumulate again from there: every step needs a fresh gradient, not only every phase.",
)
def recognise_reset_once(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[GRADIENTS]
    return fresh_in(seen, HEAD_STEPS) and not fresh_in(seen, HEAD_STEPS + 2)


@wrong_fix(
    "zeroed_before_the_step",
    says="The gradients are reset between backward and step, so the step has no gradient to use: the loop runs, but only weight decay and momentum can change a weight.",
)
def recognise_too_early(evidence: Mapping[str, Any]) -> bool:
    return follows_nothing(evidence)


@wrong_fix(
    "averaged",
    says="The sum of all gradients is divided by their number: a mean over gradients at weights that no longer exist. Its length looks healthy, but its direction is out of date.",
)
def recognise_average(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[GRADIENTS]
    used, fresh = seen["used"][HEAD_STEPS]["projector.0.weight"], seen["fresh"][HEAD_STEPS]["projector.0.weight"]
    return bool(used is not None and torch.allclose(used * (HEAD_STEPS + 1), fresh, rtol=1e-2, atol=1e-7))


def reference(
    stream: Sequence[Mapping[str, Tensor]], seed: int, head_steps: int
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """The loop as described: the weights after training, the losses (N,) and the gradient norms (N,)."""
    policy = Policy.from_base(seed=seed).train()
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
    return {name: p.detach() for name, p in policy.named_parameters()}, torch.stack(losses), torch.stack(norms)


def changed_parts(seen: Mapping[str, Any]) -> list[str]:
    """Sorted names of the parts in which training changed a weight."""
    before, after = seen["before"], seen["after"]
    return sorted({name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])})


def fresh_in(seen: Mapping[str, Any], step: int) -> bool:
    """Whether the step used the gradient of its own batch."""
    used, fresh = seen["used"][step]["head.mlp.2.weight"], seen["fresh"][step]["head.mlp.2.weight"]
    return used is not None and torch.allclose(used, fresh, rtol=1e-2, atol=1e-3 * float(fresh.abs().max()))


def piles_up(evidence: Mapping[str, Any]) -> bool:
    """Whether a step of the second phase used more than its own gradient."""
    return not fresh_in(evidence[GRADIENTS], HEAD_STEPS)


def follows_nothing(evidence: Mapping[str, Any]) -> bool:
    """Whether the last step found no gradient at all, or zeros."""
    last = evidence[GRADIENTS]["used"][-1]
    return all(gradient is None or not bool(gradient.any()) for gradient in last.values())


def step_length(evidence: Mapping[str, Any]) -> float:
    """The largest change of a weight, averaged over the steps: about the learning rate under AdamW."""
    seen = evidence[TRAINED]
    moved = (seen["after"]["head.mlp.2.weight"] - seen["before"]["head.mlp.2.weight"]).abs()
    return float(moved.max()) / STEPS
