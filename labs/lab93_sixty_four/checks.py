"""What must hold for a configuration with four sources. Runs in the grader's process, without the learner's files.

The reference is the order of precedence, restated as four dicts merged one over the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, random_batch
from labs.project_runs import flat, nested, numbers
from labs.vla.dataset import demonstrations
from labs.vla.policy import Policy, PolicyConfig
from labs.vla.training import fit

EXPERIMENT = "experiment=large_batch"
COMMAND_LINES = ((), (EXPERIMENT,), (EXPERIMENT, "train.batch_size=8"))
SHARED = {"batch_size": 16, "learning_rate": 1e-4, "steps": 60, "log_every": 20}
PROJECT = {"batch_size": 64, "learning_rate": 1e-3}
ROBOT = {"horizon": 4, "execute": 2}
LARGE_BATCH = {"batch_size": 128, "learning_rate": 2e-3}
OTHER_PROJECT = "defaults: [train: base, robot: tabletop, _self_]\nseed: 1\n"

STEPS = 50
LOSS_BAR = 0.65


@check(
    kind="behaviour",
    title="Three command lines compose the correct settings",
    property="The project's settings must override the shared ones, an experiment must override the project's, and the command line must override everything.",
    instrument='python -c \'from debugkit.integrations.hydra import provenance; print(provenance("conf", "config", ["experiment=large_batch"]))\'',
)
def test_three_command_lines(submission: Submission) -> None:
    seen = [submission.observe("composed", overrides=list(line))["train"] for line in COMMAND_LINES]
    wanted = [
        merged(SHARED, PROJECT),
        merged(SHARED, PROJECT, LARGE_BATCH),
        merged(SHARED, PROJECT, LARGE_BATCH, {"batch_size": 8}),
    ]
    for setting in ("batch_size", "learning_rate", "steps"):  # recorded first: a recogniser may need all three
        expect([train.get(setting) for train in seen], f"the {setting} of the three command lines")
    for line, train, correct in zip(COMMAND_LINES, seen, wanted, strict=True):
        for setting in ("batch_size", "learning_rate", "steps"):
            words = f"train.{setting} of `{' '.join(('python train.py', *line))}`"
            expect(train.get(setting), words).equals(correct[setting])


@check(
    kind="behaviour",
    title="The order holds for any settings",
    property="Whichever of the four sources sets a value, and with whatever number, the same source must win: shared groups, project, experiment, command line.",
    instrument='python -c \'from debugkit.integrations.hydra import provenance; print(provenance("conf", "config"))\'',
)
def test_order_holds_for_other_numbers(submission: Submission, rng: Rng) -> None:
    sources = random_sources(rng)
    seen = {}
    for words, chosen in LINES.items():
        line = [EXPERIMENT] if "experiment" in chosen else []
        line += [f"{name}={value}" for name, value in sources["typed"].items() if "typed" in chosen]
        project = nested(sources["project"])
        seen[words] = flat(submission.observe("composed", overrides=line, files=files_of(sources), project=project))
    expect(seen, "the settings of four command lines")
    expect(sources, "the settings of the four sources")
    for words, chosen in LINES.items():
        wanted = merged(*(sources[source] for source in ("shared", "file", "project", *chosen)))
        expect(sorted(seen[words]), f"the names of the settings {words}").equals(sorted(wanted))
        for name, value in wanted.items():
            expect(seen[words][name], f"{name} {words}").equals(value)


@check(
    kind="behaviour",
    title="The saved configuration is what ran",
    property="A run must have the losses, the printed steps and the report of the configuration that Hydra saves in the run directory.",
    instrument="python train.py train.steps=2 && cat outputs/*/*/.hydra/config.yaml",
)
def test_record_is_what_ran(submission: Submission, rng: Rng) -> None:
    project = ["train.steps=2"]
    other = [
        f"train.batch_size={rng.integer(3, 9)}",
        f"train.learning_rate={rng.integer(2, 9) / 10}",
        f"train.steps={rng.integer(11, 13)}",
        "train.log_every=5",
        "policy.head=tokens",
        "robot.horizon=3",
    ]
    for typed, words in ((project, "of the project's run"), (other, "of a run with settings from the command line")):
        seed, batch = rng.integer(0, 10_000), random_batch(rng, 3)
        run = submission.observe("trained", overrides=typed, seed=seed, batch=batch)
        wanted = flat(
            {"train": merged(SHARED, PROJECT), "policy": {"head": "regression"}, "robot": ROBOT, "seed": seed}
        )
        wanted |= {name: type(wanted[name])(value) for name, value in (one.split("=") for one in typed)}
        for name, value in wanted.items():
            expect(flat(run["filed"])[name], f"{name} in the saved configuration {words}").equals(value)
        expect(run["batch_sizes"], f"the sizes of the batches {words}").equals(
            [wanted["train.batch_size"]] * wanted["train.steps"]
        )
        expect_run(run, wanted, batch, words)


@check(
    kind="invariant",
    title="The shared groups are unchanged",
    property="A project without settings of its own must get the original shared settings.",
    instrument="lab diff 93",
)
def test_shared_groups_are_as_they_were(submission: Submission) -> None:
    seen = submission.observe("composed_by_another_project", main=OTHER_PROJECT)
    expect(seen, "what another project gets")
    for name, value in flat({"train": SHARED, "robot": ROBOT, "seed": 1}).items():
        expect(flat(seen).get(name), f"{name} of another project").equals(value)
    expect(len(flat(seen)), "the number of settings of another project").equals(len(SHARED) + len(ROBOT) + 1)


@check(
    kind="invariant",
    title="Every run has a directory of its own",
    property="Two runs must have different directories, also with the same command line, on another day or one second later, and the configuration that a run saved must be its own after later runs.",
    instrument="python train.py train.steps=2 && python train.py train.steps=2 && find . -name config.yaml -path '*.hydra*'",
)
def test_every_run_has_its_directory(submission: Submission) -> None:
    starts = (
        ("2026-05-04T09:30:15", ()),
        ("2026-05-04T09:30:16", ()),
        ("2026-05-05T09:30:15", (EXPERIMENT,)),
        ("2026-05-05T09:30:16", (EXPERIMENT,)),
    )
    runs = submission.observe("run_directories", runs=[[time, list(line)] for time, line in starts])
    expect(len(runs), "the number of runs that reached `train`").equals(len(starts))
    for later, run in enumerate(runs):
        words = f"of `{' '.join(('python train.py', *starts[later][1]))}` at {starts[later][0]}"
        for earlier in range(later):
            same = run["directory"] == runs[earlier]["directory"]
            expect(same, f"whether the run {words} has the directory of the run at {starts[earlier][0]}").is_false()
    for (time, _), run in zip(starts, runs, strict=True):
        expect(run["filed"], f"what the directory of the run at {time} has as its configuration").equals(run["given"])


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="The policy learns as fast as the project's settings allow",
    property=f"After {STEPS} steps with the project's settings, the mean loss of the last ten must be at most {LOSS_BAR}.",
    instrument="lab run 93",
)
def test_policy_learns(submission: Submission, seed: int) -> None:
    run = submission.observe("trained", overrides=[f"train.steps={STEPS}"], seed=seed)
    expect(len(run["losses"]), "the number of steps").equals(STEPS)
    expect(run["losses"][0], "the first loss").above(0.5)
    expect(sum(run["losses"][-10:]) / 10, "the final loss").at_most(LOSS_BAR)


BATCH_SIZES = "test_three_command_lines/the batch_size of the three command lines"
LEARNING_RATES = "test_three_command_lines/the learning_rate of the three command lines"
FOUR = "test_order_holds_for_other_numbers/the settings of four command lines"
SOURCES = "test_order_holds_for_other_numbers/the settings of the four sources"
OTHER = "test_shared_groups_are_as_they_were/what another project gets"


@wrong_fix(
    "self_last",
    says="The main config now overrides everything in the list: the experiment chosen on the command line no longer changes anything.",
)
def recognise_self_last(evidence: Mapping[str, Any]) -> bool:
    rates = [PROJECT["learning_rate"]] * 3
    return evidence[BATCH_SIZES] == [64, 64, 8] and evidence[LEARNING_RATES] == rates


@wrong_fix(
    "hard_coded",
    says="The number is now in Python, where no experiment and no command line can change it, and Hydra saves a different one.",
)
def recognise_hard_coded(evidence: Mapping[str, Any]) -> bool:
    return evidence[BATCH_SIZES] == [64, 64, 64] and not _project_overrides_the_command_line(evidence)


@wrong_fix(
    "merged_again",
    says="The main config is merged a second time, over the experiment and over the command line: a value on the command line has no effect.",
)
def recognise_merged_again(evidence: Mapping[str, Any]) -> bool:
    return evidence[BATCH_SIZES] == [64, 64, 64] and _project_overrides_the_command_line(evidence)


@wrong_fix(
    "shared_says_64",
    says="The shared group now has this project's number. This project gets it from there, and so does every other project that uses the group.",
)
def recognise_shared_edit(evidence: Mapping[str, Any]) -> bool:
    other = evidence.get(OTHER) or {}
    return other.get("train", {}).get("batch_size") == PROJECT["batch_size"]


@wrong_fix(
    "removed_from_the_group",
    says="The shared group no longer has these settings, so it overrides nothing. Every other project that uses the group relies on them.",
)
def recognise_removed(evidence: Mapping[str, Any]) -> bool:
    train = (evidence.get(OTHER) or {}).get("train", {})
    return "batch_size" not in train and train.get("steps") == SHARED["steps"]


@wrong_fix(
    "robot_after_the_project",
    says="The project overrides the shared training settings, but the robot's settings are still merged after it: what the project sets for the robot has no effect.",
)
def recognise_robot_last(evidence: Mapping[str, Any]) -> bool:
    sources, alone = evidence[SOURCES], evidence[FOUR]["without an override"]
    train = all(alone[name] == value for name, value in sources["project"].items() if name.startswith("train."))
    shared = all(alone[name] == sources["shared"][name] for name in ("train.steps", "robot.horizon", "robot.execute"))
    return train and shared


def _project_overrides_the_command_line(evidence: Mapping[str, Any]) -> bool:
    """Whether a value that only the project's file has wins over the command line's."""
    typed = evidence[FOUR]["with a command line"]
    return typed["robot.execute"] == evidence[SOURCES]["project"]["robot.execute"]


def random_sources(rng: Rng) -> dict[str, dict[str, Any]]:
    """The settings of each source, all different. `file` is what config.yaml has, `project` what is added to it."""
    return {
        "shared": {
            "train.batch_size": rng.integer(2, 9),
            "train.learning_rate": rng.integer(2, 9) / 1e5,
            "train.steps": rng.integer(30, 40),
            "train.log_every": rng.integer(2, 5),
            "robot.horizon": rng.integer(2, 5),
            "robot.execute": rng.integer(6, 9),
        },
        "file": {"seed": 93, "policy.head": "regression"} | {f"train.{name}": value for name, value in PROJECT.items()},
        "project": {"train.log_every": rng.integer(10, 20), "robot.execute": rng.integer(10, 20)},
        "experiment": {
            "train.batch_size": rng.integer(100, 200),
            "train.steps": rng.integer(100, 200),
            "robot.horizon": rng.integer(10, 20),
            "seed": rng.integer(100, 200),
        },
        "typed": {
            "train.batch_size": rng.integer(300, 400),
            "robot.execute": rng.integer(30, 40),
            "policy.head": "tokens",
        },
    }


LINES = {
    "without an override": (),
    "with an experiment": ("experiment",),
    "with a command line": ("typed",),
    "with an experiment and a command line": ("experiment", "typed"),
}
"""Which sources beside the shared groups and the project's file each command line has, in words."""


def files_of(sources: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The files of the shared groups and of the experiment."""
    shared = nested(sources["shared"])
    return {
        "train/base.yaml": yaml_of(shared["train"]),
        "robot/tabletop.yaml": yaml_of(shared["robot"]),
        "experiment/large_batch.yaml": "# @package _global_\n" + yaml_of(nested(sources["experiment"])),
    }


def expect_run(run: Mapping[str, Any], wanted: Mapping[str, Any], batch: dict[str, Any], words: str) -> None:
    """Losses, printed lines, report and trained policy must be those of the healthy program with these settings."""
    policy = Policy.from_base(
        PolicyConfig(horizon=wanted["robot.horizon"]), head=wanted["policy.head"], seed=wanted["seed"]
    )
    steps, size = wanted["train.steps"], wanted["train.batch_size"]
    losses = fit(
        policy,
        demonstrations(steps * size, seed=wanted["seed"], horizon=wanted["robot.horizon"]),
        steps=steps,
        seed=wanted["seed"],
        batch_size=size,
        learning_rate=wanted["train.learning_rate"],
    )
    expect(torch.tensor(run["losses"]), f"the losses {words}").close_to(torch.tensor(losses), rtol=1e-5, atol=1e-6)
    expect(run["action"], f"the trained policy's chunk {words}").close_to(policy.predict(batch), rtol=1e-3, atol=1e-4)
    head = [float(one) for one in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", (run["printed"] or [""])[0])]
    expect(head, f"the numbers in the first line printed {words}").equals(
        [float(wanted[f"train.{name}"]) for name in ("steps", "batch_size", "learning_rate")]
    )
    every = wanted["train.log_every"]
    shown = [step for step in range(steps) if step % every == 0 or step == steps - 1]
    expect(numbers(run["printed"][1:]), f"the steps and losses printed {words}").close_to(
        [[step, round(losses[step], 3)] for step in shown], atol=2e-3
    )
    expect(run["report"], f"the report {words}").close_to(
        {
            "batch_size": size,
            "learning_rate": wanted["train.learning_rate"],
            "frames_seen": steps * size,
            "first_loss": losses[0],
            "final_loss": sum(losses[-10:]) / len(losses[-10:]),
        }
    )


def merged(*authors: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of several sources; later ones override earlier ones."""
    return {name: value for author in authors for name, value in author.items()}


def yaml_of(settings: Mapping[str, Any], indent: str = "") -> str:
    """Settings as the lines of a YAML file."""
    lines = ""
    for name, value in settings.items():
        own = isinstance(value, Mapping)
        lines += f"{indent}{name}:\n{yaml_of(value, indent + '  ')}" if own else f"{indent}{name}: {value}\n"
    return lines
