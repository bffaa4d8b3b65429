"""What must hold for the project. Runs in the grader's process; judges data, and never sees the code.

The reference is the healthy policy itself: built from the seed, trained for the same few updates, its weights averaged
by the definition in `average.py`.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from labs.grading import Rng, Submission, check, expect
from labs.invariants import expect_equal, expect_success_rate, listed, random_batch
from labs.reference_training import train_step
from labs.vla.dataset import Frames, batches, demonstrations
from labs.vla.normalization import ActionStatistics
from labs.vla.policy import Policy, PolicyConfig
from labs.vla.randomness import private_randomness
from labs.vla.training import learning_rate_at

EPISODES = 50
SUCCESS_BAR = 0.85
HELD_OUT_SEED = 970_000
SHIPPED: dict[str, Any] = {
    "seed": 97,
    "policy": {"horizon": 4, "head": "regression", "compile": False},
    "data": {"controller_units": 100, "held_out": 256},
    "train": {"steps": 150, "batch_size": 64, "learning_rate": 1e-3, "log_every": 25},
    "average": {"decay": 0.95, "warm_up": True},
    "evaluation": {"execute": 2, "episodes": 50},
}
SMALL_STEP = 1e-5
"""A difference between two averages, relative to the weights. One skipped update is a thousand times larger."""


def configured(rng: Rng, *, steps: int, decay: float, compiled: bool = False, warm_up: bool = False) -> dict[str, Any]:
    """A configuration of a run of a few updates, with its own seed and units."""
    return {
        **SHIPPED,
        "seed": rng.integer(0, 100_000),
        "policy": {**SHIPPED["policy"], "compile": compiled},
        "data": {"controller_units": rng.integer(20, 60), "held_out": 4},
        "train": {"steps": steps, "batch_size": 4, "learning_rate": 1e-2, "log_every": 1},
        "average": {"decay": decay, "warm_up": warm_up},
    }


@check(
    kind="behaviour",
    title="The averaged weights are the average of the trained ones",
    property="After each update of the model, the averaged weights must move towards the model's: with decay d, the policy that goes to the robot must have d times the old average and 1 - d times the new weight.",
    instrument="python -c \"import yaml, train, evaluate; c = yaml.safe_load(open('config.yaml')); c['train'] |= dict(steps=3, batch_size=4, log_every=9); r = train.train(c); p = evaluate.load(r); print(max((v - r['model'][n]).abs().max().item() for n, v in p.named_parameters()))\"",
)
def test_average_follows_the_training(submission: Submission, rng: Rng) -> None:
    _expect_average(submission, configured(rng, steps=1, decay=rng.integer(2, 8) / 10))
    _expect_average(submission, configured(rng, steps=3, decay=0.0))


@check(
    kind="behaviour",
    title="The average does not depend on how the model is wrapped",
    property="With `compile: true` the averaged weights must be the same as without it.",
    instrument="python -c \"import yaml, model; p = model.build(yaml.safe_load(open('config.yaml'))); print([next(iter(dict(m.named_parameters()))) for m in (p, model.wrapped({'policy': {'compile': False}}, p))])\"",
)
def test_average_does_not_depend_on_the_wrapper(submission: Submission, rng: Rng) -> None:
    _expect_average(submission, configured(rng, steps=1, decay=0.5, compiled=True))


def _expect_average(submission: Submission, config: dict[str, Any]) -> None:
    """The loaded policy has the average of the weights at the beginning and at the end, if its decay tells it so."""
    found = submission.observe("short_run", config=config)
    start = dict(reference(config).named_parameters())
    steps, decay = config["train"]["steps"], config["average"]["decay"]
    said = f"a run of {steps} update{'s' * (steps > 1)} with decay {decay}"
    wrong = set()
    for name, before in start.items():
        after = found["model"].get(name)
        expect(after is not None, f"whether `model` in the checkpoint has {name}").is_true()
        wanted = torch.lerp(after, before.detach(), decay)
        if not torch.allclose(found["loaded"][name], wanted, rtol=0, atol=SMALL_STEP):
            wrong.add(name)
    expect(listed(wrong), f"the weights of the loaded policy that are not the average, after {said},").equals("nothing")


@check(
    kind="behaviour",
    title="A policy from a checkpoint has the statistics it was trained with",
    property="The policy that `load` returns must convert actions with the statistics of its training data, which it must take from the checkpoint and not from the data.",
    instrument="python -c \"import yaml, data, train, evaluate; c = yaml.safe_load(open('config.yaml')); c['train'] |= dict(steps=3, batch_size=4, log_every=9); p = evaluate.load(train.train(c)); print(p.action_statistics.mean, data.statistics(data.training_frames(c)).mean)\"",
)
def test_statistics_come_with_the_checkpoint(submission: Submission, rng: Rng) -> None:
    config = configured(rng, steps=rng.integer(1, 4), decay=0.5)
    found = submission.observe("short_run", config=config)
    wanted = statistics_of(config)
    for name in ("mean", "std"):
        key = f"action_statistics.{name}"
        expect_equal(found["loaded"][key], getattr(wanted, name), f"the {name} of the actions in the loaded policy")
    expect(found["frames_read"], "how many frames of training data `load` read").equals(0)


@check(
    kind="behaviour",
    title="A policy from a checkpoint predicts in its own units",
    property="What the loaded policy predicts must be in the controller's units, and what the environment executes in metres.",
    instrument="python -c \"import yaml, data, train, evaluate; from labs.vla.dataset import collate; c = yaml.safe_load(open('config.yaml')); c['train'] |= dict(steps=3, batch_size=4, log_every=9); p = evaluate.load(train.train(c)); f = data.held_out_frames(c); print(p.predict(collate(f, range(99))).std((0, 1)), f.action.std((0, 1)))\"",
)
def test_policy_of_a_checkpoint_predicts_in_its_units(submission: Submission, rng: Rng) -> None:
    config, batch = configured(rng, steps=1, decay=0.5), random_batch(rng, 3)
    found = submission.observe("loaded_prediction", config=config, batch=batch)
    policy = reference(config)
    weights = {name: value for name, value in found["state"].items() if name in dict(policy.named_parameters())}
    policy.load_state_dict(weights, strict=False)
    wanted = policy.eval().predict(batch)
    expect_equal(found["action"], wanted, "the chunk that the loaded policy predicts")
    factor = torch.tensor([1.0 / config["data"]["controller_units"]] * 2 + [1.0])
    expect_equal(found["metres"], wanted * factor, "the chunk that the environment executes")


@check(
    kind="invariant",
    title="An average of weights is what average.py says",
    property="The average must follow the formula and the warm-up in `average.py`, leave frozen weights and the model alone, and need no gradient.",
    instrument='python -c "import torch, average; m = torch.nn.Linear(1, 1); a = average.WeightAverage(m, .9); a.update(m); print(a.state(), a.decay_now())"',
)
def test_average_is_as_described(submission: Submission, rng: Rng) -> None:
    for decay, warm_up, frozen in ((rng.integer(3, 9) / 10, False, []), (0.9, True, [1])):
        start = [rng.normal(3), rng.normal(2, 2)]
        way = [[rng.normal(3), start[1] if 1 in frozen else rng.normal(2, 2)] for _ in range(4)]
        found = submission.observe("averaged", start=start, way=way, decay=decay, warm_up=warm_up, frozen=frozen)
        average = [value.clone() for value in start]
        said = f"with decay {decay} and {'a' if warm_up else 'no'} warm-up"
        for step, weights in enumerate(way):
            now = min(decay, (1 + step) / (10 + step)) if warm_up else decay
            average = [torch.lerp(new, old, now) for old, new in zip(average, weights, strict=True)]
            for mine, wanted in zip(found["averages"][step], average, strict=True):
                expect_equal(mine, wanted, f"the average {said} after update {step + 1}")
        for mine, wanted in zip(found["weights"], way[-1], strict=True):
            expect_equal(mine, wanted, "the model's own weights after the updates")
        expect(found["needs_grad"], "whether an averaged weight requires a gradient").equals(False)


@check(
    kind="invariant",
    title="A checkpoint without a weight is refused",
    property="If the averaged weights lack a part of the policy, `load` must raise an error.",
    instrument="python -c \"import yaml, train, evaluate; c = yaml.safe_load(open('config.yaml')); c['train'] |= dict(steps=3, batch_size=4, log_every=9); r = train.train(c); [r['average'].pop(n) for n in list(r['average']) if 'head' in n]; evaluate.load(r)\"",
)
def test_incomplete_checkpoint_is_refused(submission: Submission, rng: Rng) -> None:
    config = configured(rng, steps=1, decay=0.5)
    for part in ("head", "proprioception"):
        raised = submission.observe("loaded_without", config=config, part=part)
        expect(raised != "none", f"whether `load` refuses averaged weights without those of {part}").is_true()


@check(
    kind="invariant",
    title="The data are in the controller's units",
    property="Movements must be in controller units, gripper commands unchanged, and the statistics those of all steps that are no padding.",
    instrument="python -c \"import yaml, data; c = yaml.safe_load(open('config.yaml')); f = data.held_out_frames(c); print(f.action[0], data.statistics(f).std)\"",
)
def test_data_are_in_units(submission: Submission, rng: Rng) -> None:
    config = configured(rng, steps=rng.integer(3, 9), decay=0.5)
    config["data"]["held_out"] = rng.integer(5, 20)
    found = submission.observe("data", config=config)
    for name, frames in (("training", training_frames(config)), ("held-out", held_out_frames(config))):
        expect_equal(found[f"{name}_actions"], torch.from_numpy(frames.action), f"the actions of the {name} frames")
        expect(found[f"{name}_padding"], f"the padding of the {name} frames").equals(
            torch.from_numpy(frames.action_is_pad)
        )
    wanted = statistics_of(config)
    expect_equal(found["mean"], wanted.mean, "the mean of the actions")
    expect_equal(found["std"], wanted.std, "the standard deviation of the actions")


@check(
    kind="invariant",
    title="The training is the same as before",
    property="The trained weights, the checkpoint's entries and the log must be those of the run as it was: only the average and what is loaded may change.",
    instrument="python train.py",
)
def test_training_is_as_before(submission: Submission, rng: Rng) -> None:
    config = configured(rng, steps=3, decay=0.5)
    found = submission.observe("short_run", config=config)
    policy, losses = trained(config)
    expect(
        {"average", "config", "model"} <= set(found["entries"]), "whether the checkpoint has its three entries"
    ).is_true()
    expect(found["config"], "`config` in the checkpoint").equals(config)
    different = {
        name
        for name, value in policy.state_dict().items()
        if name not in found["model"] or not torch.allclose(found["model"][name], value, rtol=1e-3, atol=1e-5)
    }
    expect(listed(different), "what differs in `model` from the same run as it was").equals("nothing")
    expect(found["training"], "whether the loaded policy is in training mode").equals(False)
    reported = submission.observe("log", config=config)
    expect([step for step, _, _ in reported], "the steps in the log").equals([1, 2, 3])
    expect_equal(torch.tensor([one for _, one, _ in reported]), torch.tensor(losses), "the losses in the log")


@check(
    kind="invariant",
    title="The held-out loss is measured in evaluation mode",
    property="Each update must run in training mode, and the held-out loss in evaluation mode and without gradients.",
    instrument="python train.py",
)
def test_modes_of_the_run(submission: Submission, rng: Rng) -> None:
    config = configured(rng, steps=2, decay=0.5)
    seen = submission.observe("calls", config=config)
    expect(seen, "mode and gradients of the policy's calls").equals([[True, True], [False, False]] * 2)


@check(
    kind="invariant",
    title="The settings are those of the run",
    property="`config.yaml` must have the settings of the run in the brief: they are not the fault, and other runs are compared with it.",
    instrument="lab diff 97",
)
def test_settings_are_kept(submission: Submission) -> None:
    found = submission.observe("settings")
    for group, values in SHIPPED.items():
        expect(found.get(group), f"`{group}` in config.yaml").equals(values)


@check(
    kind="outcome",
    title="The arm reaches the block and grasps it",
    property=f"After the run of `config.yaml`, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on new tables must end with a grasp of the named block.",
    instrument="lab run 97",
)
def test_robot_grasps(submission: Submission, seed: int) -> None:
    result = submission.observe("success", seed=seed, episodes=EPISODES)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


def reference(config: dict[str, Any]) -> Policy:
    """The policy at the beginning of a run."""
    sizes = replace(PolicyConfig.tiny(), horizon=config["policy"]["horizon"])
    policy = Policy.from_base(sizes, head=config["policy"]["head"], seed=config["seed"])
    policy.action_statistics = statistics_of(config)
    return policy


def trained(config: dict[str, Any]) -> tuple[Policy, list[float]]:
    """The policy at the end of a run, and the loss of each update."""
    policy, settings = reference(config), config["train"]
    optimizer = torch.optim.AdamW(policy.parameters(), lr=settings["learning_rate"], betas=(0.9, 0.95))
    losses = []
    with private_randomness(config["seed"]):
        stream = batches(training_frames(config), settings["batch_size"], settings["steps"], config["seed"])
        for step, batch in enumerate(stream):
            optimizer.param_groups[0]["lr"] = learning_rate_at(step, settings["steps"], settings["learning_rate"])
            losses.append(train_step(policy, optimizer, batch))
    return policy, losses


def training_frames(config: dict[str, Any]) -> Frames:
    """The frames of a run, in controller units."""
    settings = config["train"]
    return _in_units(config, settings["steps"] * settings["batch_size"], config["seed"])


def held_out_frames(config: dict[str, Any]) -> Frames:
    """The frames that are never trained on."""
    return _in_units(config, config["data"]["held_out"], HELD_OUT_SEED)


@functools.cache
def _demonstrations(count: int, seed: int, horizon: int) -> Frames:
    return demonstrations(count, seed, horizon=horizon)


def _in_units(config: dict[str, Any], count: int, seed: int) -> Frames:
    frames = _demonstrations(count, seed, config["policy"]["horizon"])
    units = np.float32([config["data"]["controller_units"]] * 2 + [1.0])
    return replace(frames, action=frames.action * units)


def statistics_of(config: dict[str, Any]) -> ActionStatistics:
    """Those of the actions of a run that are no padding."""
    frames = training_frames(config)
    rows = frames.action[~frames.action_is_pad].astype(np.float64)
    return ActionStatistics(torch.from_numpy(rows.mean(axis=0)).float(), torch.from_numpy(rows.std(axis=0)).float())
