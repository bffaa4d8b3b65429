"""What a policy that is validated during training must do. Runs in the grader's process, without the learner's code.

The reference for every evaluation is the base policy of the same seed, which has the same weights and no dropout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    random_batch,
)
from labs.vla.policy import Policy

DROPOUT = 0.15
OUTCOME_STEPS = 100
EPISODES = 20
LOSS_BAR = 0.45


@check(
    kind="behaviour",
    title="Every module gets its mode back",
    property="Inside `evaluating`, every module must be in evaluation mode; afterwards each must be in the mode it was in before, even if the block raised.",
    instrument="with debugkit.watch(policy, optimizer) as run: train(policy, optimizer, …)",
)
def test_modes_are_restored(submission: Submission, rng: Rng) -> None:
    part = rng.choice(("vision", "language_model", "projector"))
    every: dict[str, dict[str, Any]] = {}
    for start, in_eval in (("training", ["nothing"]), ("evaluation", [""]), ("mixed", [part])):
        for how, raises in (("", False), (", raising", True)):
            every[start + how] = submission.observe("modes", in_eval=in_eval, raises=raises)
            expect(
                every[start + how], f"modes from {start}{how}"
            )  # recorded for the recognisers before any check fails
    for name, seen in every.items():
        expect(seen["raised"], "what came out of the block").equals("OSError" if "raising" in name else None)
        inside = sum(seen["inside"].values())
        expect(inside, f"the number of modules in training mode during an evaluation (from {name})").equals(0)
        changed = sum(training != seen["before"][path] for path, training in seen["after"].items())
        expect(changed, f"the number of modules whose mode an evaluation changed (from {name})").equals(0)


@check(
    kind="behaviour",
    title="Repeated evaluations are identical",
    property="Called twice, act and validate must give bit-identical and correct numbers, whichever mode the policy was left in.",
    instrument="debugkit.check(policy, batch, select=['DK506'])",
)
def test_evaluation_is_repeatable(submission: Submission, rng: Rng) -> None:
    for training in (False, True):
        batch, seed = random_batch(rng, rng.integer(2, 6)), rng.seed()
        seen = submission.observe("asked_twice", batch=batch, seed=seed, training=training)
        left = "training" if training else "evaluation"
        policy = Policy.from_base(seed=seed).eval()
        with torch.no_grad():
            loss = float(policy(**batch).loss)
        expect(seen["chunks"][1], f"the second chunk of a policy left in {left} mode").equals(seen["chunks"][0])
        expect(seen["losses"][1], f"the second validation of a policy left in {left} mode").equals(seen["losses"][0])
        expect(seen["chunks"][0], "the chunk").close_to(policy.predict(batch), rtol=1e-3, atol=1e-5)
        expect(seen["losses"][0], "the validation loss").close_to(loss, rtol=1e-3, atol=1e-5)


@check(
    kind="behaviour",
    title="Dropout is active in every training step",
    property="Each training step must run in training mode and drop about 15 % of the feature, before and after validations, one of which fails.",
    instrument="with debugkit.watch(policy, optimizer) as run: train(policy, optimizer, …)",
)
def test_dropout_is_alive_in_training(submission: Submission, rng: Rng) -> None:
    stream = [random_batch(rng, 48) for _ in range(7)]
    for fails_at in (1, 2):
        seen = submission.observe("training_passes", stream=stream, seed=rng.seed(), fails_at=fails_at)
        expect(len(seen["training"]), "the number of steps").equals(7)
        expect(sum(seen["training"]), "the number of steps in training mode, of 7").equals(7)
        expect(seen["dropped"], "the fraction of the feature that each step dropped").between(
            DROPOUT - 0.05, DROPOUT + 0.05
        )


@check(
    kind="invariant",
    title="A validation keeps no graph, and a failed one is logged as NaN",
    property="Validations must run without gradients. One that raises must be NaN in the log, the others must be numbers, and training must end in evaluation mode.",
    instrument="debugkit.memory_profile(policy, batch)",
)
def test_validation_keeps_no_graph(submission: Submission, rng: Rng) -> None:
    stream = [random_batch(rng, 3) for _ in range(6)]
    seen = submission.observe("training_passes", stream=stream, seed=rng.seed(), fails_at=2)
    expect(seen["graphs"], "whether gradients were enabled in each validation").equals([False, False])
    expect([math.isnan(loss) for loss in seen["validation"]], "which validations are NaN").equals([False, True, False])
    expect(seen["mode"], "the mode after training").is_false()


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="invariant",
    title="A frame does not depend on the rest of the batch",
    property="The action predicted for a frame must be the same whatever else is in the batch.",
    instrument="debugkit.check(policy, batch, select=['DK305'])",
)
def test_frames_are_independent(submission: Submission, rng: Rng) -> None:
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="outcome",
    title="The same episodes have the same results",
    property=f"After training, {EPISODES} episodes run twice must end at bit-identical distances, and the last validation loss must be below {LOSS_BAR}.",
    instrument="lab run 52",
)
def test_same_episodes_end_alike(submission: Submission, seed: int) -> None:
    seen = submission.observe("trained_rollouts", seed=seed, episodes=EPISODES, steps=OUTCOME_STEPS)
    first, second = seen["distance"]
    expect(first, "the distances at the end").has_shape(EPISODES)
    expect(second, "the distances at the end of the second run").equals(first)
    expect(seen["validation"], "the last validation loss").below(LOSS_BAR)


MODES = "test_modes_are_restored/modes from "
PASSES = "test_dropout_is_alive_in_training/training_passes"


@wrong_fix(
    "no_dropout",
    says="Without dropout, the wrong mode has no visible effect. But the policy also loses its regularisation, and the modes are as wrong as before.",
)
def recognise_no_dropout(evidence: Mapping[str, Any]) -> bool:
    return not bool(evidence[PASSES]["dropped"].any())


@wrong_fix(
    "eval_then_train",
    says="The mode is correct inside the block. Afterwards the policy is always in training mode, whatever it was before, and after an error it stays in evaluation mode.",
)
def recognise_eval_then_train(evidence: Mapping[str, Any]) -> bool:
    return (
        quiet_inside(evidence)
        and all(evidence[f"{MODES}evaluation"]["after"].values())
        and not any(evidence[f"{MODES}training, raising"]["after"].values())
    )


@wrong_fix(
    "restored_unless_it_raises",
    says="Every module gets its mode back, unless the block raises: then the lines after `yield` never run. Put them where an exception cannot skip them.",
)
def recognise_no_finally(evidence: Mapping[str, Any]) -> bool:
    return quiet_inside(evidence) and restored(evidence, "mixed") and not restored(evidence, "training, raising")


@wrong_fix(
    "root_flag_only",
    says="The root's mode is restored and applied to all modules. A part that was kept in evaluation mode during training is in training mode after the first validation.",
)
def recognise_root_flag(evidence: Mapping[str, Any]) -> bool:
    return (
        quiet_inside(evidence)
        and restored(evidence, "training, raising")
        and restored(evidence, "evaluation")
        and not restored(evidence, "mixed")
    )


@wrong_fix(
    "no_grad_instead",
    says="`no_grad` keeps no graph, but dropout still drops: it depends on its module's mode, not on whether gradients are enabled.",
)
def recognise_no_grad(evidence: Mapping[str, Any]) -> bool:
    return all(evidence[f"{MODES}training"]["inside"].values()) and restored(evidence, "training")


@wrong_fix(
    "attribute_of_the_root",
    says="`policy.training = False` changes only the root's flag. Dropout reads its own. `policy.eval()` sets the flag of every module.",
)
def recognise_attribute(evidence: Mapping[str, Any]) -> bool:
    inside = evidence[f"{MODES}training"]["inside"]
    return not inside[""] and sum(inside.values()) == len(inside) - 1


@wrong_fix(
    "never_back",
    says="The robot is fine now. Training is not: after the first validation it continues in evaluation mode, without dropout.",
)
def recognise_never_back(evidence: Mapping[str, Any]) -> bool:
    return quiet_inside(evidence) and not any(evidence[f"{MODES}training"]["after"].values())


def quiet_inside(evidence: Mapping[str, Any]) -> bool:
    """Whether no module was in training mode inside the block, in any of the three cases without an error."""
    return not any(any(evidence[f"{MODES}{name}"]["inside"].values()) for name in ("training", "evaluation", "mixed"))


def restored(evidence: Mapping[str, Any], name: str) -> bool:
    """Whether every module was in the same mode afterwards as before."""
    seen = evidence[f"{MODES}{name}"]
    return bool(seen["after"] == seen["before"])
