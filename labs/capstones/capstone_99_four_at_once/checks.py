"""What must hold for arms that work at once. Runs in the grader's process, without the learner's files.

The references are written here from the project's docstrings. Each fault is judged on inputs on which the other faults
have no effect: pictures by what the policy is given, commands and results with a policy that does not look at pictures,
and results with arms that are turned alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect
from labs.project_settings import expect_settings
from labs.vla.dataset import Batch, demonstrations
from labs.vla.language import COLOURS, INSTRUCTION_TEMPLATES, tokenize
from labs.vla.tabletop import Tabletop

HORIZON = 4
SMALLEST_STD = 1e-3
BOUND = 1e-4
"""The largest difference of two commands or actions that are the same up to rounding."""
SUCCESS_BAR = 0.75
APART = 0.1
"""Of an arm's 24 episodes, rounding may decide one or two."""

SETTINGS = {
    "seed": 99,
    "arms": {
        "north": {"gain": 0.35, "offset": 160, "turned": 0, "reach": 0.1, "execute": 2},
        "east": {"gain": 0.30, "offset": 5, "turned": 1, "reach": 0.02, "execute": 2},
        "south": {"gain": 0.40, "offset": 55, "turned": 2, "reach": 0.1, "execute": 4},
        "west": {"gain": 0.25, "offset": 110, "turned": 3, "reach": 0.1, "execute": 2},
    },
    "train": {"frames": 7680, "steps": 120, "batch_size": 64, "learning_rate": 1e-3, "log_every": 20},
    "evaluate": {"arms_at_once": 4, "episodes": 96, "first_seed": 990_000},
}
NAMES = ("first", "second", "third", "fourth", "fifth")


@check(
    kind="behaviour",
    title="The policy sees the picture of each arm as in training",
    property="Each channel of each picture that the policy is given must have the mean 0 and the standard deviation 1, whatever other pictures are in the batch.",
    instrument='python -c "import numpy as np, pictures; a = np.random.randint(0, 256, (4, 64, 64, 3), np.uint8) // np.array([1, 2, 4, 8]).reshape(4, 1, 1, 1).astype(np.uint8); print((pictures.standardize(a)[0] - pictures.standardize(a[:1])[0]).abs().max())"',
)
def test_picture_is_prepared_as_if_it_were_alone(submission: Submission, rng: Rng) -> None:
    for count in (1, rng.integer(2, 4), 5):
        config = cell_of(rng, range(count), execute=1)
        image = pictures(rng, count)
        if count > 1:
            image[rng.integer(0, count)] = rng.integer(0, 256)
        active = list(range(count))
        found = submission.observe("acted", config=config, steps=[observed(rng, active, image)], law=law_of(rng))
        seen = torch.cat([call["pixel_values"] for call in found["calls"]])
        said = f"the pictures that the policy is given of {count} arm{'s' * (count > 1)}"
        expect(seen, said).has_shape(count, 3, 64, 64)
        expect(seen, said).close_to(standardized(image), rtol=1e-3, atol=1e-3)


@check(
    kind="behaviour",
    title="An arm gets commands in its own frame, until its episode ends",
    property="Each active arm must execute its own plan, turned into its own frame by `turn @ movement`, also when other arms are no longer active.",
    instrument='python -c "import torch, data, cell, controller, train; arms = cell.arms_of(train.read_config()); print(controller.Controller.act.__doc__, *(arm.turn for arm in arms), sep=chr(10))"',
)
def test_command_is_in_the_frame_of_its_arm(submission: Submission, rng: Rng) -> None:
    for count in (rng.integer(2, 4), 4, 5):
        turned = [(rng.integer(0, 4) if place > 3 else place + count) % 4 for place in range(count)]
        config, law = cell_of(rng, turned), law_of(rng)
        left, active, steps = list(range(count)), [], []
        while left:
            steps += [observed(rng, list(left)) for _ in range(rng.integer(HORIZON, HORIZON + 3))]
            # The first arm leaves first, so the rows of the others change.
            left.pop(0 if len(left) == count else rng.integer(0, len(left)))
        found = submission.observe("acted", config=config, steps=steps, law=law)["commands"]
        wanted = reference_commands(config, steps, law)
        for number, (step, command) in enumerate(zip(steps, wanted, strict=True), start=1):
            active = [NAMES[arm] for arm in step["active"]]
            said = f"the commands of step {number}, when {', '.join(active)} of {count} arms are active"
            expect(found[number - 1], said).has_shape(len(active), 3)
            expect(found[number - 1], said).close_to(command, rtol=1e-3, atol=BOUND)


@check(
    kind="behaviour",
    title="Result i is that of episode i",
    property="However many arms work at once, entry i of the results must be what became of episode i, and an arm's rate that of its own episodes.",
    instrument="python -c \"import train, evaluate; c = train.read_config(); p = train.run(c); print(*(evaluate.episodes(p, {**c, 'evaluate': {**c['evaluate'], 'arms_at_once': n}})[:8] for n in (1, 4)), sep=chr(10))\"",
)
def test_result_is_that_of_its_episode(submission: Submission, rng: Rng) -> None:
    for arms, many in ((4, 4), (3, 5), (2, 1)):
        config, law = small_evaluation(rng, arms, many), sweeping(rng)
        found = submission.observe("evaluated", config=config, law=law)
        wanted = [reference_episode(config, number, law) for number in range(config["evaluate"]["episodes"])]
        said = f"of {len(wanted)} episodes of {arms} arms, {many} at once"
        for key in ("steps", "success", "wrong_block"):
            expect(found[key], f"`{key}` {said}").equals([one[key] for one in wanted])
        for place, name in enumerate(config["arms"]):
            own = [one["success"] for one in wanted[place::arms]]
            expect(found["rates"][name], f"the rate of the {name} arm {said}").close_to(sum(own) / len(own), atol=BOUND)


@check(
    kind="invariant",
    title="One call of the policy plans for the arms that need a plan",
    property="A step must call the policy at most once, with one row for each active arm that has executed its plan. An arm whose episode is over gets neither a plan nor a command.",
    instrument="python -c \"import train, evaluate; c = train.read_config(); p = train.run(c); own = p.predict; p.predict = lambda b: (print(len(b['state']), end=' '), own(b))[1]; evaluate.episodes(p, c)\"",
)
def test_one_call_plans_for_all_that_need_a_plan(submission: Submission, rng: Rng) -> None:
    for arms, many in ((4, 4), (3, 2)):
        config, law = small_evaluation(rng, arms, many), sweeping(rng)
        found = submission.observe("evaluated", config=config, law=law)
        length = [reference_episode(config, number, law)["steps"] for number in range(config["evaluate"]["episodes"])]
        said = f"in an evaluation of {len(length)} episodes of {arms} arms, {many} at once"
        expect(found["executed"], f"the number of commands that all arms execute {said}").equals(sum(length))
        expect(found["planned"], f"the number of rows of each call of the policy {said}").equals(
            reference_calls(config, length)
        )


@check(
    kind="invariant",
    title="Training has each picture alone",
    property="A run must train on the frames of all arms: each with its camera's picture, standardized alone, and the movement in the table's frame.",
    instrument="python -c \"import train, data; b = next(data.batches(train.read_config())); print(b['pixel_values'].mean(dim=(2, 3)).abs().max())\"",
)
def test_training_has_each_picture_alone(submission: Submission, rng: Rng) -> None:
    config = cell_of(rng, [rng.integer(0, 4) for _ in range(3)])
    frames, size = rng.integer(14, 20), rng.integer(4, 7)
    config["seed"] = rng.integer(0, 100_000)
    config["train"] = {**SETTINGS["train"], "frames": frames, "steps": 3, "batch_size": size}
    batches = submission.observe("trained_on", config=config)
    expect([len(batch["state"]) for batch in batches], "the sizes of a run's batches").equals([size] * 3)
    wanted = recorded(config)
    used = []
    for batch in batches[: frames // size]:
        distance = (batch["state"][:, None] - wanted["state"][None]).abs().sum(dim=-1)
        expect(distance.min(dim=1).values.max(), "the distance of the states from those of the frames").at_most(BOUND)
        index = distance.argmin(dim=1)
        used += index.tolist()
        expect(batch["pixel_values"], "the pictures of a batch").close_to(
            wanted["pixel_values"][index], rtol=1e-3, atol=1e-3
        )
        for key in ("action", "action_is_pad", "input_ids"):
            expect(batch[key].double(), f"`{key}` of a batch").close_to(wanted[key][index].double(), atol=BOUND)
    expect(len(set(used)), "the number of different frames before one is used again").equals(len(used))


@check(
    kind="invariant",
    title="The project's settings are as they were",
    property="`config.yaml` describes the four arms, the run and the evaluation that were agreed on: the fix is in the program.",
    instrument="python -c 'import train; print(train.read_config())'",
)
def test_settings_are_as_they_were(submission: Submission) -> None:
    expect_settings(submission, SETTINGS)


@check(
    kind="outcome",
    title="Four arms at once are as good as one at a time",
    property=f"After the project's run, at least {SUCCESS_BAR:.0%} of the episodes of four arms at once must end with a grasp of the named block, and no arm's rate may be more than {APART:.0%} from its rate one at a time.",
    instrument="lab run 99",
)
def test_four_at_once_are_as_good_as_one(submission: Submission, seed: int) -> None:
    rates = submission.observe("success", seed=seed)
    together = rates["4"]
    expect(sum(together.values()) / len(together), "the success rate of four arms at once").at_least(SUCCESS_BAR)
    for name, alone in rates["1"].items():
        expect(
            abs(together[name] - alone), f"the difference of the {name} arm's rates, at once and one at a time,"
        ).at_most(APART)


def cell_of(rng: Rng, turned: Sequence[int], execute: int | None = None) -> dict[str, Any]:
    """A configuration with one arm for each entry of `turned`; every camera is another one."""
    arms = {
        name: {
            "gain": rng.integer(20, 60) / 100,
            "offset": rng.integer(0, 100),
            "turned": quarters % 4,
            "reach": 0.1,
            "execute": execute or rng.integer(1, HORIZON + 1),
        }
        for name, quarters in zip(NAMES, turned, strict=False)
    }
    return {**SETTINGS, "arms": arms}


def small_evaluation(rng: Rng, arms: int, many: int) -> dict[str, Any]:
    """An evaluation of arms that are turned alike, of which one is slow."""
    config = cell_of(rng, [rng.integer(0, 4)] * arms)
    config["arms"][NAMES[rng.integer(0, arms)]]["reach"] = 0.03
    settings = {"arms_at_once": many, "episodes": 3 * arms * many // 2, "first_seed": rng.integer(0, 100_000)}
    return {**config, "evaluate": settings}


def law_of(rng: Rng) -> dict[str, Tensor]:
    """A random affine function from a state (3,) to a plan (H, 3)."""
    return {"gain": rng.normal(3, HORIZON * 3, std=0.1), "bias": rng.normal(HORIZON, 3, std=0.1)}


def sweeping(rng: Rng) -> dict[str, Tensor]:
    """Plans that circle around the middle of the table with the gripper closed: it closes at the first block it meets."""
    pace = 0.3 * rng.choice((-1.0, 1.0))
    gain = torch.zeros(3, HORIZON, 3)
    gain[0, :, 1], gain[1, :, 0] = pace, -pace
    bias = torch.stack([torch.full((HORIZON,), pace / 2), torch.full((HORIZON,), -pace / 2), torch.ones(HORIZON)], -1)
    bias[:, :2] += rng.normal(HORIZON, 2, std=0.01)
    return {"gain": gain.flatten(1), "bias": bias}


def planned(law: Mapping[str, Tensor], state: Tensor) -> Tensor:
    """The plan (H, 3) for a state (3,)."""
    return (state @ law["gain"]).unflatten(-1, law["bias"].shape) + law["bias"]


def observed(rng: Rng, active: list[int], image: Tensor | None = None) -> dict[str, Any]:
    """One step: the active arms, and a random observation of them."""
    seen = {
        "image": pictures(rng, len(active)) if image is None else image,
        "state": rng.uniform(len(active), 3),
        "instruction": [rng.choice(INSTRUCTION_TEMPLATES).format(colour=rng.choice(COLOURS)) for _ in active],
    }
    return {"active": active, "observation": seen}


def pictures(rng: Rng, count: int) -> Tensor:
    """Random pictures uint8 (N, 64, 64, 3), each with a brightness and a contrast of its own."""
    low = rng.integers(0, 120, count, 1, 1, 3)
    span = rng.integers(10, 130, count, 1, 1, 3)
    return (low + span * rng.uniform(count, 64, 64, 3)).round().to(torch.uint8)


def standardized(image: Tensor) -> Tensor:
    """Pictures uint8 (N, 64, 64, 3) as (N, 3, 64, 64), each channel of each picture by its own mean and deviation."""
    pixels = image.permute(0, 3, 1, 2).double() / 255
    flat = pixels.flatten(2)
    mean, std = flat.mean(dim=-1), flat.std(dim=-1, correction=0).clamp(min=SMALLEST_STD)
    return ((pixels - mean[..., None, None]) / std[..., None, None]).float()


def reference_commands(
    config: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], law: Mapping[str, Tensor]
) -> list[Tensor]:
    """The commands (B, 3) of the active arms at each step."""
    arms = list(config["arms"].values())
    plans: list[deque[Tensor]] = [deque() for _ in arms]
    commands = []
    for step in steps:
        for arm, state in zip(step["active"], step["observation"]["state"], strict=True):
            if not plans[arm]:
                plan = planned(law, state)
                movement = plan[:, :2] @ turn(arms[arm]["turned"]).T
                plans[arm].extend(torch.cat([movement, plan[:, 2:]], dim=-1)[: arms[arm]["execute"]])
        commands.append(torch.stack([plans[arm].popleft() for arm in step["active"]]))
    return commands


def turn(quarters: int) -> Tensor:
    """From the table's frame to that of an arm whose base is turned: a quarter turn takes (x, y) to (y, -x)."""
    cosine, sine = [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][quarters % 4]
    return torch.tensor([[cosine, sine], [-sine, cosine]])


def reference_episode(config: Mapping[str, Any], number: int, law: Mapping[str, Tensor]) -> dict[str, Any]:
    """One episode alone, without pictures: what became of it."""
    arms = list(config["arms"].values())
    arm = arms[number % len(arms)]
    table = Tabletop()
    observation, info = table.reset(seed=config["evaluate"]["first_seed"] + number)
    plan: deque[Tensor] = deque()
    steps, over = 0, False
    while not over:
        if not plan:
            plan.extend(planned(law, torch.from_numpy(observation["state"]))[: arm["execute"]])
        action = plan.popleft().numpy().copy()
        action[:2] = np.clip(action[:2], -arm["reach"], arm["reach"])
        observation, _, terminated, truncated, info = table.step(action)
        steps, over = steps + 1, terminated or truncated
    return {"success": bool(info["success"]), "wrong_block": bool(info["wrong_block"]), "steps": steps}


def reference_calls(config: Mapping[str, Any], length: Sequence[int]) -> list[int]:
    """How many rows each call of the policy has, where the episodes take these numbers of steps."""
    execute = [arm["execute"] for arm in config["arms"].values()]
    many = config["evaluate"]["arms_at_once"]
    rows = []
    for first in range(0, len(length), many):
        wave = [(length[number], execute[number % len(execute)]) for number in range(len(length))[first : first + many]]
        for step in range(max(steps for steps, _ in wave)):
            due = sum(step < steps and step % each == 0 for steps, each in wave)
            rows += [due] if due else []
    return rows


def recorded(config: Mapping[str, Any]) -> Batch:
    """All frames of a run in their order, as one batch."""
    frames = demonstrations(config["train"]["frames"], seed=config["seed"])
    arms = list(config["arms"].values())
    image = np.empty_like(frames.image)
    for number in range(len(frames)):
        arm = arms[number % len(arms)]
        image[number] = np.clip(np.rint(frames.image[number] * arm["gain"] + arm["offset"]), 0, 255)
    return {
        "pixel_values": standardized(torch.from_numpy(image)),
        "state": torch.from_numpy(frames.state),
        "input_ids": tokenize(frames.instruction, 8)[0],
        "action": torch.from_numpy(frames.action),
        "action_is_pad": torch.from_numpy(frames.action_is_pad),
    }
