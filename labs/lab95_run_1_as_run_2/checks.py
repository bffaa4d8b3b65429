"""What must hold for the output folders of a run. Runs in the grader's process, without the learner's files.

Runs are short, start in folders that the grader chooses, and are reloaded from others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter
from labs.vla.dataset import demonstrations
from labs.vla.policy import Policy
from labs.vla.training import fit

STEPS = 3
AVERAGED = 10
"""The final loss is the mean of this many."""
SETTINGS = {"seed": 1, "batch_size": 32, "learning_rate": 1e-3, "steps": 40, "save_every": 20}
LOSS_BAR = 0.7


@check(
    kind="behaviour",
    title="The run directory contains all files of the run",
    property="Whatever folder a run is started from, and whatever its output folders are called, every file it writes must be in its run directory.",
    instrument="python train.py && find . -type f -newer train.py",
)
def test_everything_is_in_the_run_directory(submission: Submission, rng: Rng) -> None:
    for folders, names in (
        ((), ("checkpoints", "logs")),
        (("a", "b"), (f"weights_{rng.integer(10, 99)}/best", "curves/fine")),
    ):
        overrides = [f"output.checkpoints={names[0]}", f"output.logs={names[1]}"] if folders else []
        left = submission.observe(
            "files_of_a_run", overrides=overrides, seed=rng.integer(1, 999), folders=list(folders)
        )
        expect(left, "what a run leaves")
        expect(left["outside"], "the files outside the run directory").equals([])
        expect(left["inside"], "the files inside the run directory").contains(f"{names[0]}/last.safetensors")
        expect(left["inside"], "the files inside the run directory").contains(f"{names[1]}/losses.csv")
        expect(left["inside"], "the files inside the run directory").contains(".hydra/config.yaml")


@check(
    kind="behaviour",
    title="Two runs are kept apart",
    property="Two runs started from the same folder must each have their own directory, log and checkpoint, and must not change the other's.",
    instrument="python train.py train.steps=2 seed=1 && python train.py train.steps=2 seed=2 && find . -name losses.csv -o -name last.safetensors",
)
def test_two_runs_are_kept_apart(submission: Submission, rng: Rng) -> None:
    first = rng.integer(1, 400)
    seen = submission.observe("two_runs", seeds=[first, first + rng.integer(1, 400)], reload=False)
    expect(seen["directories"], "the names of the run directories")
    expect(len(set(seen["directories"])), "the number of run directories").equals(2)
    for number, (losses, rows) in enumerate(zip(seen["losses"], seen["rows"], strict=True), start=1):
        expect(len(rows), f"the number of rows in the log of run {number}").equals(STEPS)
        expect(torch.tensor(rows), f"the losses in the log of run {number}").close_to(torch.tensor(losses), atol=1e-4)


@check(
    kind="behaviour",
    title="A run reloads what it trained, from anywhere",
    property="load_policy(run) must give the weights that this run trained: from another folder, after another run, after the directory was moved, with relative paths one run after the other, beside another run's weights, and in another program that is a job of Hydra. Without a complete checkpoint in the directory it must raise FileNotFoundError.",
    instrument="python train.py train.steps=2 hydra.run.dir=runs/one && cd runs && PYTHONPATH=.. python -c 'import pathlib, train; print(train.load_policy(pathlib.Path(\"one\")).head)'",
)
def test_run_reloads_from_anywhere(submission: Submission, rng: Rng) -> None:
    first = rng.integer(1, 400)
    seen = submission.observe("two_runs", seeds=[first, first + rng.integer(1, 400)], reload=True)
    expect(seen["trained"][0], "the weights of run 1").differs_from(seen["trained"][1])
    for number, (trained, reloaded) in enumerate(zip(seen["trained"], seen["reloaded"], strict=True), start=1):
        expect(reloaded, f"the reloaded weights of run {number}").close_to(trained)
    for words, every in (("by relative paths", seen["relative"]), ("in another job of Hydra", seen["in_a_job"])):
        for number, (trained, reloaded) in enumerate(zip(seen["trained"], every, strict=True), start=1):
            raised = reloaded if isinstance(reloaded, str) else "nothing"
            expect(raised, f"what reloading run {number} {words} raises").equals("nothing")
            expect(reloaded, f"the weights of run {number} reloaded {words}").close_to(trained)
    moved = submission.observe("moved_run", seed=rng.integer(1, 999))
    expect(moved["reloaded"], "the weights reloaded from a moved directory").close_to(moved["trained"])
    expect(moved["training"], "whether a reloaded policy is in training mode").is_false()
    expect(moved["without_weights"], "what reloading raises without weights").equals("FileNotFoundError")
    beside = submission.observe("run_beside_other_weights", seed=rng.integer(1, 999))
    expect(beside["reloaded"], "the weights reloaded in a folder that has another run's weights").close_to(
        beside["trained"]
    )
    for words, raised in (
        ("a run without a checkpoint, beside another run's weights,", beside["missing"]),
        ("a run whose only checkpoint is unfinished", beside["unfinished"]),
    ):
        expect(raised or "nothing", f"what reloading {words} raises").equals("FileNotFoundError")


@check(
    kind="invariant",
    title="A run trains, reports and saves as documented",
    property="A run must train the pretrained base with its seed and settings, report the mean of its last ten losses, and have new weights in its directory every `save_every` steps and after the last one.",
    instrument="python train.py train.steps=13 train.save_every=5 && cat runs/*/report.json",
)
def test_run_is_as_documented(submission: Submission, rng: Rng) -> None:
    seed, steps, size, every, rate = rng.integer(3, 999), 13, 2, 5, 3e-3
    overrides = [f"train.steps={steps}", f"train.batch_size={size}", f"train.save_every={every}"]
    seen = submission.observe("documented_run", seed=seed, overrides=[*overrides, f"train.learning_rate={rate}"])
    expect(seen["saved_after"], "the steps after which the run directory has new weights").equals([5, 10, 13])
    frames = demonstrations(steps * size, seed=seed)
    losses = fit(Policy.from_base(seed=seed), frames, steps=steps, seed=seed, batch_size=size, learning_rate=rate)
    expect(seen["losses"], "the losses of a run").close_to(losses, rtol=5e-3)
    report = seen["report"] or {}
    expect(sorted(report), "the entries of report.json").equals(["final_loss", "seed", "steps"])
    expect(report["seed"], "the seed in report.json").equals(seed)
    expect(report["steps"], "the number of steps in report.json").equals(steps)
    expect(report["final_loss"], "the final loss in report.json").close_to(
        sum(losses[-AVERAGED:]) / AVERAGED, rtol=5e-3
    )


@check(
    kind="invariant",
    title="Log and checkpoints survive a crash",
    property="`LossLog` must write each line before the next step, continue a log and close its file. `save` must replace a checkpoint completely or not at all, and leave the policy as it is.",
    instrument="python -c 'import tempfile; from train import *; folder = Path(tempfile.mkdtemp()); log = LossLog(folder).__enter__(); log.write(0, 1.5); print((folder / LOSSES).read_text())'",
)
def test_log_and_checkpoints_survive(submission: Submission, rng: Rng) -> None:
    losses, before = [float(loss) for loss in rng.uniform(5, low=0.1, high=2.0)], rng.integer(1, 5)
    seen = submission.observe("logged", losses=losses, before=before)
    expect(seen["readable"], "the number of lines that can be read after each step").equals([1, 2, 3, 4, 5])
    expect(torch.tensor(seen["rows"]), "the rows of a log that was continued").close_to(
        torch.tensor(list(enumerate(losses))), rtol=0, atol=1e-5
    )
    expect(seen["left_open"], "whether the log's file is left open").is_false()
    kept = submission.observe("saved", seed=rng.integer(1, 999))
    for mode, same in zip(("training", "evaluation"), kept["keeps_mode"], strict=True):
        expect(same, f"whether a policy in {mode} mode is still in it after `save`").is_true()
    if kept["raised"] is not None:
        expect(kept["still_there"], "whether the old checkpoint is still there after a full disk").is_true()
    apart = submission.observe("saved_beside_another_disk", seed=rng.integer(1, 999))
    where = "where the system's temporary folder is on another disk than the run"
    expect(apart["raised"] or "nothing", f"what `save` raises {where},").equals("nothing")
    expect(apart["saved"], f"the weights in the checkpoint {where},").close_to(apart["trained"])
    if apart["raised_when_full"] is not None:
        broken = apart["kept"] if isinstance(apart["kept"], str) else "nothing"
        expect(broken, f"what reading the old checkpoint raises after a full disk, {where},").equals("nothing")
        expect(apart["kept"], f"the weights in the old checkpoint after a full disk, {where},").close_to(apart["saved"])


@check(
    kind="invariant",
    title="The training settings are those of earlier runs",
    property="`conf/config.yaml` must keep its seed and training settings.",
    instrument="python train.py --cfg job",
)
def test_settings_are_kept(submission: Submission) -> None:
    seen = submission.observe("settings")
    for name, wanted in SETTINGS.items():
        expect(seen.get(name), f"the setting {name}").equals(wanted)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the actions of a reloaded policy.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="The reloaded policy is the trained one",
    property=f"After another run, a reloaded policy must have the same held-out loss as after its training, and at most {LOSS_BAR}.",
    instrument="lab run 95",
)
def test_trained_policy_comes_back(submission: Submission, seed: int) -> None:
    seen = submission.observe("reloaded_loss", seed=seed)
    expect(seen["as_reloaded"], "the held-out loss after reloading").close_to(seen["as_trained"], rtol=1e-4)
    expect(seen["as_reloaded"], "the held-out loss of the reloaded policy").at_most(LOSS_BAR)


LEFT = "test_everything_is_in_the_run_directory/what a run leaves"
DIRECTORIES = "test_two_runs_are_kept_apart/the number of run directories"
NAMES = "test_two_runs_are_kept_apart/the names of the run directories"
RELOADED = "test_run_reloads_from_anywhere/the reloaded weights of run 1"
KEPT = {"checkpoints/last.safetensors", "logs/losses.csv"}


@wrong_fix(
    "one_directory_for_all",
    says="Everything is in one directory now, but so is every other run: the second run overwrites the checkpoint of the first and appends to its log.",
)
def recognise_one_directory(evidence: Mapping[str, Any]) -> bool:
    by_time = any(re.search(r"\d\d-\d\d", name) for name in evidence.get(NAMES, ()))
    return evidence.get(DIRECTORIES) == 1 and evidence[LEFT]["outside"] == [] and not by_time


@wrong_fix(
    "copied_at_the_end",
    says="The run directory gets a copy at the end. Until then the run writes to folders that all runs share: two runs at the same time mix their files, and a run that is killed leaves nothing.",
)
def recognise_copy(evidence: Mapping[str, Any]) -> bool:
    return all(set(evidence[LEFT][side]) >= KEPT for side in ("inside", "outside"))


@wrong_fix(
    "absolute_path",
    says="The path no longer depends on the working directory. But it is one folder for all runs, on one machine, and the run directory contains no weights.",
)
def recognise_absolute(evidence: Mapping[str, Any]) -> bool:
    return bool(evidence[LEFT]["another_disk"])


@wrong_fix(
    "moved_into_the_run",
    says="The job changes into its run directory, so its files are in the correct place. But the paths are still relative, and a process that reloads a run has a different working directory.",
)
def recognise_chdir(evidence: Mapping[str, Any]) -> bool:
    left = evidence[LEFT]
    return left["moved"] and left["outside"] == [] and evidence.get(DIRECTORIES) == 2 and evidence.get(RELOADED) is None
