"""What must hold for the settings of a run. Runs in the grader's process, without the learner's files.

The reference is the healthy policy's own flow-matching loss, trained with the settings that a command line gives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, random_batch
from labs.project_runs import flat, nested, numbers
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy, PolicyConfig
from labs.vla.randomness import private_randomness
from labs.vla.training import fit

EXPERIMENT = "experiment=many_draws"
PROJECT = {
    "robot.horizon": 4,
    "policy.horizon": 4,
    "policy.draws": 16,
    "policy.euler_steps": 10,
    "train.batch_size": 16,
    "train.learning_rate": 1e-3,
    "train.steps": 80,
    "train.log_every": 20,
    "seed": 94,
}
MANY_DRAWS = {"policy.draws": 64, "train.batch_size": 8}
OWN_KEYS = [name for name in PROJECT if name != "policy.horizon"]
SHORT = ("train.steps=2", "train.batch_size=3")
MISSPELT = {"horizon": 4, "drawz": 16, "euler_steps": 10}
HELD_OUT, FRAMES, HELD_OUT_DRAWS = 940_000, 256, 8
LOSS_BAR = 1.36
PRIMES = (257, 263, 269, 271, 277, 281, 283)
"""Numbers of draws that are no multiple of any number of blocks."""


@check(
    kind="behaviour",
    title="The number of draws in the configuration is the one that is used",
    property="In training, each frame must get as many noise draws as `policy.draws` says, whether the project, an experiment, or the command line sets it. A value that cannot be used may be an error, and never another number.",
    instrument='python -c \'import os, train; from hydra import compose, initialize_config_dir; from debugkit.integrations.hydra import check_config, track_reads; initialize_config_dir(os.path.abspath("conf"), version_base="1.3"); cfg = track_reads(compose("config", ["train.steps=2"])); train.train(cfg); print(check_config(cfg, config_dir="conf"))\'',
)
def test_given_draws_are_used(submission: Submission, rng: Rng) -> None:
    few, many = rng.integer(2, 5), rng.choice(PRIMES)
    lines = [
        ((f"policy.draws={few}",), few),
        ((f"policy.draws={many}",), many),
        ((), PROJECT["policy.draws"]),
        ((EXPERIMENT,), MANY_DRAWS["policy.draws"]),
        ((EXPERIMENT, f"policy.draws={few}"), few),
    ]
    runs = [submission.observe("run", overrides=[*line, *SHORT]) for line, _ in lines]
    expect([draws_of(run) for run in runs], "the draws of five command lines")
    expect([wanted for _, wanted in lines], "the draws that the five command lines give")
    for (line, wanted), run in zip(lines, runs, strict=True):
        words = f"`{' '.join(('python train.py', *line))}`"
        expect(run["raised"], f"the error of {words}").equals(None)
        expect(draws_of(run), f"the noise draws for each frame in {words}").equals(wanted)
    for text, value in (("0", 0), (f"{few}.5", few + 0.5), ("null", None)):
        run = submission.observe("run", overrides=[f"policy.draws={text}", *SHORT])
        used = value if run["raised"] else draws_of(run)  # an error is correct, another number is not
        expect(used, f"the noise draws for each frame with `policy.draws={text}`, which may also be an error,").equals(
            value
        )


@check(
    kind="behaviour",
    title="A key that is missing or misspelt ends the run",
    property="If a setting is missing from the configuration, or is written under another name or in another group, the run must end with an error before its first update.",
    instrument="python train.py '~policy.draws'",
)
def test_missing_keys_end_the_run(submission: Submission) -> None:
    runs = {}
    for name in OWN_KEYS:
        runs[f"without {name}"] = submission.observe("run", overrides=[*SHORT, f"~{name}"])
    for typo in ("policy.drawz=3", "train.draws=3", "draws=3", "train.euler_steps=3", "policy.log_every=3"):
        runs[f"with `{typo}`"] = submission.observe("run", overrides=[*SHORT, typo])
    runs["with `drawz: 16` in the group's file"] = submission.observe(
        "run", overrides=SHORT, files={"policy/flow_matching.yaml": json.dumps(MISSPELT)}
    )
    ended = {words: "an error" if run["raised"] else "no error" for words, run in runs.items()}
    expect(ended, "how runs with a missing key end")
    for words, run in runs.items():
        expect(ended[words], f"the end of a run {words}").equals("an error")
        expect(run["updates"], f"the number of updates before the error, {words},").equals(0)


@check(
    kind="behaviour",
    title="Every setting has the effect that it should have",
    property="Losses, printed lines, held-out loss and predictions must be those of the healthy policy with the settings of the command line.",
    instrument="python train.py train.steps=2 && cat outputs/*/*/.hydra/config.yaml",
)
def test_run_is_that_of_its_configuration(submission: Submission, rng: Rng) -> None:
    typed = {
        "robot.horizon": rng.integer(2, 6),
        "policy.draws": rng.integer(2, 9),
        "policy.euler_steps": rng.integer(2, 7),
        "train.batch_size": rng.integer(2, 6),
        "train.learning_rate": rng.integer(2, 9) / 1000,
        "train.steps": rng.integer(6, 8),
        "train.log_every": 2,
        "seed": rng.integer(0, 10_000),
    }
    some = {"train.steps": 2, "train.log_every": 1}
    shorter = some | {"policy.horizon": rng.integer(2, 4), "train.batch_size": rng.integer(2, 6)}
    for words, own in (
        ("of the project's run", some),
        ("of a run with other settings", typed),
        ("of a run with another `policy.horizon` than `robot.horizon`", shorter),
    ):
        wanted = PROJECT | own
        wanted["policy.horizon"] = own.get("policy.horizon", wanted["robot.horizon"])
        batch = random_batch(rng, 3, horizon=wanted["policy.horizon"])
        line = [f"{name}={value}" for name, value in own.items()]
        run = submission.observe("run", overrides=line, batch=batch)
        expect(run["raised"], f"the error {words}").equals(None)
        expect_run(run, wanted, batch, words)


@check(
    kind="behaviour",
    title="A saved configuration repeats its run",
    property="Hydra must save the configuration that the run used, and a run started from a saved configuration must have the same losses.",
    instrument="python train.py train.steps=2 && cat outputs/*/*/.hydra/config.yaml",
)
def test_saved_configuration_repeats_the_run(submission: Submission, rng: Rng) -> None:
    earlier = PROJECT | {
        "policy.horizon": rng.integer(5, 8),
        "policy.draws": rng.integer(2, 9),
        "train.steps": 2,
        "train.batch_size": rng.integer(2, 6),
        "seed": rng.integer(0, 10_000),
    }
    run = submission.observe("run", config_name="earlier", files={"earlier.yaml": json.dumps(nested(earlier))})
    expect(run["raised"], "the error of a run from a configuration that an earlier run saved").equals(None)
    _, losses = trained(earlier)
    expect(torch.tensor(run["losses"]), "the losses of a run from a saved configuration").close_to(
        torch.tensor(losses), rtol=1e-4
    )
    again = submission.observe("run", overrides=[*SHORT, f"policy.draws={earlier['policy.draws']}"])
    expect(again["given"], "the configuration that a run saves").equals(again["filed"])
    expect(again["after"], "the configuration after a run").equals(again["given"])


@check(
    kind="invariant",
    title="The settings have the keys and values that they had",
    property="`conf` must give the same keys and values as before, an experiment must be able to set each of them, and no other key may change what a run uses.",
    instrument="python train.py --cfg job",
)
def test_settings_have_their_keys(submission: Submission, rng: Rng) -> None:
    for words, line, wanted in (
        ("of the project", [], PROJECT),
        ("with the experiment", [EXPERIMENT], PROJECT | MANY_DRAWS),
    ):
        found = flat(submission.observe("composed", overrides=line))
        expect(found, f"the settings {words}")
        expect(sorted(found), f"the keys {words}").equals(sorted(wanted))
        for name, value in wanted.items():
            expect(found[name], f"{name} {words}").equals(value)
    own = {name: rng.integer(100, 200) for name in OWN_KEYS}
    experiment = {"experiment/own.yaml": f"# @package _global_\n{json.dumps(nested(own))}"}
    found = flat(submission.observe("composed", overrides=["experiment=own"], files=experiment))
    for name, value in own.items():
        expect(found.get(name), f"{name} with an experiment that sets every key").equals(value)
    few, other = rng.integer(2, 5), rng.integer(6, 12)
    for key in ("train.draws", "robot.draws", "draws"):
        run = submission.observe("run", overrides=[*SHORT, f"policy.draws={few}", f"+{key}={other}"])
        used = few if run["raised"] else draws_of(run)
        expect(used, f"the noise draws for each frame with `policy.draws={few} +{key}={other}`").equals(few)


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
    property=f"After a run with the project's settings, the loss on held-out frames must be at most {LOSS_BAR}.",
    instrument="lab run 94",
)
def test_policy_learns(submission: Submission, seed: int) -> None:
    expect(submission.observe("held_out_loss", seed=seed), "the held-out loss").at_most(LOSS_BAR)


USED = "test_given_draws_are_used/the draws of five command lines"
GIVEN = "test_given_draws_are_used/the draws that the five command lines give"
ENDED = "test_missing_keys_end_the_run/how runs with a missing key end"
SETTINGS = "test_settings_have_their_keys/the settings of the project"


@wrong_fix(
    "copied_to_both_places",
    says="The number is now in the configuration twice, and the program still reads the other one: `policy.draws` can be set and is never used.",
)
def recognise_copy(evidence: Mapping[str, Any]) -> bool:
    few, many, _, *experiment = evidence[USED]  # what the command line sets, it sets in vain
    return twice(evidence) and few == many and len(set(experiment)) == 1


@wrong_fix(
    "filled_in_from_the_other",
    says="The value arrives, by way of a second key. Now the setting has two keys, and the second one, where it is set, overrides the first: a run with `policy.draws=4` in its saved configuration may have used another number.",
)
def recognise_alias(evidence: Mapping[str, Any]) -> bool:
    return twice(evidence) and evidence[USED] == evidence[GIVEN]


@wrong_fix(
    "moved_to_the_other_group",
    says="The key is now where the program reads it. But scripts, experiments and the configurations saved with earlier runs have it where it was, and there it is an error, or still has no effect.",
)
def recognise_move(evidence: Mapping[str, Any]) -> bool:
    settings = evidence.get(SETTINGS, {})
    return "policy.draws" not in settings and "train.draws" in settings


@wrong_fix(
    "default_in_the_program",
    says="The program reads the correct key, and still has a value of its own for it. If the key is missing or misspelt in a file, the run trains with that value, and nobody notices.",
)
def recognise_default(evidence: Mapping[str, Any]) -> bool:
    used = evidence.get(USED)
    return used == evidence.get(GIVEN) and evidence.get(ENDED, {}).get("without policy.draws") == "no error"


@wrong_fix(
    "number_in_the_program",
    says="The project's number is now in Python. Every run has it: an experiment and the command line still change nothing.",
)
def recognise_number(evidence: Mapping[str, Any]) -> bool:
    return set(evidence.get(USED, ())) == {PROJECT["policy.draws"]} and not twice(evidence)


def twice(evidence: Mapping[str, Any]) -> bool:
    """Whether `conf` has the setting in its group and in another one."""
    return {"policy.draws", "train.draws"} <= set(evidence.get(SETTINGS, ()))


def draws_of(run: Mapping[str, Any]) -> float | None:
    """Noise draws for each frame of a run's training; None if nothing was trained."""
    if not run["encoded"]:
        return None
    draws, rest = divmod(run["noisy"], run["encoded"])
    return draws if rest == 0 else run["noisy"] / run["encoded"]


def trained(wanted: Mapping[str, Any]) -> tuple[Policy, list[float]]:
    """The healthy policy trained with these settings, and the losses."""
    horizon, steps, size = wanted["policy.horizon"], wanted["train.steps"], wanted["train.batch_size"]
    policy = Policy.from_base(PolicyConfig(horizon=horizon), head="flow_matching", seed=wanted["seed"])
    policy.head.draws, policy.head.euler_steps = wanted["policy.draws"], wanted["policy.euler_steps"]
    frames = demonstrations(steps * size, seed=wanted["seed"], horizon=horizon)
    rate = wanted["train.learning_rate"]
    return policy, fit(policy, frames, steps=steps, seed=wanted["seed"], batch_size=size, learning_rate=rate)


def held_out(policy: Policy) -> float:
    """The loss that a run prints at its end."""
    frames = demonstrations(FRAMES, seed=HELD_OUT, horizon=policy.config.horizon)
    policy.head.draws = HELD_OUT_DRAWS
    with private_randomness(HELD_OUT), torch.no_grad():
        return float(policy(**next(batches(frames, FRAMES, steps=1, seed=HELD_OUT))).loss)


def expect_run(run: Mapping[str, Any], wanted: Mapping[str, Any], batch: dict[str, Any], words: str) -> None:
    """Saved configuration, losses, printed lines and predictions must be those of the healthy policy."""
    policy, losses = trained(wanted)
    for name, value in wanted.items():
        expect(flat(run["filed"]).get(name), f"{name} in the saved configuration {words}").equals(value)
    expect(torch.tensor(run["losses"]), f"the losses {words}").close_to(torch.tensor(losses), rtol=1e-4)
    with private_randomness(0):
        chunk = policy.predict(batch)
    expect(run["action"], f"the trained policy's chunk {words}").close_to(chunk, rtol=1e-3, atol=1e-4)
    expect(run["velocities"], f"the Euler steps of a prediction {words}").equals(wanted["policy.euler_steps"])
    steps, every = wanted["train.steps"], wanted["train.log_every"]
    shown = [[step, losses[step]] for step in range(steps) if step % every == 0 or step == steps - 1]
    expect(numbers(run["printed"][:-1]), f"the steps and losses printed {words}").close_to(shown, atol=2e-3)
    expect(numbers(run["printed"][-1:]), f"the held-out loss printed {words}").close_to([[held_out(policy)]], atol=2e-3)
