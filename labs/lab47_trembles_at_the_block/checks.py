"""Requirements for a temporal ensemble. Runs in the grader's process; judges data, and never sees the code.

The reference keeps every plan and computes each action from the definition: the mean of the plans for this step, each
weighted by exp(-decay) to the power of its age, and the largest of their gripper commands. Plans are drawn here and given
to the ensemble as the policy's answers, so no policy is needed for most of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    TOLERANCE,
    expect_equal,
    expect_image_and_instruction_to_matter,
    expect_success_rate,
    listed,
    random_batch,
    relative_error,
)
from labs.vla.policy import Policy, PolicyConfig
from labs.vla.rollout import rollout

HORIZON, DECAY = 12, 0.05
FIRST_SEED = 10_000
MANY = 3
"""An episode lasts so many horizons: the oldest plans are long over at its end."""
EPISODES = 50
SUCCESS_BAR = 0.8
MOST_ACTIONS = 6.0
"""The mean number of actions of an episode: the way to the block takes four or five."""


@check(
    kind="behaviour",
    title="Where the plans agree, the arm follows them",
    property="If all plans of an episode give the same movement for a step, the arm must make that movement: in the first step, while plans accumulate, and later.",
    instrument="python -c 'from policy import *; e = TemporalEnsemble(lambda _: torch.ones(1, 12, 3)); print([round(e({})[0, 0, 0].item(), 2) for _ in range(12)])'",
)
def test_agreeing_plans_are_followed(submission: Submission, rng: Rng) -> None:
    for horizon, decay, size in ((HORIZON, None, 2), (rng.integer(2, 6), 0.5, 1), (1, 0.5, 3), (5, 0.0, 5)):
        path = rng.normal(MANY * horizon + horizon, size, 4)
        plans = path.unfold(0, horizon, 1).permute(0, 1, 3, 2)[: MANY * horizon]
        said = f"plans of {horizon} step{'s' * (horizon > 1)}"
        seen = submission.observe("executed", episodes=[plans], decay=decay)["actions"][0]
        expect(seen, f"the actions for {said}").has_shape(len(plans), size, 1, 4)
        for step in (0, horizon // 2, len(plans) - 1):
            wanted = path[step, :, :3]
            expect_equal(seen[step, :, 0, :3], wanted, f"the movement of step {step}, where all {said} agree,")
        expect_equal(seen[:, :, 0, :3], path[: len(plans), :, :3], f"all movements, where all {said} agree,")


@check(
    kind="behaviour",
    title="The movement is the weighted mean of the plans",
    property="The movement must be the mean of all plans for the step, and a plan's weight must fall by exp(-decay) with each step of age.",
    instrument="python -c 'from policy import *; print(TemporalEnsemble(None).weights)'",
)
def test_movement_is_the_weighted_mean(submission: Submission, rng: Rng) -> None:
    measured = []
    for horizon, decay, size in ((HORIZON, None, 3), (rng.integer(3, 6), 0.4, 1), (4, 0.0, 4), (6, -0.3, 2)):
        plans = rng.normal(MANY * horizon, size, horizon, 3)
        actions = submission.observe("executed", episodes=[plans], decay=decay)["actions"][0]
        expect(actions, "the actions").has_shape(len(plans), size, 1, 3)
        weighting = DECAY if decay is None else decay
        expect(explain(actions[..., 0, :2], plans[..., :2], weighting), f"formula for {horizon} steps")
        measured.append((actions, plans, weighting))
    for actions, plans, decay in measured:
        wanted = ensembled(plans[..., :2], decay, weighted_mean)
        said = f"plans of {plans.shape[2]} steps and decay {decay}"
        expect_equal(actions[..., 0, :2], wanted, f"the movements for {said}")


@check(
    kind="behaviour",
    title="The largest gripper command counts",
    property="The gripper's command must be the largest of all plans for this step, and the number of movements must not matter.",
    instrument="python -c 'from policy import *; print(TemporalEnsemble(lambda _: torch.full((1, 12, 3), -2.0))({}))'",
)
def test_gripper_follows_the_largest_command(submission: Submission, rng: Rng) -> None:
    for horizon, decay, width, mean in ((HORIZON, None, 3, 0.0), (rng.integer(2, 6), 0.5, 7, -5.0), (3, 0.0, 2, 5.0)):
        plans = rng.normal(MANY * horizon, 2, horizon, width, mean=mean)
        actions = submission.observe("executed", episodes=[plans], decay=decay)["actions"][0]
        wanted = ensembled(plans[..., -1:], 0.0, lambda stack, _: stack.amax(dim=0))
        said = f"actions of {width} numbers"
        expect(actions, f"the actions, for {said},").has_shape(len(plans), 2, 1, width)
        expect_equal(actions[..., 0, -1:], wanted, f"the gripper's commands, for {said},")


@check(
    kind="invariant",
    title="A reset begins a new episode",
    property="After `reset()` the actions must be those of a new ensemble, also with another number of episodes. Without it, plans must be kept.",
    instrument="debugkit.check(policy, batch, select=['DK406'])",
)
def test_reset_begins_a_new_episode(submission: Submission, rng: Rng) -> None:
    horizon = rng.integer(3, 7)
    first, second = (rng.normal(steps, size, horizon, 3) for steps, size in ((rng.integer(1, 9), 4), (2 * horizon, 2)))
    after = submission.observe("executed", episodes=[first, second], decay=0.2)["actions"][1]
    alone = submission.observe("executed", episodes=[second], decay=0.2)["actions"][0]
    expect(after, "the actions of a second episode after `reset()`").equals(alone)
    kept = [second[:horizon], second[horizon:]]
    whole = submission.observe("executed", episodes=kept, decay=0.2, resets=False)["actions"]
    expect(torch.cat(whole), "the actions of an episode that is not interrupted by `reset()`").equals(alone)


@check(
    kind="invariant",
    title="One plan for each step, and unchanged",
    property="The ensemble must ask for one plan at each step, from that step's observation, and must not modify the plan. The rows of a batch must not affect one another.",
    instrument="debugkit.trace_batches(policy)",
)
def test_one_plan_for_each_step(submission: Submission, rng: Rng) -> None:
    plans = rng.normal(2 * HORIZON, 3, HORIZON, 3)
    seen = submission.observe("executed", episodes=[plans])
    expect(seen["asked"][0], "the steps of which a plan was asked for").equals(list(range(len(plans))))
    expect(seen["plans"][0], "the policy's plans after the episode").equals(plans)
    alone = submission.observe("executed", episodes=[plans[:, :1]])["actions"][0]
    expect(seen["actions"][0][:, :1], "the first row's actions in a batch of three").close_to(alone)


@check(
    kind="invariant",
    title="The policy is the pretrained base with plans of twelve steps",
    property="`build_policy` must give the pretrained base and a head for twelve steps drawn from the seed; `run_episodes` must run it with an ensemble, from the first seed on.",
    instrument="python -c 'from policy import *; print(build_policy(0).head)'",
)
def test_policy_is_built_as_before(submission: Submission, rng: Rng) -> None:
    seed = rng.integer(0, 1000)
    policy = Policy.from_base(replace(PolicyConfig.tiny(), horizon=HORIZON), seed=seed)
    wanted, found = policy.state_dict(), submission.observe("built", seed=seed)
    expect(listed(wanted.keys() ^ found.keys()), "what a checkpoint lacks or has too many").equals("nothing")
    other = {name for name, value in wanted.items() if not torch.equal(found[name], value)}
    expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals("nothing")
    for count, first_seed in ((3, rng.integer(500_000, 600_000)), (1, None)):
        seen = submission.observe("episodes", seed=seed, count=count, first_seed=first_seed)
        first = FIRST_SEED if first_seed is None else first_seed
        result = rollout(policy, episodes=count, first_seed=first, execute=1, predict=Reference(policy))
        said = "an episode from the default seed" if first_seed is None else "three episodes"
        expect(seen["steps"].tolist(), f"the numbers of steps of {said}").equals(result.steps.tolist())
        expect_equal(seen["distance"], torch.from_numpy(result.distance), f"the distances at the end of {said}")


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the action.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng, batch=random_batch(rng, 3, horizon=1))


@check(
    kind="outcome",
    title="The arm comes to rest at the block and grasps it",
    property=f"After a short fine-tuning, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on new tables must end with a grasp of the named block, after at most {MOST_ACTIONS:.0f} actions in the mean.",
    instrument="lab run 47",
)
def test_robot_grasps(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, count=EPISODES)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)
    expect(result["steps"].double().mean(), "the mean number of actions of an episode").at_most(MOST_ACTIONS)


Combine = Callable[[Tensor, Tensor], Tensor]
"""All plans for a step (N, B, A), the newest first, and the weights of all ages (H,), to the action (B, A)."""


def weighted_mean(plans: Tensor, weights: Tensor) -> Tensor:
    """The reference."""
    own = weights[: len(plans), None, None]
    return (own * plans).sum(dim=0) / own.sum()


def over_all_weights(plans: Tensor, weights: Tensor) -> Tensor:
    """Divided by the weights of a full ensemble, whether it is full or not."""
    return (weights[: len(plans), None, None] * plans).sum(dim=0) / weights.sum()


def over_their_number(plans: Tensor, weights: Tensor) -> Tensor:
    """Divided by the number of plans."""
    return (weights[: len(plans), None, None] * plans).mean(dim=0)


def undivided(plans: Tensor, weights: Tensor) -> Tensor:
    """Divided by the newest plan's weight, which is 1: as shipped."""
    return (weights[: len(plans), None, None] * plans).sum(dim=0)


FORMULAS: dict[str, Combine] = {
    "weighted_mean": weighted_mean,
    "over_all_weights": over_all_weights,
    "over_their_number": over_their_number,
    "newest_only": lambda plans, _: plans[0],
    "undivided": undivided,
    "equal_mean": lambda plans, _: plans.mean(dim=0),
}
"""The first that fits is the one that counts: without a decay, several are the same."""


def ensembled(plans: Tensor, decay: float, combine: Combine) -> Tensor:
    """The actions (T, B, A) of an episode's plans (T, B, H, A)."""
    horizon = plans.shape[2]
    weights = torch.exp(-decay * torch.arange(horizon))
    steps = []
    for step in range(len(plans)):
        ages = range(min(step + 1, horizon))
        steps.append(combine(torch.stack([plans[step - age, :, age] for age in ages]), weights))
    return torch.stack(steps)


def explain(found: Tensor, plans: Tensor, decay: float) -> str:
    """The formula that gives the movements (T, B, A) that were found."""
    for name, combine in FORMULAS.items():
        if relative_error(found, ensembled(plans, decay, combine)) < TOLERANCE:
            return name
    return "smoothed" if is_smoothed(found, ensembled(plans, decay, undivided)) else "another"


def is_smoothed(found: Tensor, undivided: Tensor) -> bool:
    """Whether the movements are a constant mixture of the undivided sum and of the movement before."""
    if not found.isfinite().all():
        return False
    before = torch.cat([torch.zeros_like(found[:1]), found[:-1]])
    inputs = torch.stack([undivided[1:].flatten(), before[1:].flatten()], dim=1).double()
    shares = torch.linalg.lstsq(inputs, found[1:].flatten().double()[:, None]).solution
    mixture = (inputs @ shares)[:, 0]
    return relative_error(mixture, found[1:].flatten()) < TOLERANCE and bool(shares[1] > 0.01)


class Reference:
    """The reference as a controller: keeps the last plans of a policy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.plans: list[Tensor] = []

    def __call__(self, batch: dict[str, Tensor]) -> Tensor:
        self.plans.append(self.policy.predict(batch))
        plans = torch.stack(self.plans)
        movement = ensembled(plans[..., :-1], DECAY, weighted_mean)[-1]
        gripper = ensembled(plans[..., -1:], DECAY, lambda stack, _: stack.amax(dim=0))[-1]
        return torch.cat([movement, gripper], dim=-1)[:, None]


def formulas(evidence: Mapping[str, Any]) -> set[str]:
    """The formulas that explain the movements, over all horizons and decays."""
    prefix = "test_movement_is_the_weighted_mean/formula for "
    return {str(value) for name, value in evidence.items() if name.startswith(prefix)}


@wrong_fix(
    "over_all_weights",
    says="This divides by the weights of a full ensemble. In an episode's first steps there are fewer plans, and the arm makes a fraction of the movement on which they agree.",
)
def recognise_all_weights(evidence: Mapping[str, Any]) -> bool:
    return formulas(evidence) == {"over_all_weights"}


@wrong_fix(
    "over_their_number",
    says="This divides by the number of plans. That is the sum of their weights only if all weights are 1; with a decay, the arm makes less than the movement on which the plans agree.",
)
def recognise_number(evidence: Mapping[str, Any]) -> bool:
    return "over_their_number" in formulas(evidence) <= {"over_their_number", "weighted_mean"}


@wrong_fix(
    "newest_only",
    says="The arm no longer trembles, because nothing is averaged any more: it follows the newest plan alone.",
)
def recognise_newest(evidence: Mapping[str, Any]) -> bool:
    return formulas(evidence) == {"newest_only"}


@wrong_fix(
    "smoothing_filter",
    says="This smooths the movements after they have been computed. The sums are still not divided by the weights that are in them, so where all plans agree the arm makes a multiple of their movement, only later.",
)
def recognise_smoothing(evidence: Mapping[str, Any]) -> bool:
    return formulas(evidence) == {"smoothed"}
