"""What must hold for a configuration with four sources. Runs in the grader's process, without the learner's files.

The reference is the order of precedence, restated as four dicts merged one over the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter

EXPERIMENT = "experiment=large_batch"
COMMAND_LINES = ((), (EXPERIMENT,), (EXPERIMENT, "train.batch_size=8"))
SHARED = {"batch_size": 16, "learning_rate": 1e-4, "steps": 60, "log_every": 20}
PROJECT = {"batch_size": 64, "learning_rate": 1e-3}
LARGE_BATCH = {"batch_size": 128, "learning_rate": 2e-3}
OTHER_PROJECT = "defaults: [train: base, robot: tabletop, _self_]\nseed: 1\n"

STEPS = 50
LOSS_BAR = 0.65


@check(
    kind="behaviour",
    title="Three command lines compose the correct settings",
    property="The project's settings must override the shared ones, an experiment must override the project's, and the command line must override everything.",
    instrument='print(provenance("conf", "config", ["experiment=large_batch"]))   # debugkit.integrations.hydra',
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
    for setting in ("batch_size", "learning_rate", "steps"):
        expect([train.get(setting) for train in seen], f"train.{setting} of the three command lines").equals(
            [train[setting] for train in wanted]
        )


@check(
    kind="behaviour",
    title="The order holds for any numbers",
    property="With different numbers in the shared group and in the experiment, the same source must win for every value.",
    instrument='print(provenance("conf", "config"))   # debugkit.integrations.hydra',
)
def test_order_holds_for_other_numbers(submission: Submission, rng: Rng) -> None:
    for _ in range(2):
        shared = {
            "batch_size": rng.integer(2, 15),
            "learning_rate": rng.integer(2, 9) / 1e5,
            "steps": 50,
            "log_every": 7,
        }
        experiment = {"batch_size": rng.integer(300, 999), "steps": rng.integer(100, 200)}
        files = {
            "train/base.yaml": yaml_of(shared),
            "experiment/large_batch.yaml": "# @package _global_\ntrain:\n" + yaml_of(experiment, indent="  "),
        }
        typed = {"learning_rate": rng.integer(2, 9) / 100}
        alone = submission.observe("composed", overrides=[], files=files)["train"]
        expect(alone, "the training settings without an override").equals(merged(shared, PROJECT))
        line = [EXPERIMENT, f"train.learning_rate={typed['learning_rate']}"]
        chosen = submission.observe("composed", overrides=line, files=files)["train"]
        expect(chosen, "the training settings of an experiment with one override").equals(
            merged(shared, PROJECT, experiment, typed)
        )


@check(
    kind="behaviour",
    title="The saved configuration is what ran",
    property="The batches that the policy receives must have the size in the configuration that Hydra saves in the run directory.",
    instrument="python train.py train.steps=2 && cat outputs/*/*/.hydra/config.yaml",
)
def test_record_is_what_ran(submission: Submission, rng: Rng) -> None:
    size = rng.integer(3, 9)
    for typed, wanted in (([], PROJECT["batch_size"]), ([f"train.batch_size={size}"], size)):
        run = submission.observe("trained", overrides=["train.steps=2", *typed], seed=1)
        expect(run["filed"]["train"]["batch_size"], "the batch size in the saved configuration").equals(wanted)
        expect(run["batch_sizes"], "the sizes of the batches that the policy received").equals([wanted, wanted])


@check(
    kind="invariant",
    title="The shared groups are unchanged",
    property="A project without settings of its own must get the original shared settings.",
    instrument="lab diff 93",
)
def test_shared_groups_are_as_they_were(submission: Submission) -> None:
    seen = submission.observe("composed_by_another_project", main=OTHER_PROJECT)
    expect(seen, "what another project gets").equals(
        {"train": SHARED, "robot": {"horizon": 4, "execute": 2}, "seed": 1}
    )


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
OTHER = "test_shared_groups_are_as_they_were/what another project gets"


@wrong_fix(
    "self_last",
    says="The main config now overrides everything in the list: the experiment chosen on the command line no longer changes anything.",
)
def recognise_self_last(evidence: Mapping[str, Any]) -> bool:
    return evidence[BATCH_SIZES] == [64, 64, 8]


@wrong_fix(
    "hard_coded",
    says="The number is now in Python, where no experiment and no command line can change it, and Hydra saves a different one. The learning rate is still the shared one.",
)
def recognise_hard_coded(evidence: Mapping[str, Any]) -> bool:
    return evidence[BATCH_SIZES] == [64, 64, 64] and evidence[LEARNING_RATES][0] == SHARED["learning_rate"]


@wrong_fix(
    "merged_again",
    says="The main config is merged a second time, over the experiment and over the command line: a value on the command line has no effect.",
)
def recognise_merged_again(evidence: Mapping[str, Any]) -> bool:
    return evidence[BATCH_SIZES] == [64, 64, 64] and evidence[LEARNING_RATES][1] == PROJECT["learning_rate"]


@wrong_fix(
    "shared_says_64",
    says="The numbers are copied into the shared group. This project now gets them from there, and so does every other project that uses the group.",
)
def recognise_shared_edit(evidence: Mapping[str, Any]) -> bool:
    other = evidence.get(OTHER) or {}
    return other.get("train", {}).get("batch_size") == PROJECT["batch_size"]


def merged(*authors: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of several sources; later ones override earlier ones."""
    return {name: value for author in authors for name, value in author.items()}


def yaml_of(settings: Mapping[str, Any], indent: str = "") -> str:
    return "".join(f"{indent}{name}: {value}\n" for name, value in settings.items())
