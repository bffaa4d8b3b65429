"""Requirements for a token loss. Runs in the grader's process; judges data, and never sees the code.

The reference is torch's own cross-entropy in float64, and its gradient: softmax minus one-hot, divided by the number of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, random_batch

IGNORED = -100
BINS = 64
TEMPERATURE = 0.03
SURE = 200.0
LOUD = 6.0
"""Factor on a fresh last layer, so that some bins are 300 below others."""

OVERFIT_STEPS = 60
LOSS_BAR = 0.05


@check(
    kind="behaviour",
    title="The loss of a confident policy, right or wrong",
    property=f"At logits of ±{SURE:g} the loss must be finite and equal the cross-entropy, also when some tokens are ignored.",
    instrument="debugkit.first_nonfinite(policy, batch)",
)
def test_loss_of_a_sure_policy(submission: Submission, rng: Rng) -> None:
    for shape in ((rng.integer(2, 6), 4, 3), (1, 1, 1), (rng.integer(5, 20),)):
        logits, tokens = sure_logits(rng, *shape), some_ignored(rng, *shape)
        seen = submission.observe("loss_and_gradient", logits=logits, tokens=tokens)
        loss, gradient = reference(logits, tokens)
        expect(float(seen["loss"]), "a sure policy's loss")
        expect(float(loss), "what it should be")
        expect(seen["loss"], "the loss").close_to(float(loss), rtol=1e-5, atol=1e-5)
        expect(seen["gradient"], "the gradient of the logits").close_to(gradient, rtol=1e-4, atol=1e-6)


@check(
    kind="behaviour",
    title="Bins that do not exist",
    property="With a logit of -inf, loss and gradient must be those of the vocabulary without that bin, and that bin's gradient must be 0.",
    instrument="debugkit.first_nonfinite(policy, batch)",
)
def test_bins_that_do_not_exist(submission: Submission, rng: Rng) -> None:
    for missing in (1, rng.integer(2, 30)):
        size = rng.integer(3, 9)
        logits = rng.normal(size, 4, 3, BINS, std=3.0)
        tokens = some_ignored(rng, size, 4, 3, first=missing)
        logits[..., :missing] = -torch.inf  # the first ones: code may use bin 0 for ignored tokens
        seen = submission.observe("loss_and_gradient", logits=logits, tokens=tokens)
        loss, gradient = reference(logits[..., missing:], tokens.where(tokens == IGNORED, tokens - missing))
        expect(seen["loss"], "the loss").close_to(float(loss), rtol=1e-5, atol=1e-5)
        expect(seen["gradient"][..., :missing], "the gradient of bins that do not exist").equals(
            torch.zeros(size, 4, 3, missing)
        )
        expect(seen["gradient"][..., missing:], "the gradient of the others").close_to(gradient, rtol=1e-4, atol=1e-6)


@check(
    kind="behaviour",
    title="A head with large logits trains",
    property="A policy whose logits are hundreds apart must have the correct, finite loss and finite gradients in every parameter.",
    instrument="debugkit.first_nonfinite(policy, batch)",
)
def test_loud_head_trains(submission: Submission, rng: Rng) -> None:
    for louder in (1.0, LOUD):
        batch = random_batch(rng, rng.integer(3, 9))
        batch["action_is_pad"][0, 1:] = True
        seen = submission.observe("policy_loss", batch=batch, seed=rng.seed(), louder=louder)
        loss, _ = reference(seen["logits"], targets(batch))
        expect(seen["loss"], "the policy's loss").close_to(float(loss), rtol=1e-4, atol=1e-5)
        norms = seen["gradients"]
        expect(sorted(n for n, v in norms.items() if v < 0), "the list of parameters without a gradient").equals([])
        expect(list(norms.values()), "the gradient norms").finite()


@check(
    kind="invariant",
    title="The bins compete as sharply as before",
    property=f"Logits must be the head's output divided by the temperature of {TEMPERATURE}, without a bound.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_temperature_is_unchanged(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("policy_loss", batch=random_batch(rng, 3), seed=rng.seed(), louder=LOUD)
    expect(seen["logits"], "the logits").has_shape(3, 4, 3, BINS)
    slope = float((seen["raw"] * seen["logits"]).sum() / (seen["raw"] ** 2).sum())
    expect(slope * TEMPERATURE, "logits over output, in units of 1 / temperature")
    expect(seen["logits"], "the logits").close_to(seen["raw"] / TEMPERATURE, rtol=1e-4, atol=1e-3)


@check(
    kind="invariant",
    title="The policy still reports its confidence",
    property="log_probability must be the sum of the chosen bins' log-probabilities, one number per frame, at any confidence.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_sureness_is_right(submission: Submission, rng: Rng) -> None:
    for size, louder in ((rng.integer(2, 6), 1.0), (1, LOUD)):
        seen = submission.observe("sureness", batch=random_batch(rng, size), seed=rng.seed(), louder=louder)
        wanted = F.log_softmax(seen["logits"].double(), dim=-1).amax(dim=-1).sum(dim=(1, 2))
        expect(seen["log_probability"], "the log-probability of the chunk").close_to(
            wanted.float(), rtol=1e-4, atol=1e-4
        )


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted chunk.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="One batch can be overfitted to the end",
    property=f"Over {OVERFIT_STEPS} steps on one batch the loss must stay finite and fall below {LOSS_BAR}.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_overfits_one_batch(submission: Submission, seed: int) -> None:
    losses = submission.observe("overfitted", seed=seed, steps=OVERFIT_STEPS)
    expect(losses, "the training losses").finite()
    expect(sum(losses[-5:]) / 5, "the final loss").below(LOSS_BAR)


SURE_CHECK = "test_loss_of_a_sure_policy"


@wrong_fix(
    "epsilon_inside_the_log",
    says="There is no infinity any more, but no gradient either: below the epsilon all probabilities are the same, so a policy that is sure of the wrong bin has a loss of at most -log(eps) and gets no useful gradient.",
)
def recognise_epsilon(evidence: Mapping[str, Any]) -> bool:
    loss, wanted = evidence.get(f"{SURE_CHECK}/a sure policy's loss", 0.0), wanted_of(evidence)
    return 5.0 < loss < 30.0 < wanted and not bounded_logits(evidence)


@wrong_fix(
    "clamp_logits",
    says="Logits are limited to a range: outside it they have no gradient, so a policy that is very wrong can never recover.",
)
def recognise_clamp(evidence: Mapping[str, Any]) -> bool:
    return 5.0 < evidence.get(f"{SURE_CHECK}/a sure policy's loss", 0.0) < 0.7 * wanted_of(evidence) and bounded_logits(
        evidence
    )


@wrong_fix(
    "warmer_bins",
    says="A higher temperature only delays the failure: the logits grow until they are as far apart as before, and the logarithm of 0 is still -inf.",
)
def recognise_warmer(evidence: Mapping[str, Any]) -> bool:
    name = "test_temperature_is_unchanged/logits over output, in units of 1 / temperature"
    return 0.0 < evidence.get(name, 1.0) < 0.9 and not bounded_logits(evidence)


@wrong_fix(
    "double_precision",
    says="float64 underflows at a distance of 745 instead of 103. That is further away, but a bin that does not exist is at infinity.",
)
def recognise_double(evidence: Mapping[str, Any]) -> bool:
    return (
        evidence[SURE_CHECK]["outcome"] == "passed"
        and evidence["test_bins_that_do_not_exist"]["outcome"] == "failed"
        and evidence["test_loud_head_trains"]["outcome"] == "passed"
    )


def sure_logits(rng: Rng, *shape: int) -> Tensor:
    """Logits (..., V) of which many are at ±SURE and the others near 0."""
    kind = rng.integers(0, 4, *shape, BINS)
    logits = rng.normal(*shape, BINS, std=3.0)
    logits = torch.where(kind == 0, SURE, torch.where(kind == 1, -SURE, logits))
    logits[..., 0], logits[..., 1] = SURE, -SURE
    return logits


def some_ignored(rng: Rng, *shape: int, first: int = 0) -> Tensor:
    """Tokens (...) from `first` on, a fifth of them IGNORED, but never the first of them."""
    tokens = rng.integers(first, BINS, *shape)
    ignored = rng.boolean(*shape, probability=0.2)
    ignored.view(-1)[0] = False
    return tokens.masked_fill(ignored, IGNORED)


def reference(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy in float64, and its gradient with respect to the logits."""
    asked = logits.double().requires_grad_()
    loss = F.cross_entropy(asked.flatten(0, -2), tokens.flatten(), ignore_index=IGNORED)
    loss.backward()
    assert asked.grad is not None
    return loss.detach(), asked.grad.float()


def targets(batch: dict[str, Tensor]) -> Tensor:
    """The bins of the demonstrated actions, (B, H, A), by the action space's bounds."""
    bounds = torch.tensor([0.1, 0.1, 1.0])
    tokens = ((batch["action"] / bounds + 1) / 2 * BINS).floor().long().clamp(0, BINS - 1)
    return tokens.masked_fill(batch["action_is_pad"][..., None], IGNORED)


def wanted_of(evidence: Mapping[str, Any]) -> float:
    """The expected loss of the confident policy."""
    return float(evidence.get(f"{SURE_CHECK}/what it should be", 0.0))


def bounded_logits(evidence: Mapping[str, Any]) -> bool:
    """Whether the loss's gradient at large logits shows that they are clamped."""
    seen = evidence.get(f"{SURE_CHECK}/loss_and_gradient")
    if not isinstance(seen, dict) or not isinstance(seen.get("gradient"), Tensor):
        return False
    # With all the probability on bins at +SURE, the true gradient there is large; through a clamp it is 0.
    return bool(seen["gradient"].isfinite().all()) and float(seen["gradient"][..., 0].abs().max()) == 0.0
