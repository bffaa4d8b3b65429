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
from labs.invariants import (
    TOLERANCE,
    close,
    expect_equal,
    expect_image_and_instruction_to_matter,
    listed,
    random_batch,
    random_padding,
)
from labs.policy_comparison import encoded, expect_gradients_of, with_louder_head
from labs.vla.policy import Policy

IGNORED = -100
BINS = 64
TEMPERATURE = 0.03
SURE = 200.0
LOUD = 6.0
"""Factor on a fresh last layer, so that some bins are 300 below others."""
STEPS = {"2": 2.0, "10": 10.0, "100": 100.0}
"""Distances of neighbouring bins. The last of 64 bins is then 126, 630 or 6300 below the first."""
SHIFT = 500.0

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
        of = f"of tokens of shape {list(shape)}"
        expect(seen["loss"], f"the loss {of}").close_to(float(loss), rtol=1e-5, atol=1e-5)
        expect_equal(seen["gradient"], gradient, f"the gradient of the logits {of}")


@check(
    kind="behaviour",
    title="The logarithm of each bin's probability",
    property="`log_probabilities` must return the logarithm of each bin's probability, however small that is, with and without gradients.",
    instrument="python -c 'import torch; from policy import *; print(log_probabilities(torch.tensor([0.0, -50.0, -200.0])))'",
)
def test_every_bin_has_its_probability(submission: Submission, rng: Rng) -> None:
    cases = {f"neighbours {name} apart": graded(step) for name, step in STEPS.items()}
    cases |= {f"{SHIFT:g} added to all logits": graded(2.0) + SHIFT, "random logits": rng.normal(3, 5, BINS, std=9.0)}
    cases |= {"three bins": sure_logits(rng, 4)[..., :3]}
    seen = {name: submission.observe("log_probabilities", logits=logits) for name, logits in cases.items()}
    for name, logits in cases.items():
        expect(seen[name]["with gradients"], name).has_shape(*logits.shape)
    for name, logits in cases.items():
        for how, found in seen[name].items():
            expect_equal(found, F.log_softmax(logits.double(), dim=-1), f"the log-probabilities ({name}, {how})")


@check(
    kind="behaviour",
    title="Bins that do not exist",
    property="With a logit of -inf, loss and gradient must be those of the vocabulary without that bin, that bin's gradient and probability must be 0, and the other bins must have the log-probabilities that they have without it.",
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
        of = f"with {missing} of {BINS} bins at -inf"
        expect(seen["loss"], f"the loss {of}").close_to(float(loss), rtol=1e-5, atol=1e-5)
        expect(seen["gradient"], f"the gradient {of}").has_shape(*logits.shape)
        expect(seen["gradient"][..., :missing].abs().max(), f"the largest gradient of a bin at -inf {of}").equals(0.0)
        expect_equal(seen["gradient"][..., missing:], gradient, f"the gradient of the other bins {of}")
        wanted = F.log_softmax(logits[..., missing:].double(), dim=-1)
        for how, found in submission.observe("log_probabilities", logits=logits).items():
            expect(found[..., :missing].exp().max(), f"the largest probability of a bin at -inf {of} ({how})").equals(
                0.0
            )
            expect_equal(found[..., missing:], wanted, f"the log-probabilities of the other bins {of} ({how})")


@check(
    kind="behaviour",
    title="A head with large logits trains",
    property="A policy whose logits are hundreds apart must have the correct, finite loss and gradients in every parameter, and the same loss in evaluation.",
    instrument="debugkit.first_nonfinite(policy, batch)",
)
def test_loud_head_trains(submission: Submission, rng: Rng) -> None:
    for size, louder in ((rng.integer(3, 9), 1.0), (rng.integer(3, 9), LOUD), (1, LOUD)):
        batch, seed = {**random_batch(rng, size), "action_is_pad": random_padding(rng, size)}, rng.seed()
        seen = submission.observe("policy_loss", batch=batch, seed=seed, louder=louder)
        policy = loud_base(seed, louder)
        logits = head_output(policy, batch) / TEMPERATURE
        loss = F.cross_entropy(logits.flatten(0, -2), targets(batch).flatten(), ignore_index=IGNORED)
        loss.backward()
        of = f"of {size} frame{'s' * (size > 1)} with {'large' if louder > 1 else 'small'} logits"
        expect_equal(seen["loss"], loss.detach(), f"the loss {of}")
        expect_equal(seen["loss in evaluation"], loss.detach(), f"the loss in evaluation {of}")
        expect_gradients_of(policy, seen["gradients"], of, rtol=1e-2)


@check(
    kind="invariant",
    title="The bins compete as sharply as before",
    property=f"Logits must be the head's output divided by the temperature of {TEMPERATURE}, without a bound.",
    instrument="python -c 'from policy import *; import torch; head, x = build_policy(0).head, 99 * torch.randn(1, 64); print((TokenHead.forward(head, x) / head(x)).aminmax())'",
)
def test_temperature_is_unchanged(submission: Submission, rng: Rng) -> None:
    batch, seed = random_batch(rng, 3), rng.seed()
    logits = submission.observe("policy_loss", batch=batch, seed=seed, louder=LOUD)["logits"]
    wanted = head_output(loud_base(seed, LOUD), batch).detach() / TEMPERATURE
    expect(logits, "the logits").has_shape(*wanted.shape)
    expect(float((wanted * logits).sum() / (wanted**2).sum()), "the size of the logits, relative to the base's")
    expect_equal(logits, wanted, "the logits")


@check(
    kind="invariant",
    title="The policy still reports its confidence",
    property="log_probability must be the sum of the chosen bins' log-probabilities, one number per frame, at any confidence.",
    instrument="python -c 'from policy import *; from labs.vla.dataset import *; print(build_policy(0).eval().log_probability(collate(demonstrations(4, 1), range(4))))'",
)
def test_sureness_is_right(submission: Submission, rng: Rng) -> None:
    for size, louder in ((rng.integer(2, 6), 1.0), (1, LOUD)):
        batch, seed = random_batch(rng, size), rng.seed()
        logits = head_output(loud_base(seed, louder), batch).detach().double() / TEMPERATURE
        wanted = F.log_softmax(logits, dim=-1).amax(dim=-1).sum(dim=(1, 2))
        reported = submission.observe("sureness", batch=batch, seed=seed, louder=louder)
        of = f"of {size} frame{'s' * (size > 1)}"
        expect(reported, f"the log-probability {of}").has_shape(size)
        expect((reported - wanted).abs().max(), f"the largest error of the log-probability {of}").at_most(TOLERANCE)


@check(
    kind="invariant",
    title="The policy is the base with a token head",
    property="`build_policy` must use the pretrained base and a token head drawn from the seed.",
    instrument="python -c 'from policy import *; print(build_policy(0).config)'",
)
def test_policy_is_the_base(submission: Submission, rng: Rng) -> None:
    seed = rng.seed()
    seen = submission.observe("built", seed=seed)
    expect(seen["head"], "the head in the policy's config").equals("tokens")
    weights = Policy.from_base(head="tokens", seed=seed).state_dict()
    expect(listed(weights.keys() ^ seen["weights"].keys()), "what the policy lacks or has too many").equals("nothing")
    other = {name for name, value in weights.items() if not torch.equal(seen["weights"][name], value)}
    expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals("nothing")


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


GRADED = "test_every_bin_has_its_probability"


@wrong_fix(
    "epsilon_inside_the_log",
    says="There is no infinity any more, but no gradient either: below the epsilon all probabilities are the same, so a policy that is sure of the wrong bin has a loss of at most -log(eps) and gets no useful gradient.",
)
def recognise_epsilon(evidence: Mapping[str, Any]) -> bool:
    found, exact = log_probabilities(evidence, "2"), graded(2.0).double().log_softmax(dim=-1)
    epsilon = found[-1].exp()
    smooth = (exact.exp() + epsilon).log()
    return bool(epsilon > 0) and bool((found - smooth).abs().max() < 0.05) and not close(found, exact)


@wrong_fix(
    "clamp_logits",
    says="Logits are limited to a range: outside it they have no gradient, so a policy that is very wrong can never recover.",
)
def recognise_clamp(evidence: Mapping[str, Any]) -> bool:
    found, shifted = log_probabilities(evidence, "2"), evidence[f"{GRADED}/{SHIFT:g} added to all logits"].double()
    inside = (found[:4] - found[0] + 2.0 * torch.arange(4)).abs().max() < 1e-3
    outside = found.isfinite().all() and found[-1] == found[-2]
    return bool(inside and outside and (shifted == shifted[0]).all() and shifted.isfinite().all())


@wrong_fix(
    "warmer_bins",
    says="A higher temperature only delays the failure: the logits grow until they are as far apart as before, and the logarithm of 0 is still -inf.",
)
def recognise_warmer(evidence: Mapping[str, Any]) -> bool:
    size = evidence["test_temperature_is_unchanged/the size of the logits, relative to the base's"]
    return 0.0 < size < 0.9 and underflows(evidence, "2")


@wrong_fix(
    "double_precision",
    says="float64 underflows at a distance of 745 instead of 103. That is further away, but a bin that does not exist is at infinity.",
)
def recognise_double(evidence: Mapping[str, Any]) -> bool:
    return underflows(evidence, "100") and all(
        close(log_probabilities(evidence, step), graded(STEPS[step]).double().log_softmax(dim=-1))
        for step in ("2", "10")
    )


def log_probabilities(evidence: Mapping[str, Any], step: str) -> Tensor:
    """The submission's log-probabilities of 64 bins, each `step` below the one before."""
    found: Tensor = evidence[f"{GRADED}/neighbours {step} apart"]
    return found.double()


def underflows(evidence: Mapping[str, Any], step: str) -> bool:
    """Whether the first bin's log-probability is correct and the last one's is -inf."""
    found = log_probabilities(evidence, step)
    return abs(float(found[0] - graded(STEPS[step]).log_softmax(dim=-1)[0])) < 1e-3 and bool(found[-1] == -torch.inf)


def graded(step: float) -> Tensor:
    """Logits (V,) from 0 downwards, each `step` below the one before."""
    return -step * torch.arange(BINS)


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


def loud_base(seed: int, louder: float) -> Policy:
    """The base policy with its own token head, whose last layer is `louder` times as large."""
    return with_louder_head(Policy.from_base(head="tokens", seed=seed), louder)


def head_output(policy: Policy, batch: Mapping[str, Tensor]) -> Tensor:
    """The output (B, H, A, bins) of a policy's head, without a temperature."""
    return policy.head(encoded(policy, batch))
