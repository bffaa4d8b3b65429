"""Requirements for robots that ensemble plans. Runs in the grader's process; judges data, and never sees the code.

States, plans and the ends of episodes are drawn here, so no policy is needed for most of it. The reference is in
`labs/ensembled_plans.py`: it keeps every plan, and computes each action from the definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from labs.ensembled_plans import (
    Work,
    acted,
    episode_alone,
    explanation,
    first_plans,
    formulas,
    random_work,
    ways_to_forget,
)
from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    expect_equal,
    expect_image_and_instruction_to_matter,
    expect_success_rate,
    listed,
    random_batch,
)
from labs.vla.policy import Policy, PolicyConfig

HORIZON, EPISODE_STEPS = 8, 10
FIRST_SEED, EPISODES, ROBOTS = 10_000, 48, 8
"""The defaults of `evaluate`."""
SUCCESS_BAR = 0.8
MOST_ACTIONS = 6.0
"""The mean number in an episode. The way to the block takes four or five."""
EXACT = 1e-4
"""In metres, of movements of some centimetres. Rounding gives 1e-7."""
CIRCLE = torch.tensor([[0.0, 0.3, 1.0], [-0.3, 0.0, 1.0], [0.15, -0.15, 0.0]])
"""x, y and the gripper: around the table with a closed gripper, until a block is in reach."""
SOURCES = {
    "own": "the plans of this episode",
    "nobody": "the plans of this episode and of earlier ones",
    "everyone": "the newest plan alone",
}


@check(
    kind="behaviour",
    title="The arm goes to the mean of the places",
    property="In an episode, an arm must go to the mean of the places that all plans have for this step, and a plan's weight must grow by exp(decay) with each step of age.",
    instrument="python -c 'from policy import *; print(EnsemblingRobots(build_policy(0), 1).weights)'",
)
def test_arm_goes_to_the_mean_place(submission: Submission, rng: Rng) -> None:
    measured = []
    for horizon, decay, robots, width in ((HORIZON, None, 3, 3), (rng.integer(3, 6), 0.4, 1, 5), (4, -0.3, 2, 2)):
        work = random_work(rng, 2 * horizon + 3, robots, horizon, width, decay)
        found = actions(submission, work, resets=False)
        expect(explanation(found, formulas(work), EXACT), f"formula for {size(work)}")
        measured.append((found, work))
    for found, work in measured:
        wanted = acted(work, first_plans(work, "nobody"))
        expect_equal(found[..., :-1], wanted[..., :-1], f"all movements of an episode, with {size(work)},")


@check(
    kind="behaviour",
    title="The largest gripper command counts",
    property="A robot's gripper command must be the largest that the plans of its episode have for this step.",
    instrument="python -c 'from policy import *; print(EnsemblingRobots(build_policy(0), 1).gripper[0, :, 0])'",
)
def test_gripper_follows_the_largest_command(submission: Submission, rng: Rng) -> None:
    for horizon, robots, mean in ((HORIZON, 2, 0.0), (rng.integer(3, 6), 3, -5.0), (2, 1, 5.0)):
        work = random_work(rng, 3 * horizon, robots, horizon, 3, 0.1, mean)
        found = actions(submission, work, resets=False)[..., -1]
        wanted = acted(work, first_plans(work, "nobody"))[..., -1]
        expect_equal(found, wanted, f"the gripper's commands in an episode, with {size(work)},")


@check(
    kind="behaviour",
    title="A new episode begins without the plans of the last one",
    property="After `reset(ended)` the robots of which `ended` is true must act as in a first episode, however many they are and whenever their episodes end, also after one `reset` for each of them, and whatever numbers their earlier plans had.",
    instrument="debugkit.check(robots, batch, select=['DK406'], declare=debugkit.Declare(reset=lambda robots: robots.reset(torch.tensor([True]))))",
)
def test_new_episode_begins_without_old_plans(submission: Submission, rng: Rng) -> None:
    measured = []
    for robots, horizon in ((4, 5), (3, HORIZON), (rng.integer(5, 8), 3), (1, 4)):
        work = random_work(rng, 4 * horizon, robots, horizon, 3, 0.2)
        found, ways = actions(submission, work), ways_to_forget(work)
        expect(explanation(found, ways, EXACT), f"way to forget with {size(work)}")
        measured.append((found, work, ways))
    for found, work, ways in measured:
        for robot, step in (work.ended[:-1].nonzero().flip(1) + torch.tensor([0, 1])).tolist():
            what = f"what robot {robot} moves by in step {step}, the first of its next episode, with {size(work)} (counted from 0)"
            expect(source(found, ways, robot, step), what).equals(SOURCES["own"])
        later = first_plans(work, "own") > 0
        expect_equal(
            found[later], ways["own"][later], f"the actions in all episodes but the first ones, with {size(work)},"
        )
    work = random_work(rng, 8, 4, 4, 3, 0.2)
    ended = torch.zeros_like(work.ended)
    ended[3, [0, 2]] = True
    work = replace(work, ended=ended)
    found, first = actions(submission, work, one_by_one=True), first_plans(work, "own")
    what = f"the actions in two episodes that begin in one step, with a `reset` for each robot, with {size(work)},"
    expect_equal(found[first > 0], acted(work, first)[first > 0], what)
    expect_broken_plans_to_be_forgotten(submission, rng)


@check(
    kind="behaviour",
    title="The others go on with their plans",
    property="A `reset` must not change what a robot does of which `ended` is false: the plans of its episode still count.",
    instrument="python -c 'from policy import *; r = EnsemblingRobots(build_policy(0), 2); r.places += 1; r.reset(torch.tensor([True, False])); print(r.places[:, 0])'",
)
def test_others_go_on_with_their_plans(submission: Submission, rng: Rng) -> None:
    for robots, horizon in ((4, 5), (2, HORIZON), (rng.integer(5, 8), 3)):
        work = random_work(rng, 3 * horizon, robots, horizon, 3, 0.2)
        found, ways = actions(submission, work), ways_to_forget(work)
        first = first_plans(work, "own") == 0
        for step, robot in (first[1:] & work.ended[:-1].any(dim=1, keepdim=True)).nonzero().tolist():
            what = f"what robot {robot} moves by in step {step + 1}, when another one has begun a new episode, with {size(work)} (counted from 0)"
            expect(source(found, ways, robot, step + 1), what).equals(SOURCES["own"])
        expect_equal(found[first], ways["own"][first], f"the actions in all first episodes, with {size(work)},")


@check(
    kind="behaviour",
    title="`reset()` begins new episodes for all",
    property="After `reset()` without an argument all robots must act as in a first episode, also where nothing was planned before it.",
    instrument="debugkit.check(robots, batch, select=['DK406'])",
)
def test_reset_without_an_argument(submission: Submission, rng: Rng) -> None:
    for robots, horizon in ((3, HORIZON), (1, rng.integer(3, 6))):
        work = random_work(rng, 2 * horizon, robots, horizon, 3, None)
        ended = torch.zeros_like(work.ended)
        ended[horizon - 1] = True
        work = replace(work, ended=ended)
        found, wanted = actions(submission, work, all_at_once=True), acted(work, first_plans(work, "own"))
        expect_equal(
            found[:horizon], wanted[:horizon], f"the actions of new robots after `reset()`, with {size(work)},"
        )
        expect_equal(
            found[horizon:], wanted[horizon:], f"the actions of a second episode after `reset()`, with {size(work)},"
        )


@check(
    kind="invariant",
    title="One plan for each step, for all robots at once",
    property="`select_action` must ask once per step for the plans of all robots, from that step's observations, and modify neither. Other robots must not change what a robot does.",
    instrument="debugkit.trace_batches(robots)",
)
def test_one_plan_for_each_step(submission: Submission, rng: Rng) -> None:
    work = random_work(rng, 12, 3, HORIZON, 3, None)
    seen = submission.observe("executed", states=work.states, plans=work.plans)
    asked = [[step, 3] for step in range(len(work.states))]
    expect(seen["asked"], "the step and the number of robots of each call of the policy").equals(asked)
    expect(seen["changed"], "whether a plan or an observation was modified").is_false()
    first = replace(work, states=work.states[:, :1], plans=work.plans[:, :1])
    alone = actions(submission, first, resets=False)
    expect_equal(
        torch.stack(seen["actions"])[:, :1], alone, "robot 0's actions beside two others, compared with those alone,"
    )


@check(
    kind="invariant",
    title="Every episode goes as for a robot alone",
    property="`evaluate` must run each episode as a robot alone would, with the tables in the order of its docstring, and give a robot its next table in the step after its episode has ended.",
    instrument="python -c 'from policy import *; print([evaluate(build_policy(0), 12, n).steps for n in (12, 3)])'",
)
def test_evaluation_takes_one_episode_after_another(submission: Submission, rng: Rng) -> None:
    weights = CIRCLE + rng.uniform(4, *CIRCLE.shape, low=-0.03, high=0.03)
    for asked in ({"episodes": 14, "num_robots": 4}, {"episodes": 5, "num_robots": 1}, {}):
        if asked:
            asked = {**asked, "first_seed": rng.integer(500_000, 600_000)}
        seen = submission.observe("steered", weights=weights, **asked)
        episodes, robots = asked.get("episodes", EPISODES), asked.get("num_robots", ROBOTS)
        said = f"{episodes} episodes of {robots} robot{'s' * (robots > 1)}" if asked else "`evaluate(policy)`"
        seeds = range(asked.get("first_seed", FIRST_SEED), asked.get("first_seed", FIRST_SEED) + episodes)
        wanted = [episode_alone(weights, seed, EPISODE_STEPS) for seed in seeds]
        expect(
            sorted({len(states) for states in seen["states"]}),
            f"the numbers of robots that the policy plans for, in {said},",
        ).equals([robots])
        for name in ("steps", "success", "wrong_block"):
            expect(len(seen[name]), f"the number of episodes in `{name}`, in {said},").equals(episodes)
            for number, one in enumerate(wanted):
                what = f"`{name}` of episode {number}, which robot {number % robots} runs, in {said} (counted from 0)"
                expect(seen[name][number].item(), what).equals(one[name])
        distances = torch.tensor([one["distance"] for one in wanted], dtype=torch.float64)
        expect(seen["distance"], f"the distances at the end of {said}").close_to(distances, atol=EXACT)
        for number, one in enumerate(wanted):
            start = sum(before["steps"] for before in wanted[number % robots : number : robots])
            first = seen["states"][start][number % robots] if start < len(seen["states"]) else torch.empty(0)
            what = f"the state of robot {number % robots} in step {start}, in which its episode {number} begins, in {said},"
            expect(first, what).close_to(one["first_state"], atol=EXACT)


@check(
    kind="invariant",
    title="The policy is the pretrained base with plans of eight steps",
    property="`build_policy` must give the pretrained base and a head for eight steps drawn from the seed, and a checkpoint of the robots must hold the policy alone, also after they have acted and been reset.",
    instrument="python -c 'from policy import *; print(build_policy(0).head)'",
)
def test_policy_is_built_as_before(submission: Submission, rng: Rng) -> None:
    seed = rng.integer(0, 1000)
    policy = Policy.from_base(replace(PolicyConfig.tiny(), horizon=HORIZON), seed=seed)
    wanted, found = policy.state_dict(prefix="policy."), submission.observe("built", seed=seed)
    expect(listed(wanted.keys() ^ found.keys()), "what a checkpoint lacks or has too many").equals("nothing")
    other = {name for name, value in wanted.items() if not torch.equal(found[name], value)}
    expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals("nothing")
    work = random_work(rng, 6, 2, HORIZON, 3, None)
    seen = submission.observe("executed", states=work.states, plans=work.plans, ended=work.ended)
    what = "what a checkpoint holds besides the policy, after actions and resets"
    expect(listed(set(seen["checkpoint"])), what).equals("nothing")


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the action.",
    instrument="debugkit.check(robots, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng, batch=random_batch(rng, 3, horizon=1))


@check(
    kind="outcome",
    title="The arm grasps in every episode, not only in the first",
    property=f"After a short fine-tuning, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes of eight robots must end with a grasp of the named block, after at most {MOST_ACTIONS:.0f} actions in the mean.",
    instrument="lab run 44",
)
def test_robots_grasp(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)
    expect(result["steps"].double().mean(), "the mean number of actions of an episode").at_most(MOST_ACTIONS)


def expect_broken_plans_to_be_forgotten(submission: Submission, rng: Rng) -> None:
    """A plan of NaN or infinity in robot 0's first episode must not reach its second one, nor other robots."""
    nan, inf = float("nan"), float("inf")
    for number, robots, how in (
        (nan, 3, {}),
        (nan, 3, {"one_by_one": True}),
        (nan, 1, {"all_at_once": True}),
        (inf, 2, {}),
        (-inf, 2, {}),
    ):
        horizon = rng.integer(3, 6)
        work = random_work(rng, 2 * horizon + 1, robots, horizon, 3, 0.2)
        work = replace(work, ended=torch.zeros_like(work.ended))
        work.ended[horizon - 1, 0] = True
        broken = work.plans.clone()
        broken[horizon - 1, 0] = number
        found, first = actions(submission, replace(work, plans=broken), **how), first_plans(work, "own")
        wanted, after = acted(work, first), f"an episode whose last plan was {number}, with {size(work)}"
        expect_equal(found[first > 0], wanted[first > 0], f"robot 0's actions in the episode after {after},")
        if robots > 1:
            expect_equal(found[:, 1:], wanted[:, 1:], f"the other robots' actions beside {after},")


def actions(submission: Submission, work: Work, *, resets: bool = True, **how: bool) -> Tensor:
    """The submission's actions, (T, B, A). `how` is passed on to the probe."""
    asked = {"states": work.states, "plans": work.plans, "decay": work.decay, **how}
    seen = submission.observe("executed", ended=work.ended if resets else None, **asked)
    for step, action in enumerate(seen["actions"]):
        expect(action, f"the actions of step {step}, with {size(work)},").has_shape(*work.plans[0, :, 0].shape)
    return torch.stack(seen["actions"])


def size(work: Work) -> str:
    """In words."""
    robots, horizon = work.plans.shape[1:3]
    return f"{robots} robot{'s' * (robots > 1)} and plans of {horizon} steps"


def source(found: Tensor, ways: Mapping[str, Tensor], robot: int, step: int) -> str:
    """Whose plans give the movement of a robot in a step."""
    for name, words in SOURCES.items():
        if (found - ways[name])[step, robot, :-1].abs().max() < EXACT:
            return words
    return "another mixture of plans"


def ways_found(evidence: Mapping[str, Any]) -> set[str]:
    """The ways to forget that were found with several robots; with one, several are the same."""
    prefix = "test_new_episode_begins_without_old_plans/way to forget with "
    return {str(value) for name, value in evidence.items() if name.startswith(prefix) and " 1 robot " not in name}


def formula_is(name: str, evidence: Mapping[str, Any]) -> bool:
    """Whether this formula gives the movements of an episode, at every size."""
    prefix = "test_arm_goes_to_the_mean_place/formula for "
    return {value for key, value in evidence.items() if key.startswith(prefix)} == {name}


@wrong_fix(
    "everyone",
    says="This makes all robots forget their plans, also those in the middle of an episode. The old plans no longer count, and neither do those that should.",
)
def recognise_everyone(evidence: Mapping[str, Any]) -> bool:
    return formula_is("weighted_mean", evidence) and ways_found(evidence) in ({"everyone"}, {"everyone_if_any"})


@wrong_fix(
    "newest_only",
    says="No robot begins with an old plan any more, because nothing is averaged any more: each arm follows its newest plan alone.",
)
def recognise_newest(evidence: Mapping[str, Any]) -> bool:
    return formula_is("newest_only", evidence)


@wrong_fix(
    "places_only",
    says="The sums of the places begin anew, and the sums of their weights do not. So the mean is too small, and the arm sets off to the corner of the table where both numbers are 0.",
)
def recognise_places(evidence: Mapping[str, Any]) -> bool:
    return formula_is("weighted_mean", evidence) and ways_found(evidence) == {"places_only"}


@wrong_fix(
    "by_number",
    says="As an index, `ended` must be a mask. Its zeros and ones as whole numbers are the numbers of two robots: 0 forgets where an episode goes on, 1 where one has ended, and nobody else ever does.",
)
def recognise_numbers(evidence: Mapping[str, Any]) -> bool:
    return formula_is("weighted_mean", evidence) and ways_found(evidence) == {"by_number"}
