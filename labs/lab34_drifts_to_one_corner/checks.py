"""Requirements for actions as tokens. Runs in the grader's process; judges data, and never sees the code.

The reference is the docstring of ActionTokeniser, measured in bins of each dimension's own range: an action survives
encoding and decoding within half a bin, without a bias; a token survives decoding and encoding. The value of a token
within its bin is not prescribed beyond that. Logits are those of the base policy with its own token head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.demonstrated_actions import demonstrations, extremes
from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, random_batch
from labs.vla.dataset import demonstrations as vla_demonstrations
from labs.vla.heads import ActionHead, TokenHead
from labs.vla.policy import OBSERVATION_KEYS, Policy

BINS = 32
HORIZON = 4
MANY = 4000
HALF = 0.52
"""Half a bin; the margin is for tokens on a grid of 31 steps instead of in the middle of 32 bins."""
BIAS = 0.03
"""In bins. The mean of 4000 errors spread evenly over a bin has a standard error of 0.005."""

OVERFIT_STEPS = 80
OUTCOME_BIAS = 0.35


@check(
    kind="behaviour",
    title="Actions survive the round trip within half a bin, without a bias",
    property=f"decode(encode(action)) must be within half a bin of the action, with a mean error of at most {BIAS} bins over {MANY} actions, in every dimension, also in one that moves by a millimetre.",
    instrument="debugkit.check(policy, batch, select=['DK405'])",
)
def test_actions_come_back(submission: Submission, rng: Rng) -> None:
    for width in (3, rng.integer(4, 9)):
        demos = demonstrations_with(rng, width)
        low, high = extremes(demos)
        bin_width = (high - low) / BINS
        action = low + rng.uniform(MANY, width) * (high - low)
        seen = submission.observe("there_and_back", **demos, action=action, training=width == 3)
        expect(seen["returned"], "the decoded actions").has_shape(MANY, width)
        expect(seen["tokens"], "the tokens").has_shape(MANY, width)
        error = (seen["returned"].double() - action) / bin_width
        expect(error.mean(dim=0).tolist(), "mean error in bins")
        added = (seen["returned"].double() - low - seen["tokens"] * bin_width).mean(dim=0)
        expect(added.tolist(), "what is added to the lower edges")
        expect((added / bin_width).tolist(), "what is added to the lower edges, in bins")
        expect(int(seen["tokens"].max()), "the largest token")
        inner = (action > low + bin_width) & (action < high - bin_width)
        expect(float(error[inner].abs().max()), "largest error within the outermost bins")
        for dimension in range(width):
            which = f"of dimension {dimension} of {width}, in bins"
            expect(error[:, dimension].mean(), f"the mean error {which}").between(-BIAS, BIAS)
            expect(error[:, dimension].abs().max(), f"the largest error {which}").at_most(HALF)


@check(
    kind="behaviour",
    title="Tokens survive the round trip",
    property="encode(decode(token)) must equal the token, for every token, in every dimension, for any range.",
    instrument="debugkit.check(policy, batch, select=['DK405'])",
)
def test_tokens_come_back(submission: Submission, rng: Rng) -> None:
    for width in (3, 7, rng.integer(8, 30)):
        demos = demonstrations_with(rng, width)
        low, high = extremes(demos)
        tokens = torch.arange(BINS)[:, None].repeat(1, width)
        seen = submission.observe("every_token", **demos, tokens=tokens)
        changed = [token for token in range(BINS) if not bool((seen["again"][token] == token).all())]
        expect(changed, f"the list of tokens of {width} dimensions that another token replaces").equals([])
        apart = seen["actions"].double().diff(dim=0) / ((high - low) / BINS)
        expect(apart, "the distance of neighbouring tokens' actions, in bins").between(0.99, 1.04)


@check(
    kind="invariant",
    title="Every action has one of 32 tokens, in order",
    property="Tokens must be 0 to 31, int64, in the shape of the actions, and grow with the action; actions outside the range must get the outermost tokens.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_tokens_are_in_order(submission: Submission, rng: Rng) -> None:
    demos = demonstrations_with(rng, 5)
    low, high = extremes(demos)
    action = low + torch.linspace(-0.5, 1.5, 401)[:, None] * (high - low)
    tokens = submission.observe("there_and_back", **demos, action=action)["tokens"]
    expect(tokens, "the tokens").has_shape(401, 5)
    expect(str(tokens.dtype), "the dtype of tokens").equals("torch.int64")
    expect(tokens[:100], "the tokens of actions below the range").equals(torch.zeros(100, 5, dtype=torch.int64))
    expect(tokens[-100:], "the tokens of actions above the range").equals(torch.full((100, 5), BINS - 1))
    expect(tokens.diff(dim=0), "how tokens grow with the action").between(0, 1)
    for shape in ((5,), (2, 3, 5), (1, 50, 5)):
        inside = low + rng.uniform(*shape) * (high - low)
        seen = submission.observe("there_and_back", **demos, action=inside)
        expect(seen["tokens"], f"the tokens of actions of shape {list(shape)}").has_shape(*shape)
        off = (seen["returned"] - inside).abs() / ((high - low) / BINS)
        expect(off, f"the errors of actions of shape {list(shape)}, in bins").at_most(HALF)


@check(
    kind="invariant",
    title="The loss is the cross-entropy of the demonstrated tokens",
    property="The loss must be the mean cross-entropy over the steps that are not padding, with the tokens of `encode` as targets, and the robot must execute the likeliest tokens' actions.",
    instrument="debugkit.check(policy, batch)",
)
def test_loss_is_the_cross_entropy(submission: Submission, rng: Rng) -> None:
    for size in (rng.integer(3, 9), 1):
        batch, seed = random_batch(rng, size), rng.seed()
        batch["action"] *= 30.0  # degrees, for example
        batch["action_is_pad"][0, 2:] = True
        batch["action"][0, :2, 2] = torch.tensor([-30.0, 30.0])  # the range of the gripper must not be empty
        seen = submission.observe("loss_and_action", batch=batch, seed=seed)
        policy = Speaker.from_base(seed=seed)
        logits = policy.head(policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})).detach()
        low, high = extremes({"demonstrated": batch["action"], "action_is_pad": batch["action_is_pad"]})
        real = ~batch["action_is_pad"]
        tokens = seen["tokens"].clamp(0, BINS - 1)
        off = (low + (tokens + 0.5) / BINS * (high - low) - batch["action"]) / ((high - low) / BINS)
        expect(off[real], "how far the tokens' bins are from the demonstrated actions, in bins").between(-1.05, 1.05)
        error = F.cross_entropy(logits.flatten(0, 2), tokens.flatten(), reduction="none")
        wanted = error.view(batch["action"].shape).mean(dim=-1)[real].mean()
        of = f"of {size} frame{'s' * (size > 1)}"
        expect(seen["loss"], f"the loss {of}").close_to(float(wanted), rtol=1e-3, atol=1e-4)
        likeliest = logits.argmax(dim=-1)
        place = (seen["action"] - low) / ((high - low) / BINS) - likeliest
        expect(place, f"the executed actions {of}, from the start of the likeliest bin, in bins").between(-0.05, 1.05)


@check(
    kind="invariant",
    title="The ranges are those of the demonstrations, and are saved",
    property="`build_policy` must set the ranges of its demonstrations, also for a second fit, and a policy that loads the checkpoint must decode with them.",
    instrument="python -c 'from policy import *; print(SpeakingPolicy.from_base().state_dict().keys())'",
)
def test_ranges_are_saved(submission: Submission, rng: Rng) -> None:
    seed, count = rng.integer(0, 1000), 300
    frames = vla_demonstrations(count, seed)
    steps = frames.action[~frames.action_is_pad]
    low, high = (torch.from_numpy(steps.min(axis=0)), torch.from_numpy(steps.max(axis=0)))
    tokens = torch.arange(BINS)[:, None].repeat(1, 3)
    seen = submission.observe("decoded_by", seed=seed, count=count, tokens=tokens)
    head = Speaker.from_base(seed=seed).head.state_dict()
    others = [name for name, value in head.items() if not torch.equal(seen["head"].get(name, value + 1), value)]
    expect(others, "the list of the head's weights that are not drawn from the seed").equals([])
    for which, actions in seen["decoded"].items():
        place = (actions - low) / ((high - low) / BINS) - tokens
        expect(place, f"the actions of {which}, from the start of their bins, in bins").between(-0.05, 1.05)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change what the robot executes.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="A policy that has memorised a batch executes it without a bias",
    property=f"After overfitting one batch, the mean error of the executed movements must be below {OUTCOME_BIAS} bins.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_executes_without_a_bias(submission: Submission, seed: int) -> None:
    seen = submission.observe("overfitted", seed=seed, steps=OVERFIT_STEPS)
    error = (seen["executed"] - seen["wanted"]) / ((seen["high"] - seen["low"]) / BINS)  # (M, A)
    near = (error[:, :2].abs() < 1.0).double().mean()
    expect(near, "the share of movements executed within a bin").at_least(0.9)
    expect(error[:, :2].mean(dim=0).abs().max(), "the largest mean error of a movement, in bins").below(OUTCOME_BIAS)


BACK = "test_actions_come_back"
INNER = f"{BACK}/largest error within the outermost bins"


@wrong_fix(
    "more_bins",
    says="More bins make the bias smaller in millimetres, but it is still half a bin, always to the same side. And a larger vocabulary has to be learnt.",
)
def recognise_more_bins(evidence: Mapping[str, Any]) -> bool:
    bins = evidence[f"{BACK}/the largest token"] + 1
    means = evidence[f"{BACK}/mean error in bins"]
    return bins > 1.5 * BINS and all(abs(mean + 0.5 * BINS / bins) < BIAS for mean in means)


@wrong_fix(
    "constant_added",
    says="The constant is half a bin of one robot's range. Other dimensions have other ranges, and so do other datasets.",
)
def recognise_constant(evidence: Mapping[str, Any]) -> bool:
    added = evidence[f"{BACK}/what is added to the lower edges"]
    return added[0] > 0 and all(abs(one - added[0]) < 0.05 * added[0] for one in added)


@wrong_fix(
    "right_edges",
    says="Now every action is half a bin too far to the other side: the arm drifts to the other corner.",
)
def recognise_right_edges(evidence: Mapping[str, Any]) -> bool:
    return all(abs(mean - 0.5) < BIAS for mean in evidence[f"{BACK}/mean error in bins"])


@wrong_fix(
    "round_instead",
    says="Rounding moves the bins by half of their width, and the bias is gone, except at the upper end: there is no token for the last half bin, so the strongest movements become too weak.",
)
def recognise_rounding(evidence: Mapping[str, Any]) -> bool:
    means, inner = evidence[f"{BACK}/mean error in bins"], evidence[INNER]
    unbiased = all(abs(mean) < 2 * BIAS for mean in means)  # half a bin is lost at the upper end: a mean of -1/64
    lower_edges = all(abs(one) < BIAS for one in evidence[f"{BACK}/what is added to the lower edges, in bins"])
    return unbiased and lower_edges and inner < HALF and evidence[BACK]["outcome"] == "failed"


class Speaker(Policy):
    """The base policy with its own token head: the logits of the lab's policy, whatever tokens mean."""

    head: TokenHead

    def build_head(self) -> ActionHead:
        return TokenHead(self.config.width, self.config.horizon, self.config.action_dim, bins=BINS)


def demonstrations_with(rng: Rng, width: int) -> dict[str, Tensor]:
    """Demonstrated actions (N, H, A) with a different range in each dimension, and their padding (N, H)."""
    middle, reach = rng.normal(width, std=0.5), rng.uniform(width, low=0.02, high=1.5)
    typical = torch.tensor([0.05, 1.0, 60.0, 0.001])[:width]  # metres, radians, degrees, and a millimetre in metres
    reach[:4] = rng.uniform(len(typical), low=0.9, high=1.1) * typical
    middle[3:4] *= 0.1  # float32 keeps a thousandth of a bin of the millimetre
    action = middle + (2 * rng.uniform(64, HORIZON, width) - 1) * reach
    return demonstrations(rng, action)
