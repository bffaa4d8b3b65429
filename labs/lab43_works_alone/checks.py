"""Requirements for an action queue of several robots. Runs in the grader's process; judges data, and never sees the code.

The reference takes entry t of the queue from step t of every robot's plan. Plans are drawn here, all different, and given
to the queue as the policy's answers, so each action that comes out names the robot and the step that it was planned for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    expect_equal,
    expect_image_and_instruction_to_matter,
    expect_success_rate,
    listed,
    random_batch,
)
from labs.vla.policy import Policy
from labs.vla.rollout import rollout

ACTION_STEPS, MAX_STEP = 2, 0.1
FIRST_SEED, DEFAULT_EPISODES = 10_000, 50
LARGEST = 0.25
"""The largest drawn movement, in metres: some have to be shortened, and others must not be."""
EPISODES, TOGETHER = 48, 8
SUCCESS_BAR = 0.8
EXACT = 1e-6
"""In metres."""
CIRCLE = torch.tensor([[0.0, 0.3, 1.0], [-0.3, 0.0, 1.0], [0.15, -0.15, 0.0]])
"""x, y and the gripper: around the table with a closed gripper, until a block is in reach."""


@check(
    kind="behaviour",
    title="Every robot executes its own plan",
    property="Entry t of the queue must hold step t of each robot's own plan, made safe, for any number of robots and of actions, also if the plans have fewer actions than `action_steps`.",
    instrument="debugkit.check(robots, batch, select=['DK305'])",
)
def test_every_robot_executes_its_own_plan(submission: Submission, rng: Rng) -> None:
    measured = []
    for robots, steps, horizon in ((3, 2, 4), (5, 3, 7), (1, 3, 5), (2, 4, 4), (rng.integer(6, 9), 1, 3), (2, 8, 4)):
        plans = random_plans(rng, robots, horizon)
        entries = submission.observe("queued", plans=plans, action_steps=steps)
        said = f"with {robots} robot{'s' * (robots > 1)} and {steps} of {horizon} actions"
        if steps > horizon:  # as many rows as `action_steps`, but of two robots
            said = f"with {robots} robots, `action_steps` {steps} and plans of {horizon} actions"
        expect(arrangement(entries, plans, steps), f"arrangement {said}")
        measured.append((entries, plans, steps, said))
    for entries, plans, steps, said in measured:
        expect(len(entries), f"the number of entries in the queue, {said},").equals(min(steps, plans.shape[1]))
        for step, entry in enumerate(entries):
            expect(entry, f"entry {step} of the queue, {said},").has_shape(len(plans), 3)
            for robot, command in enumerate(entry):
                what = f"what robot {robot} executes in step {step}, {said} (all counted from 0)"
                expect(source(command, plans), what).equals(f"step {step} of robot {robot}'s plan")


@check(
    kind="behaviour",
    title="The actions come out in their order, then there is a new plan",
    property="`select_action` must return the first actions of a plan one after the other, and then plan again, from that step's observations, by one call for all robots.",
    instrument="python -c 'from policy import *; import inspect; print(inspect.getsource(QueuedPolicy.select_action))'",
)
def test_queue_is_executed_and_refilled(submission: Submission, rng: Rng) -> None:
    for robots, steps, horizon in ((3, None, 4), (1, None, 4), (2, 3, 5), (4, 1, 2)):
        length = rng.integer(7, 10)
        plans = random_plans(rng, length, robots, horizon)
        seen = submission.observe("executed", episodes=[plans], action_steps=steps)
        every = ACTION_STEPS if steps is None else steps
        default = "the default number of actions" if steps is None else f"{every} action{'s' * (every > 1)}"
        said = f"with {robots} robot{'s' * (robots > 1)} and {default} of a plan"
        wanted_calls = [(step, robots) for step in range(0, length, every)]
        calls = [tuple(call) for call in seen["asked"][0]]
        expect(len(calls), f"the number of calls of the policy in {length} steps, {said},").equals(len(wanted_calls))
        for number, ((step, size), (wanted_step, _)) in enumerate(zip(calls, wanted_calls, strict=True), 1):
            expect(size, f"the number of robots that call {number} of the policy plans for, {said},").equals(robots)
            expect(step, f"the step whose observations call {number} of the policy gets, {said},").equals(wanted_step)
        for step, action in enumerate(seen["actions"][0]):
            expect(action, f"the action of step {step}, {said},").has_shape(robots, 3)
            for robot, command in enumerate(action):
                what = f"what robot {robot} executes in step {step} of the episode, {said},"
                planned = step % every
                found = source(command, plans[step - planned])
                expect(found, what).equals(f"step {planned} of robot {robot}'s plan")


@check(
    kind="behaviour",
    title="Commands are made safe",
    property="A movement with more than 0.1 m along an axis must be shortened to 0.1 m and keep its direction, any other must stay, and the gripper's number must become 1 above 0, else -1.",
    instrument="python -c 'from policy import *; print(safe_commands(torch.tensor([[0.3, -0.1, 0.2], [0.05, 0.0, 0.0]])))'",
)
def test_commands_are_made_safe(submission: Submission, rng: Rng) -> None:
    for axes, count in ((2, rng.integer(5, 30)), (6, 7), (1, 1)):
        commands = torch.cat([rng.normal(count, axes, std=0.1), rng.normal(count, 1)], dim=1)
        commands[0] = 0
        expect_equal(submission.call("safe_commands", commands), safe(commands), f"{count} commands along {axes} axes")


@check(
    kind="invariant",
    title="A robot acts in company as it does alone",
    property="The actions of a robot must be the same alone and beside others, and must not change if the others observe something else. The policy's plans must not be modified.",
    instrument="debugkit.trace_batches(robots)",
)
def test_company_does_not_matter(submission: Submission, rng: Rng) -> None:
    steps, length = rng.integer(2, 4), 6
    plans = random_plans(rng, length, 3, 4)
    other = torch.cat([plans[:, :1], random_plans(rng, length, 2, 4)], dim=1)
    seen = submission.observe("executed", episodes=[plans], action_steps=steps)
    expect(seen["changed"], "whether a plan of the policy was modified").is_false()
    together = first_robot(seen)
    alone = first_robot(submission.observe("executed", episodes=[plans[:, :1]], action_steps=steps))
    expect_equal(together, alone, "robot 0's actions beside two others, compared with those alone,")
    beside = first_robot(submission.observe("executed", episodes=[other], action_steps=steps))
    expect_equal(beside, together, "robot 0's actions, after the two others observed something else,")


@check(
    kind="invariant",
    title="A reset begins new episodes",
    property="After `reset()` the actions must be those of a new queue, also with another number of robots. Without it, the rest of a plan must be executed.",
    instrument="debugkit.check(robots, batch, select=['DK406'])",
)
def test_reset_begins_new_episodes(submission: Submission, rng: Rng) -> None:
    first, second = random_plans(rng, 4, 4, 5), random_plans(rng, 6, 2, 5)
    after = stacked(submission.observe("executed", episodes=[first, second], action_steps=3)["actions"][1])
    alone = stacked(submission.observe("executed", episodes=[second], action_steps=3)["actions"][0])
    expect_equal(after, alone, "the actions after `reset()`, with two robots instead of four,")
    parts = submission.observe("executed", episodes=[second[:2], second[2:]], action_steps=3, resets=False)["actions"]
    expect_equal(stacked(parts[1])[0], alone[2], "the third action, without a `reset()` before it,")


@check(
    kind="invariant",
    title="Results do not depend on the number of environments",
    property="`evaluate` must run the episodes of the seeds asked for, in rounds of `num_envs` environments, and return the same results for any number of them. The robots must execute as many actions of a plan as they were given, whatever they executed before.",
    instrument="python -c 'from policy import *; print([evaluate(build_policy(0), 12, n).distance for n in (1, 3)])'",
)
def test_evaluation_does_not_depend_on_the_number(submission: Submission, rng: Rng) -> None:
    weights = CIRCLE + rng.uniform(3, *CIRCLE.shape, low=-0.03, high=0.03)
    for asked in ({"episodes": 14, "num_envs": 4}, {"episodes": 7, "num_envs": 1}, {"episodes": 4, "num_envs": 9}, {}):
        if asked:
            asked = {**asked, "first_seed": rng.integer(500_000, 600_000)}
        seen = submission.observe("steered", weights=weights, **asked)
        episodes, num_envs = asked.get("episodes", DEFAULT_EPISODES), asked.get("num_envs", 1)
        said = f"{episodes} episodes, {num_envs} at a time," if asked else "the episodes of `evaluate(robots)`"
        wanted = steered(weights, episodes, asked.get("first_seed", FIRST_SEED))
        for name in ("success", "wrong_block", "steps"):
            expect(seen[name].tolist(), f"`{name}` of {said}").equals(wanted[name].tolist())
        expect(seen["distance"], f"the distances at the end of {said}").close_to(wanted["distance"], atol=EXACT)
        most, least = max(seen["sizes"]), min(seen["sizes"])
        expect(most, f"the largest batch of observations in {said}").equals(min(num_envs, episodes))
        expect(least, f"the smallest batch of observations in {said}").equals(episodes % num_envs or num_envs)
    for steps, asked in ((3, {"episodes": 5, "num_envs": 3}), (1, {"episodes": 3, "num_envs": 3})):
        asked = {**asked, "first_seed": rng.integer(500_000, 600_000)}
        begun = rng.integer(3, 6)
        seen = submission.observe("steered_by", weights=weights, action_steps=steps, begun=begun, asked=asked)
        wanted = steered(weights, asked["episodes"], asked["first_seed"], steps)
        said = f"{asked['episodes']} episodes of robots with `action_steps` {steps} that have executed one action"
        rounds = range(0, asked["episodes"], asked["num_envs"])
        plans = sum(-(-int(wanted["steps"][start : start + asked["num_envs"]].max()) // steps) for start in rounds)
        expect(len(seen["sizes"]), f"the number of calls of the policy in {said}").equals(plans)
        for name in ("success", "wrong_block", "steps"):
            expect(seen[name].tolist(), f"`{name}` of {said}").equals(wanted[name].tolist())
        expect(seen["distance"], f"the distances at the end of {said}").close_to(wanted["distance"], atol=EXACT)
        expect(seen["action_steps"], "`action_steps` after the evaluation").equals(steps)


@check(
    kind="invariant",
    title="The policy is the pretrained base",
    property="`build_policy` must give the pretrained base with a head drawn from the seed.",
    instrument="python -c 'from policy import *; print(build_policy(0).policy.head)'",
)
def test_policy_is_built_as_before(submission: Submission, rng: Rng) -> None:
    seed = rng.integer(0, 1000)
    wanted, found = Policy.from_base(seed=seed).state_dict(), submission.observe("built", seed=seed)
    expect(listed(wanted.keys() ^ found.keys()), "what a checkpoint lacks or has too many").equals("nothing")
    other = {name for name, value in wanted.items() if not torch.equal(found[name], value)}
    expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals("nothing")


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
    title="The arms grasp, alone and in company",
    property=f"After a short fine-tuning, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on new tables must end with a grasp of the named block, one at a time and {TOGETHER} at a time.",
    instrument="lab run 43",
)
def test_robots_grasp(submission: Submission, seed: int) -> None:
    results = submission.observe("trained_rollout", seed=seed, count=EPISODES, num_envs=[1, TOGETHER])
    for result in reversed(results):
        expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


def random_plans(rng: Rng, *shape: int) -> Tensor:
    """Plans (..., A) with movements of which some have to be shortened, and numbers of the gripper of both signs."""
    movement = rng.uniform(*shape, 2, low=-LARGEST, high=LARGEST)
    return torch.cat([movement, rng.normal(*shape, 1)], dim=-1)


def safe(commands: Tensor) -> Tensor:
    """The reference: commands (..., A) as a robot may execute them."""
    movement, gripper = commands[..., :-1], commands[..., -1:]
    shortened = movement * MAX_STEP / movement.abs().amax(dim=-1, keepdim=True)
    too_long = (movement.abs() > MAX_STEP).any(dim=-1, keepdim=True)
    return torch.cat([torch.where(too_long, shortened, movement), (gripper > 0).float() * 2 - 1], dim=-1)


def source(command: Tensor, plans: Tensor) -> str:
    """The step of the plans (B, H, A) of which a command (A,) is the safe one."""
    difference = (safe(plans) - command).abs().amax(dim=-1)  # (B, H)
    robot, step = divmod(int(difference.argmin()), plans.shape[1])
    return f"step {step} of robot {robot}'s plan" if difference.min() < EXACT else "none of the plans' actions"


ARRANGEMENTS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "own": lambda plans, steps: plans[:, :steps].transpose(0, 1),
    "whole_plan": lambda plans, _: plans.transpose(0, 1),
    "last_actions": lambda plans, steps: plans[:, -steps:].transpose(0, 1),
    "first_robot_for_all": lambda plans, steps: plans[:1, :steps].expand_as(plans[:, :steps]).transpose(0, 1),
    "first_robots_only": lambda plans, steps: plans[:steps].transpose(0, 1),
}
"""What a queue may hold, of safe plans (B, H, A): the first that fits is the one that counts."""


def arrangement(entries: list[Tensor], plans: Tensor, steps: int) -> str:
    """The arrangement that gives the entries of a queue."""
    for name, arrange in ARRANGEMENTS.items():
        wanted = list(arrange(safe(plans), steps))
        if len(wanted) == len(entries) and all(map(same, entries, wanted)):
            return name
    return "another"


def same(found: Tensor, wanted: Tensor) -> bool:
    """Whether an entry has the shape and the numbers of another."""
    return found.shape == wanted.shape and bool(((found - wanted).abs() < EXACT).all())


def stacked(actions: list[Tensor]) -> Tensor:
    """The actions (T, B, A) of an episode, each of which must have the first one's shape."""
    for step, action in enumerate(actions):
        expect(action, f"the action of step {step}").has_shape(*actions[0].shape)
    return torch.stack(actions)


def first_robot(seen: Mapping[str, Any]) -> Tensor:
    """Robot 0's actions (T, A) in the first episode."""
    return stacked(seen["actions"][0])[:, 0]


def steered(weights: Tensor, episodes: int, first_seed: int, steps: int = ACTION_STEPS) -> dict[str, Tensor]:
    """The reference: what these episodes give with a policy whose plans are linear in the state, `steps` of each."""

    def predict(batch: Mapping[str, Tensor]) -> Tensor:
        return safe((batch["state"][:, None, :, None] * weights).sum(dim=2))

    policy = Policy.from_base()
    result = rollout(policy, episodes=episodes, first_seed=first_seed, execute=steps, predict=predict)
    return {name: torch.from_numpy(getattr(result, name)) for name in ("success", "wrong_block", "distance", "steps")}


def arrangements(evidence: Mapping[str, Any]) -> set[str]:
    """The arrangements with three and with five robots; with fewer, several are the same."""
    prefix = "test_every_robot_executes_its_own_plan/arrangement with"
    return {str(value) for name, value in evidence.items() if name.startswith((f"{prefix} 3", f"{prefix} 5"))}


@wrong_fix(
    "whole_plan",
    says="The queue holds the whole plan. The robots execute all of it before they look again, whatever `action_steps` is.",
)
def recognise_whole_plan(evidence: Mapping[str, Any]) -> bool:
    return arrangements(evidence) == {"whole_plan"}


@wrong_fix(
    "last_actions",
    says="The queue holds the last actions of each plan, not the first. They were planned for a place that the robot has not reached.",
)
def recognise_last_actions(evidence: Mapping[str, Any]) -> bool:
    return arrangements(evidence) == {"last_actions"}


@wrong_fix(
    "first_robot_for_all",
    says="All robots execute the plan of robot 0. The shapes are correct, and a single robot is too.",
)
def recognise_first_robot(evidence: Mapping[str, Any]) -> bool:
    return arrangements(evidence) == {"first_robot_for_all"}


@wrong_fix(
    "first_robots_only",
    says="`[:action_steps]` on (B, H, A) selects robots, not steps: the whole plan of the first robots is kept, and the others get no action.",
)
def recognise_first_robots(evidence: Mapping[str, Any]) -> bool:
    return arrangements(evidence) == {"first_robots_only"}
