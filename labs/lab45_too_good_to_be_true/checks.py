"""Requirements for a policy that reads windows of states. Runs in the grader's process; judges data, and never sees the code.

The common rule: at a decision the robot knows the past and the present. Later states in a window may be targets in training, but must not
affect any action. The reference is the healthy policy with two more layers. Both get the same random parameters, so each chunk, loss and
gradient has one correct value, and a wrong one shows which states were read instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    TOLERANCE,
    WORDS,
    expect_equal,
    expect_image_and_instruction_to_matter,
    expect_success_rate,
    listed,
    random_batch,
    random_padding,
    relative_error,
)
from labs.vla.dataset import demonstrations
from labs.vla.policy import OBSERVATION_KEYS, Policy

HORIZON = 4
PUSHED = 0.02
FORECAST_WEIGHT = 0.1
BEFORE, PRESENT, NEXT = range(3)
STATES = ("before", "present", "next")
PLACES = ("the position before", "the present position", "the next position")
EPISODES = 50
SUCCESS_BAR = 0.6


@dataclass(frozen=True)
class Case:
    """The size of a batch, and the mode of the policy that gets it."""

    frames: int
    training: bool = False

    def __str__(self) -> str:
        frames = "1 frame" if self.frames == 1 else f"{self.frames} frames"
        return f"{frames}, {'training' if self.training else 'evaluation'} mode"


ACTING, ALONE, TRAINING = Case(5), Case(1), Case(4, training=True)
CASES = (ACTING, ALONE, TRAINING)


@check(
    kind="behaviour",
    title="The future does not change the action",
    property="With another next state in the window, the predicted chunk must be the same, to the last bit.",
    instrument="debugkit.check(policy, batch, declare=debugkit.Declare(future=('state[2:]',)), select=['DK404'])",
)
def test_future_moves_nothing(submission: Submission, rng: Rng) -> None:
    for size in (rng.integer(2, 9), 1):
        batch = windowed_batch(rng, size)
        others = {"another next": changed(batch["state"], NEXT)}
        seen = submission.observe("actions", batch=batch, others=others, seed=rng.seed())
        expect(seen["as recorded"], "the chunk").has_shape(size, HORIZON, 3)
        expect(seen["another next"], "the chunk with another next state").close_to(
            seen["as recorded"], rtol=1e-6, atol=1e-7
        )


@check(
    kind="behaviour",
    title="Position and motion are those of the decision",
    property="In evaluation and in training, the policy must act on the present position, and on the motion from the position before to the present one.",
    instrument="python -c 'from policy import *; print(windowed_demonstrations(2, 0).state)'",
)
def test_position_and_motion(submission: Submission, rng: Rng) -> None:
    read: list[tuple[str, str]] = []
    submission.observe("given_states", batch=windowed_batch(rng, 16), seed=rng.seed())
    for case in CASES:
        reference, batch = random_reference(rng), windowed_batch(rng, case.frames)
        seen = submission.observe("computed", **given(reference, batch, case), others={})
        acted = explain(seen["predicted"], reference, batch, "chunk")
        trained = explain(seen["loss"], reference, batch, "total")
        expect(acted, f"what the action is computed from ({case})")
        expect(trained, f"what the loss is computed from ({case})")
        read += [(f"what the action is computed from ({case})", acted)]
        read += [(f"what the loss is computed from ({case})", trained)] if trained != OTHER else []
    for name, found in read:
        expect(found, name).equals(CORRECT)


@check(
    kind="behaviour",
    title="Every entrance gives the same action",
    property="The policy itself, `predict`, and `predict` on the robot's single state must give the chunk of the reference, and a loss only if there are actions.",
    instrument="debugkit.check(policy, batch, select=['DK407'])",
)
def test_every_entrance_gives_the_action(submission: Submission, rng: Rng) -> None:
    for case in CASES:
        reference, batch = random_reference(rng), windowed_batch(rng, case.frames)
        present = batch["state"][:, PRESENT]
        seen = submission.observe("computed", **given(reference, batch, case), others={})
        with torch.no_grad():
            wanted = reference.chunk(batch, present, motion_of(batch))
            at_rest = reference.chunk(batch, present, torch.zeros(case.frames, 2))
        expect_equal(seen["said"], wanted, f"the policy's own chunk ({case})")
        expect_equal(seen["predicted"], wanted, f"the chunk of `predict` ({case})")
        expect_equal(seen["robot"], at_rest, f"the chunk for the robot's single state ({case})")
        expect(seen["window"], f"the window of `robot_window` ({case})").equals(present[:, None].repeat(1, 3, 1))
        expect_equal(seen["robot window"], at_rest, f"the chunk for the window of `robot_window` ({case})")
        expect(seen["loss without actions"], f"the loss without actions ({case})").equals(None)


@check(
    kind="invariant",
    title="The next state is still the forecast's target",
    property="The training loss must be the head's loss plus a tenth of the forecast's squared error at the next state, and every parameter must get its derivative.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_forecast_is_still_trained(submission: Submission, rng: Rng) -> None:
    for case in CASES:
        reference, batch = random_reference(rng), windowed_batch(rng, case.frames)
        others = {"another next state": changed(batch["state"], NEXT)}
        seen = submission.observe("computed", **given(reference, batch, case), others=others)
        present, motion = batch["state"][:, PRESENT], motion_of(batch)
        loss = reference.total(batch, present, motion)
        loss.backward()
        gradients = {name: value.grad for name, value in reference.named_parameters() if value.grad is not None}
        with torch.no_grad():
            another = reference.total({**batch, "state": others["another next state"]}, present, motion)
            no_padding = torch.zeros_like(batch["action_is_pad"])
            unpadded = reference.total({**batch, "action_is_pad": no_padding}, present, motion)
        expect(seen["loss"], f"the loss ({case})").close_to(loss.detach(), rtol=TOLERANCE)
        expect(seen["again"], f"the loss of the same batch again ({case})").close_to(seen["loss"], rtol=1e-6)
        expect(seen["loss of another next state"], f"the loss with another next state ({case})").close_to(
            another, rtol=TOLERANCE
        )
        expect(seen["elsewhere"], f"the loss without `action_is_pad` ({case})").close_to(unpadded, rtol=TOLERANCE)
        expect_gradients(seen["gradients"], gradients, case)


@check(
    kind="invariant",
    title="The policy is built from the seed, and the windows from the demonstrations",
    property="`build_policy` must give the pretrained base and new layers drawn from the seed. A window must hold the states before, at and after a demonstrated frame.",
    instrument="python -c 'from policy import *; print(windowed_demonstrations(2, 0).state)'",
)
def test_built_from_the_seed(submission: Submission, rng: Rng) -> None:
    seed = rng.seed()
    one, again, another = (submission.observe("built", seed=number) for number in (seed, seed, seed + 1))
    expect(
        listed({name for name in one if not torch.equal(one[name], again[name])}),
        "what differs between two policies of one seed",
    ).equals("nothing")
    drawn = {name for name in one if name.split(".")[0] in ("head", "motion", "forecast")}
    expect(
        listed({name for name in drawn if torch.equal(one[name], another[name])}), "what is equal for two seeds"
    ).equals("nothing")
    base = dict(Policy.from_base().named_parameters())
    strange = {name for name in one.keys() - drawn if not torch.equal(one[name], base[name])}
    expect(listed(strange), "what differs from the pretrained base").equals("nothing")
    count, seed = rng.integer(60, 90), rng.integer(0, 1_000_000)
    seen, frames = submission.observe("recorded", count=count, seed=seed), demonstrations(count, seed)
    expect(seen["offsets"], "the offsets of the windows").equals([-1, 0, 1])
    for name in ("image", "action", "action_is_pad"):
        expect(seen[name], f"the demonstrations' {name}").equals(torch.from_numpy(getattr(frames, name)))
    expect_windows(seen["state"], torch.from_numpy(frames.state), torch.from_numpy(frames.action[:, 0]))
    again = submission.observe("recorded", count=count, seed=seed)["state"]
    expect(again, "the windows of the same seed").equals(seen["state"])
    other = submission.observe("recorded", count=count, seed=(seed + 1) % 1_000_000)["state"]
    difference = ((other[:, PRESENT] - other[:, BEFORE]) - (again[:, PRESENT] - again[:, BEFORE]))[:, :2]
    expect(difference.abs().mean(), "how far the pushes of another seed differ, in metres,").above(PUSHED / 4)


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


READ = "test_position_and_motion"
OTHER = "something else"
CORRECT = "the present position, and the motion from before to present"


@wrong_fix(
    "remove_the_state",
    says="The leak is gone, but so is the state: the policy no longer gets the position of its own arm.",
)
def recognise_removed(evidence: Mapping[str, Any]) -> bool:
    return acts_on(evidence, ACTING) == said(None, None) == trains_on(evidence)


@wrong_fix(
    "no_motion",
    says="The motion was half of the leak. The position that is read is still that of the next step, which the robot does not know.",
)
def recognise_no_motion(evidence: Mapping[str, Any]) -> bool:
    return acts_on(evidence, ACTING) == said(NEXT, None) == trains_on(evidence)


@wrong_fix(
    "only_the_last_but_one",
    says="There is no future in it any more, but no motion either: the policy cannot tell an arm at rest from a pushed one.",
)
def recognise_present_twice(evidence: Mapping[str, Any]) -> bool:
    motion = evidence[f"{READ}/given_states"]["motion"]
    at_rest = motion is None or not motion.any()
    return at_rest and acts_on(evidence, ACTING) == said(PRESENT, None) == trains_on(evidence)


@wrong_fix(
    "dropout_on_the_state",
    says="With dropout the future is present less often in training. When it is present it is still the answer, and in evaluation it is always present.",
)
def recognise_dropout(evidence: Mapping[str, Any]) -> bool:
    position = evidence[f"{READ}/given_states"]["position"]
    dropped = bool((position == 0).any()) and bool((position != 0).any())
    return dropped and acts_on(evidence, ACTING) == said(NEXT, (PRESENT, NEXT))


@wrong_fix(
    "only_in_training",
    says="Evaluation no longer reads the future, but training still does: the policy learns to rely on an input that it will not have.",
)
def recognise_only_in_training(evidence: Mapping[str, Any]) -> bool:
    return acts_on(evidence, ACTING) == CORRECT and trains_on(evidence) == said(NEXT, (PRESENT, NEXT))


def acts_on(evidence: Mapping[str, Any], case: Case) -> str:
    """What the action is computed from, in words."""
    return str(evidence[f"{READ}/what the action is computed from ({case})"])


def trains_on(evidence: Mapping[str, Any]) -> str:
    """What the loss is computed from in training, in words."""
    return str(evidence[f"{READ}/what the loss is computed from ({TRAINING})"])


class Reference(Policy):
    """The healthy policy with the motion's layer and the forecast's."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.motion = nn.Linear(2, self.config.width, bias=False)
        self.forecast = nn.Linear(self.config.width, self.config.state_dim)

    def feature(self, batch: Mapping[str, Tensor], position: Tensor, motion: Tensor) -> Tensor:
        """The feature (B, D) of a position (B, 3) and a motion (B, 2) in metres."""
        observed = {name: batch[name] for name in OBSERVATION_KEYS}
        return self.encode(**{**observed, "state": position}) + self.motion(motion / PUSHED)

    def chunk(self, batch: Mapping[str, Tensor], position: Tensor, motion: Tensor) -> Tensor:
        """The chunk (B, H, 3) of a position and a motion."""
        return self.decode(self.feature(batch, position, motion))

    def total(self, batch: Mapping[str, Tensor], position: Tensor, motion: Tensor) -> Tensor:
        """The training loss of a position and a motion, with the window's next state as the forecast's target."""
        feature = self.feature(batch, position, motion)
        forecast = F.mse_loss(self.forecast(feature), batch["state"][:, NEXT])
        return self.loss(feature, batch["action"], batch["action_is_pad"]) + FORECAST_WEIGHT * forecast


def random_reference(rng: Rng) -> Reference:
    """The pretrained base with random new layers, of a size at which each part of the feature matters."""
    reference = Reference.from_base(seed=rng.seed())
    with torch.no_grad():
        for parameter in reference.head.parameters():
            parameter += rng.normal(*parameter.shape, std=0.1)
        for parameter in reference.forecast.parameters():
            parameter.copy_(rng.normal(*parameter.shape, std=0.5))
        reference.motion.weight.copy_(rng.normal(*reference.motion.weight.shape, std=0.05))
    return reference


def given(reference: Reference, batch: dict[str, Tensor], case: Case) -> dict[str, Any]:
    """The arguments of the probe `computed`."""
    return {"parameters": dict(reference.state_dict()), "batch": batch, "training": case.training}


def explain(found: Any, reference: Reference, batch: dict[str, Tensor], what: str) -> str:
    """Of which position and motion of the window, in words, `found` is the reference's `chunk` or `total` loss."""
    state = batch["state"]
    none = torch.zeros_like(state[:, PRESENT])
    pairs = [(BEFORE, PRESENT), None, *itertools.permutations((BEFORE, PRESENT, NEXT), 2)]
    nearest, least = OTHER, TOLERANCE  # several readings of a loss, which is one number, may be within the tolerance
    for position, pair in itertools.product((PRESENT, NEXT, BEFORE, None), pairs):
        place = none if position is None else state[:, position]
        motion = (none if pair is None else state[:, pair[1]] - state[:, pair[0]])[:, :2]
        with torch.no_grad():
            value = getattr(reference, what)(batch, place, motion)
        if isinstance(found, Tensor) and found.shape == value.shape:
            error = relative_error(found, value)
            if error < least:
                nearest, least = said(position, pair), error
    return nearest


def said(position: int | None, pair: tuple[int, int] | None) -> str:
    """A position and a motion of the window in words."""
    place = "no position" if position is None else PLACES[position]
    motion = "no motion" if pair is None else f"the motion from {STATES[pair[0]]} to {STATES[pair[1]]}"
    return f"{place}, and {motion}"


def expect_gradients(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], case: Case) -> None:
    """Every parameter's gradient must be the reference's, up to rounding."""
    expect(listed(wanted.keys() - found.keys()), f"what has no gradient ({case})").equals("nothing")
    total = float(torch.stack([gradient.norm() for gradient in wanted.values()]).norm())
    other = {
        name
        for name, gradient in wanted.items()
        if not float((found[name] - gradient).norm()) <= TOLERANCE * float(gradient.norm()) + 1e-5 * total
    }
    expect(listed(other), f"what has another gradient than the loss ({case})").equals("nothing")


def expect_windows(windows: Tensor, state: Tensor, first: Tensor) -> None:
    """Windows (N, 3, 3) around the demonstrated states (N, 3), whose first actions are (N, 3)."""
    expect(windows, "the windows").has_shape(len(state), 3, 3)
    expect(windows[:, PRESENT], "the present state in the windows").equals(state)
    after = torch.cat([(state + first)[:, :2], first[:, 2:].sign()], dim=1)
    expect(windows[:, NEXT], "the next state in the windows").close_to(after)
    expect(windows[:, BEFORE, 2], "the gripper before in the windows").equals(state[:, 2])
    expect(windows[:, BEFORE, :2], "the position before in the windows").between(0.0, 1.0)
    pushed = (windows[:, PRESENT] - windows[:, BEFORE])[:, :2]
    expect(pushed.abs(), "how far a hand moved the arm, in metres,").at_most(PUSHED + 1e-6)
    for axis, name in enumerate("xy"):
        expect(pushed[:, axis].max(), f"the largest push along {name}").above(PUSHED / 2)
        expect(pushed[:, axis].min(), f"the largest push against {name}").below(-PUSHED / 2)
    expect((pushed[:, 0] - pushed[:, 1]).abs().max(), "the difference between the pushes along x and y").above(
        PUSHED / 4
    )


def motion_of(batch: Mapping[str, Tensor]) -> Tensor:
    """The motion (B, 2) from before to present, in metres."""
    return (batch["state"][:, PRESENT] - batch["state"][:, BEFORE])[:, :2]


def changed(state: Tensor, at: int) -> Tensor:
    """The windows (B, 3, 3) with a state at one position that is 0.3 or more away in every number."""
    other = state.clone()
    other[:, at] = (state[:, at] + 0.5) % 1.0
    return other


def windowed_batch(rng: Rng, size: int) -> dict[str, Tensor]:
    """A batch whose states are windows (B, 3, 3) of states that differ by at least 0.1 along each axis.

    Its instructions have different lengths, and later steps may be padding.
    """
    thirds = torch.stack([torch.stack([rng.permutation(3) for _ in range(3)]) for _ in range(size)]).mT
    state = (thirds + rng.uniform(size, 3, 3, low=0.15, high=0.85)) / 3
    lengths = rng.permutation(size)[:, None] % (WORDS - 3) + 3
    words = {"attention_mask": (torch.arange(WORDS) < lengths).long()}
    return {**random_batch(rng, size), **words, "state": state, "action_is_pad": random_padding(rng, size)}
