"""Requirements for the robots' formats. Runs in the grader's process; judges data, and never sees the code.

States and actions are drawn in the policy's convention and written down as each robot would (`labs.two_robots`). What a
submission makes of the recordings must be what the robots did, and what the robots do must be what a policy planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    TOLERANCE,
    expect_equal,
    expect_image_and_instruction_to_matter,
    random_batch,
    relative_error,
)
from labs.two_robots import ROBOTS, executed, recorded, reported
from labs.vla.dataset import Frames
from labs.vla.language import COLOURS, INSTRUCTION_TEMPLATES
from labs.vla.policy import Policy
from labs.vla.training import fit

EPISODES = 50
SUCCESS_BAR = 0.8
STEPS, FRAMES = 3, 40
SAME, OPPOSITE, MAGNITUDE, RECORDED, ANOTHER = "the same", "the opposite", "its magnitude", "as recorded", "another"
"""What a gripper's numbers are, compared with what they have to be."""
ENDS = ((0.0, 1.0), (0.0, 255.0), (0.2, 0.9))
"""Commands, open and closed, of other robots; the first are cell's the other way round."""
LIKE_BENCH = (-1.5, 1.25)
"""Commands, open and closed, of another robot: as bench's, from below 0 to above 0."""
FAR = 3.0
"""How far beyond -1 and +1 some plans go."""


@check(
    kind="behaviour",
    title="Open is open in the mixture",
    property="Whichever robot recorded it, a gripper that opens must have the action -1 in the mixture, one that closes +1, and half open must be 0. Where an entry's `gripper` is (0.0, 1.0), the command 0 is open and 1 closed.",
    instrument="python -c 'from policy import *; from labs.two_robots import recordings; print(mixture({r: recordings(r, 4, 46) for r in FORMATS}).action[..., 2])'",
)
def test_open_is_open_in_the_mixture(submission: Submission, rng: Rng) -> None:
    cases = [random_frames(rng, {"bench": 5, "cell": 5}), *(random_frames(rng, {robot: 3}) for robot in ROBOTS)]
    compared = []
    for did, raw in cases:
        mixture = submission.observe("mixed", recorded=raw)
        said = listed_sizes({robot: rows(own) for robot, own in raw.items()})
        expect(mixture["action"], f"the mixture's actions, of {said},").has_shape(sum(map(rows, raw.values())), 4, 3)
        parts = mixture["action"][..., 2].split([rows(own) for own in raw.values()])
        for (robot, own), found in zip(did.items(), parts, strict=True):
            relation = relate(found, own["action"][..., 2], raw[robot]["action"][..., 2])
            compared.append((robot, relation))
            expect(relation, f"mixture of {robot}")
    for robot, relation in compared:
        expect(relation, f"the gripper in the mixture's frames of {robot}, compared with what {robot} did,").equals(
            SAME
        )
    for ends, seen in read_as_open_and_closed(submission, rng):
        found = seen["action"][..., 2]
        expect_equal(found, seen["did"], f"the gripper in the mixture of a robot whose entry has `gripper={ends}`")


@check(
    kind="behaviour",
    title="Open is open on the robot",
    property="Where a plan says -1, each robot's gripper must open, at +1 it must close, and 0 is half way. Beyond, the command must stay at the end. Where an entry's `gripper` is (0.0, 1.0), the command 0 is open and 1 closed.",
    instrument='python -c \'from policy import *; from labs.two_robots import executed; c = FORMATS["cell"].command(torch.tensor([0.0, 0.0, -1.0])); print(c, executed("cell", c))\'',
)
def test_open_is_open_on_the_robot(submission: Submission, rng: Rng) -> None:
    compared, limited = [], []
    for robot, size, horizon in ((ROBOTS[0], 3, 4), (ROBOTS[1], 3, 4), (ROBOTS[0], 1, 7), (ROBOTS[1], 1, 1)):
        plan = rng.uniform(size, horizon, 3, low=-1.0, high=1.0)
        done = executed(robot, commanded(submission, rng, robot, plan))
        relation = relate(done[..., 2], plan[..., 2], None)
        compared.append((robot, relation))
        expect(relation, f"robot {robot}")
        plan[..., 2] *= FAR
        limited.append((robot, plan, executed(robot, commanded(submission, rng, robot, plan))))
    for robot, relation in compared:
        expect(relation, f"what {robot}'s gripper does, compared with the plan,").equals(SAME)
    for robot, plan, done in limited:
        wanted = plan[..., 2].clamp(-1, 1)
        expect_equal(done[..., 2], wanted, f"what {robot}'s gripper does for plans beyond -1 and +1")
    for ends, seen in read_as_open_and_closed(submission, rng):
        found, wanted = seen["command"][..., 2], seen["commands"]
        expect_equal(found, wanted, f"the gripper's commands to a robot whose entry has `gripper={ends}`")


@check(
    kind="behaviour",
    title="What was recorded is what is executed",
    property="If the policy plans what is in the mixture, each robot must get the commands that it recorded.",
    instrument="python -c 'from policy import *; from labs.two_robots import recordings; r = {name: recordings(name, 2, 46) for name in FORMATS}; plans = torch.from_numpy(mixture(r).action).chunk(2); print({name: FORMATS[name].command(plan)[0] - torch.from_numpy(r[name].action[0]) for name, plan in zip(r, plans)})'",
)
def test_recordings_come_back(submission: Submission, rng: Rng) -> None:
    _, raw = random_frames(rng, dict.fromkeys(ROBOTS, rng.integer(2, 6)))
    mixture = submission.observe("mixed", recorded=raw)
    for robot, plan in zip(raw, mixture["action"].chunk(len(raw)), strict=True):
        command, wanted = commanded(submission, rng, robot, plan), raw[robot]["action"]
        expect_equal(command[..., 2], wanted[..., 2], f"the gripper's commands for {robot}'s own recordings")
        expect_equal(command[..., :2], wanted[..., :2], f"the movements for {robot}'s own recordings")


@check(
    kind="behaviour",
    title="Places and movements are in metres on the table",
    property="In the mixture and on the way to each robot, movements must be in metres, with y downwards, and not limited.",
    instrument="python -c 'from policy import *; print(FORMATS[\"cell\"].action(torch.tensor([10.0, 10.0, 0.0])))'",
)
def test_movements_are_in_metres(submission: Submission, rng: Rng) -> None:
    did, raw = random_frames(rng, dict.fromkeys(ROBOTS, rng.integer(2, 6)))
    mixture = submission.observe("mixed", recorded=raw)
    for robot, found in zip(raw, mixture["action"].chunk(len(raw)), strict=True):
        expect_equal(found[..., :2], did[robot]["action"][..., :2], f"the movements in the mixture's frames of {robot}")
        plan = rng.normal(2, 3, 3)
        done = executed(robot, commanded(submission, rng, robot, plan))
        expect_equal(done[..., :2], plan[..., :2], f"the movements of {robot}, compared with the plan,")


@check(
    kind="behaviour",
    title="States are in the policy's convention",
    property="In the mixture and on each robot, the policy's state must be the place in metres and the gripper, open at -1. All else that a robot observes must reach the policy unchanged.",
    instrument="python -c 'from policy import *; print(FORMATS[\"cell\"].state(torch.tensor([50.0, 20.0, 80.0])))'",
)
def test_states_are_in_the_convention(submission: Submission, rng: Rng) -> None:
    did, raw = random_frames(rng, dict.fromkeys(ROBOTS, rng.integer(2, 6)))
    states = submission.observe("mixed", recorded=raw)["state"].chunk(len(raw))
    for (robot, own), found in zip(did.items(), states, strict=True):
        expect_equal(found, own["state"], f"the states in the mixture's frames of {robot}")
        batch, plan = random_batch(rng, rows(own)), rng.normal(rows(own), 4, 3)
        observed = {**batch, "state": raw[robot]["state"]}
        seen = submission.observe("driven", robot=robot, observed=observed, plan=plan)
        expect_equal(seen["received"]["state"], own["state"], f"the states that the policy of {robot} receives")
        for name in observed.keys() - {"state"}:
            expect(seen["received"].get(name), f"the `{name}` that the policy of {robot} receives").equals(batch[name])
        expect(seen["observed"]["state"], f"the state that {robot} reported, afterwards,").equals(observed["state"])
        expect(seen["plan"], f"the policy's plan for {robot}, afterwards,").equals(plan)


@check(
    kind="invariant",
    title="Both robots have the same share",
    property="The mixture must have the first frames of each robot, as many as the shortest recording has, with their images, instructions and padding. The recordings must not be modified.",
    instrument='python -c \'from policy import *; from labs.two_robots import recordings; print(len(mixture({"cell": recordings("cell", 4, 46), "bench": recordings("bench", 9, 46)})))\'',
)
def test_mixture_is_complete(submission: Submission, rng: Rng) -> None:
    for sizes in ({"bench": 4, "cell": 7}, {"cell": 3, "bench": 2}, {"cell": 5}):
        _, raw = random_frames(rng, sizes)
        mixture, each = submission.observe("mixed", recorded=raw), min(sizes.values())
        said = listed_sizes(sizes)
        found = {
            robot: sum(text in own["instruction"] for text in mixture["instruction"]) for robot, own in raw.items()
        }
        for robot, count in found.items():
            expect(count, f"frames of {robot} in the mixture of {said}").equals(each)
        wanted = [text for own in raw.values() for text in own["instruction"][:each]]
        expect(mixture["instruction"] == wanted, f"whether the mixture of {said} is in order").is_true()
        for name in ("image", "action_is_pad"):
            whole = torch.cat([own[name][:each] for own in raw.values()])
            expect(mixture[name], f"the `{name}` of the mixture of {said}").equals(whole)
        for name in ("state", "action"):
            shape = (each * len(raw), *next(iter(raw.values()))[name].shape[1:])
            expect(mixture[name], f"the `{name}` of the mixture of {said}").has_shape(*shape)
        for robot, own in raw.items():
            for name in ("state", "action"):
                after = mixture["recorded"][robot][name]
                expect(after, f"the recorded `{name}` of {robot}, afterwards,").equals(own[name])


@check(
    kind="invariant",
    title="An entry converts numbers of any shape",
    property="The conversions of an entry must take (..., 3), convert each number triple by itself, and not modify what they get. They must follow `axes`, `origin` and `fingers` of the entry, for any robot.",
    instrument='python -c \'from policy import *; print(FORMATS["cell"].state(torch.tensor([50.0, 20.0, 80.0])), FORMATS["cell"].action(torch.zeros(2, 4, 3)).shape)\'',
)
def test_entries_convert_any_shape(submission: Submission, rng: Rng) -> None:
    for robot in ROBOTS:
        for name in ("state", "action", "command"):
            numbers = rng.uniform(2, 3, 3, low=-1.0, high=1.0)
            seen = submission.observe("converted_alone", robot=robot, conversion=name, numbers=numbers)
            said = f"`{name}` of {robot}'s entry"
            expect(seen["given"], f"the numbers given to {said}, afterwards,").equals(numbers)
            expect(seen["whole"], f"what {said} gives for (2, 3, 3)").has_shape(2, 3, 3)
            expect(seen["empty"], f"what {said} gives for (0, 3)").has_shape(0, 3)
            for shape, parts in (("(3, 3)", seen["rows"]), ("(3,)", seen["single"])):
                for part, wanted in zip(parts, seen["whole"].reshape(-1, *parts[0].shape), strict=True):
                    expect_equal(part, wanted, f"what {said} gives for {shape}, compared with (2, 3, 3),")
    for _ in range(2):
        axes, origin = (signed(rng, 0.2, 0.9), signed(rng, 0.2, 0.9)), (signed(rng, 0.1, 0.5), signed(rng, 0.1, 0.5))
        fingers = (drawn(rng, 0.5, 0.9), drawn(rng, 0.1, 0.3))
        entry = {"axes": axes, "origin": origin, "fingers": fingers}
        state, action = rng.uniform(5, 3, low=-1.0), rng.uniform(5, 3, low=-1.0)
        width = fingers[0] + (state[:, 2:] + 1) / 2 * (fingers[1] - fingers[0])
        reported_state = torch.cat([(state[:, :2] - torch.tensor(origin)) / torch.tensor(axes), width], dim=1)
        moved = action[:, :2] / torch.tensor(axes)
        given = {"reported": reported_state, "recorded": torch.cat([moved, action[:, 2:]], dim=1), "plan": action}
        seen = submission.observe("with_another_entry", entry=entry, **given)
        if seen is None:
            break
        said = f"a robot whose entry has axes={axes}, origin={origin} and fingers={fingers}"
        expect_equal(seen["state"], state, f"the state of {said}")
        expect_equal(seen["action"][:, :2], action[:, :2], f"the movements in the actions of {said}")
        expect_equal(seen["command"][:, :2], moved, f"the movements in the commands of {said}")


@check(
    kind="invariant",
    title="Fine-tuning is as before",
    property="`fine_tune` must train the pretrained base on the mixture, with head and batches drawn from the seed, report every step, and return the policy in evaluation mode.",
    instrument="lab run 46",
)
def test_fine_tuning_is_as_before(submission: Submission, rng: Rng) -> None:
    seed, observed = rng.integer(0, 1000), random_batch(rng, 3)
    seen = submission.observe("fine_tuned", count=FRAMES, seed=seed, steps=STEPS, observed=observed)
    mixture = seen["mixture"]
    arrays = {name: mixture[name].numpy() for name in ("image", "state", "action", "action_is_pad")}
    policy = Policy.from_base(seed=seed)
    losses = fit(policy, Frames(instruction=tuple(mixture["instruction"]), **arrays), steps=STEPS, seed=seed)
    wanted = torch.tensor([[float(step), loss] for step, loss in enumerate(losses)])
    expect_equal(seen["losses"], wanted, "the steps and losses that were reported")
    expect(seen["training"], "whether the policy is in training mode").is_false()
    for name, who in (("predicted", "policy"), ("again", "policy that was fine-tuned without `on_step`")):
        expect_equal(seen[name], policy.predict(observed), f"what the {who} predicts")


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change a robot's commands.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="One policy grasps with both robots",
    property=f"After a short fine-tuning on both robots' recordings, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes of each robot must end with a grasp of the named block.",
    instrument="lab run 46",
)
def test_both_robots_grasp(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, count=EPISODES)
    expect(sorted(result), "the robots").equals(sorted(ROBOTS))
    for robot in ROBOTS:
        expect(result[robot], f"the successes of {robot}").has_shape(EPISODES)
        expect(result[robot].double().mean(), f"the success rate of {robot}").at_least(SUCCESS_BAR)


def relate(found: Tensor, wanted: Tensor, raw: Tensor | None) -> str:
    """What `found` is, in words."""
    candidates = [(SAME, wanted), (OPPOSITE, -wanted), (MAGNITUDE, wanted.abs())]
    if raw is not None:
        candidates.append((RECORDED, raw))
    return next((name for name, value in candidates if relative_error(found, value) < TOLERANCE), ANOTHER)


def commanded(submission: Submission, rng: Rng, robot: str, plan: Tensor) -> Tensor:
    """A robot's commands for a policy's plan, whatever it observes."""
    state = reported(robot, rng.uniform(len(plan), 3))
    observed = {**random_batch(rng, len(plan)), "state": state}
    command = submission.observe("driven", robot=robot, observed=observed, plan=plan)["command"]
    expect(command, f"the commands of {robot}").has_shape(*plan.shape)
    return command


def read_as_open_and_closed(submission: Submission, rng: Rng) -> list[tuple[tuple[float, float], dict[str, Any]]]:
    """What the mixture and the driver make of robots whose entry has each `gripper` of `ENDS`.

    `did` is what the mixture must have, and `commands` what the robot must get. Empty where a submission describes
    grippers in its own way: where not even `LIKE_BENCH` is read as (open, closed).
    """
    seen = []
    for ends in (LIKE_BENCH, *ENDS):
        did, raw = random_frames(rng, {"bench": 3})
        grip = did["bench"]["action"][..., 2]
        raw["bench"]["action"][..., 2] = commands = ends[0] + (grip + 1) / 2 * (ends[1] - ends[0])
        observed = {**random_batch(rng, 3), "state": raw["bench"]["state"]}
        given = {"recorded": raw["bench"], "observed": observed, "plan": did["bench"]["action"]}
        found = submission.observe("described", gripper=ends, **given)
        if found is None:
            return []
        seen.append((ends, {**found, "did": grip, "commands": commands}))
    (_, first), *others = seen
    pairs = ((first["action"][..., 2], first["did"]), (first["command"][..., 2], first["commands"]))
    return others if all(relative_error(found, wanted) < TOLERANCE for found, wanted in pairs) else []


def drawn(rng: Rng, low: float, high: float) -> float:
    """A number with two decimals."""
    return round(float(rng.uniform(1, low=low, high=high)), 2)


def signed(rng: Rng, low: float, high: float) -> float:
    """A number of either sign, with two decimals."""
    return drawn(rng, low, high) * (2 * rng.integer(0, 2) - 1)


def listed_sizes(sizes: Mapping[str, int]) -> str:
    """How many frames of each robot, in words."""
    return " and ".join(f"{size} frames of {robot}" for robot, size in sizes.items())


def rows(frames: Mapping[str, Any]) -> int:
    """How many frames there are."""
    return len(frames["state"])


def random_frames(rng: Rng, sizes: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What each robot did, in the policy's convention, and its recordings; no two sentences are the same."""
    did, raw = {}, {}
    for robot, size in sizes.items():
        place = rng.uniform(size, 2)
        state = torch.cat([place, rng.uniform(size, 1, low=-1.0)], dim=-1)
        move, grip = rng.uniform(size, 4, 2, low=-0.1, high=0.1), rng.uniform(size, 4, 1, low=-1.0)
        action = torch.cat([move, grip], dim=-1)
        did[robot] = {"state": state, "action": action}
        task = rng.choice(INSTRUCTION_TEMPLATES).format(colour=rng.choice(COLOURS))
        raw[robot] = {
            "image": rng.integers(0, 256, size, 64, 64, 3).to(torch.uint8),
            "state": reported(robot, state),
            "instruction": [" ".join([task, robot, str(row)]) for row in range(size)],
            "action": recorded(robot, action),
            "action_is_pad": rng.boolean(size, 4),
        }
    return did, raw


def relations(evidence: Mapping[str, Any], where: str) -> dict[str, set[str]]:
    """What each robot's gripper is, over all cases: `mixture of` its recordings, or on the `robot`."""
    check_id = "test_open_is_open_in_the_mixture" if where == "mixture of" else "test_open_is_open_on_the_robot"
    return {
        robot: {str(value) for name, value in evidence.items() if name.startswith(f"{check_id}/{where} {robot}")}
        for robot in ROBOTS
    }


def are(found: Mapping[str, set[str]], bench: str, cell: str) -> bool:
    """Whether the robots' grippers are these in all cases."""
    return found == {"bench": {bench}, "cell": {cell}}


@wrong_fix(
    "at_the_robot_only",
    says="Now cell's gripper does what the policy plans. But what the policy learns from cell's recordings is still the opposite of what cell did, so the two data sets contradict each other as before.",
)
def recognise_robot_only(evidence: Mapping[str, Any]) -> bool:
    return are(relations(evidence, "mixture of"), SAME, OPPOSITE) and are(relations(evidence, "robot"), SAME, SAME)


@wrong_fix(
    "in_the_mixture_only",
    says="Now the mixture has one convention, and the policy can learn it. On the way back the command is not turned around, so where the policy plans to close, cell opens.",
)
def recognise_mixture_only(evidence: Mapping[str, Any]) -> bool:
    return are(relations(evidence, "mixture of"), SAME, SAME) and are(relations(evidence, "robot"), SAME, OPPOSITE)


@wrong_fix(
    "flip_everywhere",
    says="This turns both robots around. Two data sets that contradict each other still do so when both change their sign.",
)
def recognise_everywhere(evidence: Mapping[str, Any]) -> bool:
    both = (relations(evidence, "mixture of"), relations(evidence, "robot"))
    return all(are(found, OPPOSITE, SAME) for found in both)


@wrong_fix(
    "the_other_data_set",
    says="Now the data sets agree with each other, but not with the policy's convention, in which -1 is open: that is what the base was pretrained with, and what the gripper in the state says.",
)
def recognise_other(evidence: Mapping[str, Any]) -> bool:
    both = (relations(evidence, "mixture of"), relations(evidence, "robot"))
    return all(are(found, OPPOSITE, OPPOSITE) for found in both)


@wrong_fix(
    "magnitude",
    says="The magnitude of a command no longer says whether the gripper opens or closes: fully open and fully closed are the same number.",
)
def recognise_magnitude(evidence: Mapping[str, Any]) -> bool:
    found = relations(evidence, "mixture of")
    return MAGNITUDE in found["cell"] or MAGNITUDE in found["bench"]


@wrong_fix(
    "one_data_set",
    says="Without the other robot's recordings there is no contradiction, and no reason to mix. The policy has half of the data, and the robot that was left out still gets commands in the wrong direction.",
)
def recognise_one_data_set(evidence: Mapping[str, Any]) -> bool:
    counts = {
        name: value
        for name, value in evidence.items()
        if name.startswith("test_mixture_is_complete/frames of ") and " and " in name
    }
    return 0 in counts.values() and len(set(counts.values())) > 1
