"""Requirements for a policy that reads windows of states. Runs in the grader's process; judges data, and never sees the code.

The common rule: at a decision the robot knows the past and the present. Later states in a window may be targets in training, but must not
affect any action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, expect_success_rate, random_batch

HORIZON = 4
PUSHED = 0.02
BEFORE, PRESENT, NEXT = range(3)
EPISODES = 50
SUCCESS_BAR = 0.6


@check(
    kind="behaviour",
    title="The future does not change the action",
    property="With another next state in the window, the predicted chunk must be the same, to the last bit.",
    instrument="debugkit.check(policy, batch, declare=Declare(future=('state[2:]',)), select=['DK404'])",
)
def test_future_moves_nothing(submission: Submission, rng: Rng) -> None:
    for size in (rng.integer(2, 9), 1):
        batch = windowed_batch(rng, size)
        others = {f"another {name}": changed(rng, batch["state"], at) for name, at in POSITIONS.items()}
        seen = submission.observe("actions", batch=batch, others=others, seed=rng.seed())
        expect(moves(seen), "what moves the action")
        expect(seen["as recorded"], "the chunk").has_shape(size, HORIZON, 3)
        expect(seen["another next"], "the chunk with another next state").close_to(
            seen["as recorded"], rtol=1e-6, atol=1e-7
        )


@check(
    kind="behaviour",
    title="Position and motion are those of the present",
    property="In evaluation and in training, the language model must read the present position, and the motion must be the present position minus the one before.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_position_and_motion(submission: Submission, rng: Rng) -> None:
    for size, training in ((rng.integer(2, 9), False), (1, False), (rng.integer(2, 9), True)):
        batch = windowed_batch(rng, size)
        seen = submission.observe("inputs", batch=batch, seed=rng.seed(), training=training)
        state = batch["state"]
        motion = (state[:, PRESENT] - state[:, BEFORE])[:, :2] / PUSHED
        expect(seen["position"], "the position that the language model reads").close_to(
            state[:, PRESENT] @ seen["weight"].T + seen["bias"], rtol=1e-4, atol=1e-5
        )
        expect(seen["motion"], "the motion's part of the feature").close_to(
            motion @ seen["motion_weight"].T, rtol=1e-4, atol=1e-5
        )


@check(
    kind="behaviour",
    title="The observed states still matter",
    property="Another present state must change the action, and so must another state before it.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_observed_states_matter(submission: Submission, rng: Rng) -> None:
    batch = windowed_batch(rng, 4)
    others = {f"another {name}": changed(rng, batch["state"], at) for name, at in POSITIONS.items()}
    seen = submission.observe("actions", batch=batch, others=others, seed=rng.seed())
    for name in ("another present", "another before"):
        expect(seen[name], f"the chunk with {name} state").differs_from(seen["as recorded"], rtol=1e-4, atol=1e-5)


@check(
    kind="invariant",
    title="The robot and the recording give the same action",
    property="For an arm at rest, the recorded window and the robot's single state must give the same action.",
    instrument="debugkit.check(policy, batch, select=['DK407'])",
)
def test_robot_and_recording_agree(submission: Submission, rng: Rng) -> None:
    batch = windowed_batch(rng, rng.integer(2, 7))
    rests = batch["state"][:, PRESENT : PRESENT + 1].repeat(1, 3, 1)
    rests[:, NEXT] = batch["state"][:, NEXT]
    seen = submission.observe("actions", batch=batch, others={"at rest": rests}, seed=rng.seed())
    expect(seen["at rest"], "the chunk for a recorded arm at rest").close_to(seen["the robot's"], rtol=1e-5, atol=1e-6)


@check(
    kind="invariant",
    title="The next state is still the forecast's target",
    property="In training, the loss must depend on the next state as a target, and be the same for the same batch.",
    instrument="debugkit.check(policy, batch)",
)
def test_forecast_is_still_trained(submission: Submission, rng: Rng) -> None:
    batch = windowed_batch(rng, rng.integer(3, 9))
    others = {"another next": changed(rng, batch["state"], NEXT)}
    seen = submission.observe("losses", batch=batch, others=others, seed=rng.seed())
    expect(seen["again"], "the loss of the same batch again").close_to(seen["loss"], rtol=1e-6)
    expect(seen["another next"], "the loss with another next state").differs_from(seen["loss"], rtol=1e-4)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted chunk.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng, batch=windowed_batch(rng, 3))


@check(
    kind="outcome",
    title="The offline error holds on the robot",
    property=f"After training, the offline errors with recorded windows and with the robot's must agree within a quarter, and at least {SUCCESS_BAR:.0%} of {EPISODES} episodes must succeed.",
    instrument="lab run 45",
)
def test_offline_error_is_honest(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    expect(result["reported"] / result["recorded"], "the robot's error over the offline error").between(0.75, 1.25)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


FUTURE = "test_future_moves_nothing"


@wrong_fix(
    "remove_the_state",
    says="The leak is gone, but so is the state: the policy no longer gets the position of its own arm.",
)
def recognise_removed(evidence: Mapping[str, Any]) -> bool:
    moved = evidence.get(f"{FUTURE}/what moves the action")
    return isinstance(moved, list) and "present" not in moved and "next" not in moved


@wrong_fix(
    "dropout_on_the_state",
    says="With dropout the future is present less often in training. When it is present it is still the answer, and in evaluation it is always present.",
)
def recognise_dropout(evidence: Mapping[str, Any]) -> bool:
    seen = evidence.get("test_forecast_is_still_trained/losses")
    if not isinstance(seen, dict):
        return False
    return "next" in evidence[f"{FUTURE}/what moves the action"] and float(seen["loss"]) != float(seen["again"])


@wrong_fix(
    "only_in_training",
    says="Evaluation no longer reads the future, but training still does: the policy learns to rely on an input that it will not have.",
)
def recognise_only_in_training(evidence: Mapping[str, Any]) -> bool:
    moved = evidence.get(f"{FUTURE}/what moves the action")
    return (
        isinstance(moved, list)
        and moved == ["before", "present"]
        and evidence[FUTURE]["outcome"] == "passed"
        and evidence["test_position_and_motion"]["outcome"] == "failed"
    )


POSITIONS = {"before": BEFORE, "present": PRESENT, "next": NEXT}


def moves(seen: dict[str, Tensor]) -> list[str]:
    """Which of the three states changes the action."""
    recorded = seen["as recorded"]
    return [name for name in POSITIONS if float((seen[f"another {name}"] - recorded).abs().max()) > 1e-6]


def changed(rng: Rng, state: Tensor, at: int) -> Tensor:
    """The windows (B, 3, 3) with another state at one position."""
    other = state.clone()
    other[:, at] = rng.uniform(len(state), 3)
    return other


def windowed_batch(rng: Rng, size: int) -> dict[str, Tensor]:
    """A batch whose states are windows (B, 3, 3) of states that all differ."""
    return {**random_batch(rng, size), "state": rng.uniform(size, 3, 3)}
