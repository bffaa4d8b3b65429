"""What must hold for a module that Lightning trains. Runs in the grader's process, without the learner's code.

The reference is the docstring's loss, computed here in double precision from the chunks that the module's head predicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    HORIZON,
    PARTS,
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    expect_step_on_a_second_device,
    listed,
    random_batch,
)
from labs.vla.policy import OBSERVATION_KEYS, Policy
from labs.vla.training import learning_rate_at

SHAKING, LATER = 0.5, 0.9
LEARNING_RATE = 1e-3
OPTIMIZER = {"type": "AdamW", "initial_lr": LEARNING_RATE, "betas": (0.9, 0.95), "weight_decay": 0.01}
SHARE_LEFT = 0.3


@check(
    kind="behaviour",
    title="The loss is the documented one",
    property="The loss must be the mean square of the error's cosine waves, with less weight on later steps and more on faster waves. Padded steps must not count.",
    instrument="debugkit.trace_shapes(module, batch, lambda module, batch: module.training_step(batch))",
)
def test_loss_is_the_one_described(submission: Submission, rng: Rng) -> None:
    submission.observe("held")
    for size, horizon, action_dim, ended in (
        (1, HORIZON, 3, False),
        (1, 1, 1, False),
        (rng.integer(2, 4), HORIZON, 3, True),
        (rng.integer(2, 4), rng.integer(5, 9), rng.integer(4, 7), False),
        (rng.integer(4, 8), HORIZON, 3, False),
    ):
        batch = batch_that_ends_early(rng, size, horizon, action_dim)
        batch["action_is_pad"] |= ended
        seen = submission.observe("step", batch=batch, seed=rng.seed(), horizon=horizon, action_dim=action_dim)
        where = f"of {size} chunks of {horizon} steps of {action_dim} numbers{', all of them padding' if ended else ''}"
        expect(seen["loss"], f"the loss {where}").has_shape()
        expect(seen["loss"], f"the loss {where}").close_to(reference(seen, batch["action_is_pad"]).float(), rtol=1e-4)


@check(
    kind="behaviour",
    title="The framework can choose the precision",
    property='With Trainer(precision="64-true") and "bf16-true", fit and validate must run, and fit after validate with the same module. In "64-true", the loss of fit must be float64 like the module.',
    instrument='lightning.Trainer(accelerator="cpu", precision="64-true", fast_dev_run=True).fit(module, loader)',
)
def test_runs_in_another_precision(submission: Submission, rng: Rng) -> None:
    for precision, dtype, rtol in (("64-true", torch.float64, 1e-5), ("bf16-true", torch.bfloat16, 0.05)):
        batch = batch_that_ends_early(rng, rng.integer(2, 6))
        told = submission.observe("in_precision", batch=batch, seed=rng.seed(), precision=precision)
        expect(told, f"the runs in {precision}")
        for run, words in (("fit", "fit"), ("validate", "validate"), ("both", "fit after validate")):
            seen, where = told[run], f"{words} in {precision}"
            expect(seen["raised"] or "nothing", f"what {where} raised").equals("nothing")
            expect(str(seen["predicted"].dtype), f"the dtype of the chunk of {where}").equals(str(dtype))
            expect(seen["loss"].double(), f"the loss of {where}").close_to(
                reference(seen, batch["action_is_pad"]), rtol=rtol
            )
        if dtype == torch.float64:
            expect(str(told["fit"]["loss"].dtype), f"the dtype of the loss of fit in {precision}").equals(str(dtype))


@check(
    kind="behaviour",
    title="The framework can choose the device",
    property="With module and batch on another device, no tensor may stay on the CPU, and forward and backward must both complete, also after a step on the CPU.",
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
    title="Training and prediction are those of the base policy",
    property="Lightning must train the policy inside with AdamW, warm-up and a cosine schedule on the documented loss, and the module must predict what that policy predicts. The policy's state dict must have the names of the base policy's.",
    instrument="lab run 91",
)
def test_training_equals_the_reference(submission: Submission, rng: Rng) -> None:
    seed, steps = rng.seed(), [batch_that_ends_early(rng, rng.integer(2, 5)) for _ in range(rng.integer(3, 5))]
    policy = Policy.from_base(seed=seed)
    given = submission.observe("action", batch=steps[0], seed=seed)
    expect(given, "the chunk predicted before training").close_to(policy.eval().predict(steps[0]), rtol=1e-4, atol=1e-5)
    large = submission.observe("large_action", batch=steps[0], seed=seed)
    expect(large, "the chunk predicted with larger weights in the head").close_to(
        with_larger_head(seed).predict(steps[0]), rtol=1e-4, atol=1e-4
    )
    seen = submission.observe("fitted", steps=steps, seed=seed)
    losses = reference_training(policy, steps)
    expect(len(seen["losses"]), "the number of steps").equals(len(steps))
    for step, (loss, wanted) in enumerate(zip(seen["losses"], losses, strict=True), start=1):
        expect(loss.double(), f"the loss of step {step} of {len(steps)}").close_to(wanted, rtol=1e-4)
    for name, value in OPTIMIZER.items():
        expect(seen["optimizer"][name], f"the optimizer's {name}").equals(value)
    expect(seen["logged"].double(), "the loss that was logged last").close_to(losses[-1], rtol=1e-4)
    differing = set(seen["saved"]) ^ set(policy.state_dict())
    expect(listed(differing), "the names that only one state dict has, of the trained or the base policy,").equals(
        "nothing"
    )
    # In one norm: AdamW steps by the gradient's sign, and rounding alone decides it for an entry that is nearly zero.
    start = dict(Policy.from_base(seed=seed).named_parameters())
    moved = sum(float((value - start[name]).square().sum()) for name, value in policy.named_parameters())
    still = {
        name
        for name, value in policy.named_parameters()
        if torch.equal(seen["weights"][name], start[name]) and not torch.equal(value, start[name])
    }
    expect(listed(still), f"the weights that did not move in {len(steps)} steps").equals("nothing")
    apart = sum(float((seen["weights"][name] - value).square().sum()) for name, value in policy.named_parameters())
    expect(
        (apart / moved) ** 0.5,
        f"the weights' distance from the reference after {len(steps)} steps, as a share of how far they moved,",
    ).at_most(0.02)


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


def batch_that_ends_early(rng: Rng, size: int, horizon: int = HORIZON, action_dim: int = 3) -> dict[str, Tensor]:
    """A padded batch in which at least the first chunk ends early, if it has more than one step."""
    batch = random_batch(rng, size, horizon=horizon, action_dim=action_dim)
    length = rng.integers(1, horizon + 1, size)
    length[0] = min(length[0], max(1, horizon - 1))
    return {**batch, "action_is_pad": torch.arange(horizon)[None] >= length[:, None]}


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
    return total / ((~is_pad).sum() * width).clamp(min=1)


def with_larger_head(seed: int) -> Policy:
    """The base policy after every weight of its head has grown five times."""
    policy = Policy.from_base(seed=seed).eval()
    with torch.no_grad():
        for weight in policy.head.parameters():
            weight *= 5
    return policy


def reference_training(policy: Policy, steps: Sequence[dict[str, Tensor]]) -> list[Tensor]:
    """Train the policy in place on the documented loss, one step per batch; returns the losses."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    losses = []
    policy.train()
    for step, batch in enumerate(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, len(steps), LEARNING_RATE)
        predicted = policy.head(policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS}))
        target = policy.action_statistics.normalize(batch["action"])
        loss = reference({"predicted": predicted, "target": target}, batch["action_is_pad"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


IN_DOUBLE = "test_runs_in_another_precision/the runs in 64-true"


@wrong_fix(
    "cpu_in_the_step",
    says="The step now runs on any device, because the error is moved back to the CPU each time. The table of waves itself still has the device and the dtype of the constructor.",
)
def recognise_cpu(evidence: Mapping[str, Any]) -> bool:
    return evidence["step"]["to_cpu"] > 0 and raised(evidence, "fit") and no_stray(evidence)


@wrong_fix(
    "dtype_literal",
    says="The table of waves is now hard-coded to float64. Lightning chooses the precision, so now the float32 run fails instead.",
)
def recognise_dtype_literal(evidence: Mapping[str, Any]) -> bool:
    held = evidence["held"]
    doubles = "torch.float64" in (held["plain"] | held["buffers"]).values()
    return doubles and evidence["test_loss_is_the_one_described"]["outcome"] == "failed"


@wrong_fix(
    "error_in_float32",
    says="Nothing raises any more: the error is cast to float32, so a double-precision run computes its loss in single precision.",
)
def recognise_cast_down(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[IN_DOUBLE]["fit"]
    return seen["raised"] is None and seen["loss"].dtype == torch.float32


@wrong_fix(
    "moved_in_the_constructor",
    says="The constructor moves the table of waves, and at that time the module is on the CPU and in float32, whatever the trainer does with it later.",
)
def recognise_constructor(evidence: Mapping[str, Any]) -> bool:
    return bool(evidence["held"]["moved"]) and raised(evidence, "fit") and raised(evidence, "validate")


@wrong_fix(
    "moved_when_fit_starts",
    says="A hook of fit moves the table of waves first, and fit runs. validate, test and predict do not call that hook, so for them the table stays where it was created.",
)
def recognise_fit_only(evidence: Mapping[str, Any]) -> bool:
    by_a_hook = evidence[IN_DOUBLE]["alone"] is not None
    return by_a_hook and not raised(evidence, "fit") and raised(evidence, "validate")


@wrong_fix(
    "trained_waves",
    says="A parameter moves with the module, but the optimizer also trains it: the loss can now fall by changing the waves instead of the policy.",
)
def recognise_trained(evidence: Mapping[str, Any]) -> bool:
    return any(name.removeprefix("policy.") not in TRAINED for name in evidence["trainable"])


@wrong_fix(
    "no_waves",
    says="Without the waves nothing can stay on the wrong device. But the loss is now the plain squared error, and a shaking chunk costs no more than one with a constant offset.",
)
def recognise_plain(evidence: Mapping[str, Any]) -> bool:
    seen, held = evidence["step"], evidence["held"]
    error = weighted_error(seen, seen["is_pad"])
    plain = error.square().sum() / ((~seen["is_pad"]).sum() * error.shape[2])
    only_importance = not held["plain"] and list(held["buffers"]) == ["importance"]
    return only_importance and torch.allclose(seen["loss"].double(), plain, rtol=1e-4)


TRAINED = {name for name, _ in Policy.from_base(seed=0).named_parameters()}


def raised(evidence: Mapping[str, Any], verb: str) -> bool:
    """Whether the trainer's method raised in double precision."""
    return evidence[IN_DOUBLE][verb]["raised"] is not None


def no_stray(evidence: Mapping[str, Any]) -> bool:
    """Whether no tensor stayed on the CPU in the step on the second device."""
    return not evidence["second_device"]["strays"]
