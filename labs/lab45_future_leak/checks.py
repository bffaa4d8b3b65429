"""What must hold of a policy that reads windows of states. Runs in the grader's process; judges, and never sees the code.

The rule behind all of it: at a decision the robot knows what was and what is. Whatever stands in a window for later may be a target, in
training, and moves no action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, random_batch

HORIZON = 4
PUSHED = 0.02
BEFORE, PRESENT, NEXT = range(3)
EPISODES = 50
SUCCESS_BAR = 0.6


@check(
    kind="behaviour",
    title="The future moves nothing",
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
    property="In evaluation and in training, the language model must read the present position, and the feature must get the motion from the state before to it.",
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
    title="What is observed still matters",
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
    title="The robot is asked what training was asked",
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
    title="The next state is still what the forecast learns",
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
    title="What is measured offline is what the robot does",
    property=f"After training, offline error must be the same with recorded windows as with the robot's, within a quarter, and at least {SUCCESS_BAR:.0%} of {EPISODES} episodes must succeed.",
    instrument="lab run 45",
)
def test_offline_error_is_honest(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    expect(result["reported"] / result["recorded"], "the robot's error over the offline error").between(0.75, 1.25)
    expect(result["success"], "the list of successes").has_shape(EPISODES)
    expect(result["success"].double().mean(), "the success rate").at_least(SUCCESS_BAR)


FUTURE = "test_future_moves_nothing"


@wrong_fix(
    "remove_the_state",
    says="The leak is gone with everything else: the policy no longer knows where its own arm is.",
)
def recognise_removed(evidence: Mapping[str, Any]) -> bool:
    moved = evidence.get(f"{FUTURE}/what moves the action")
    return isinstance(moved, list) and "present" not in moved and "next" not in moved


@wrong_fix(
    "dropout_on_the_state",
    says="Dropout makes the future come less often in training. When it comes it is still the answer, and in evaluation it always comes.",
)
def recognise_dropout(evidence: Mapping[str, Any]) -> bool:
    seen = evidence.get("test_forecast_is_still_trained/losses")
    if not isinstance(seen, dict):
        return False
    return "next" in evidence[f"{FUTURE}/what moves the action"] and float(seen["loss"]) != float(seen["again"])


@wrong_fix(
    "only_in_training",
    says="Evaluation no longer reads the future and training still does: the policy is trained to rely on what it will not be given.",
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
    """Which of the three states moves the action."""
    recorded = seen["as recorded"]
    return [name for name in POSITIONS if float((seen[f"another {name}"] - recorded).abs().max()) > 1e-6]


def changed(rng: Rng, state: Tensor, at: int) -> Tensor:
    """The windows (B, 3, 3) with another state at one of their places."""
    other = state.clone()
    other[:, at] = rng.uniform(len(state), 3)
    return other


def windowed_batch(rng: Rng, size: int) -> dict[str, Tensor]:
    """A batch whose states are windows (B, 3, 3), no state of which is like another."""
    return {**random_batch(rng, size), "state": rng.uniform(size, 3, 3)}
