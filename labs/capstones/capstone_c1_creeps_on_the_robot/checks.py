"""Requirements for the head of the project. Runs in the grader's process; judges data, and never sees the code.

The references are the healthy policy, and the mean and the standard deviation computed from the definition.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect
from labs.invariants import (
    expect_equal,
    expect_image_and_instruction_to_matter,
    expect_success_rate,
    random_batch,
    random_padding,
)
from labs.vla.dataset import ActionStatistics, batches, collate, demonstrations
from labs.vla.policy import Policy
from labs.vla.rollout import rollout
from labs.vla.training import fit

SETTINGS = {
    "frames": 9600,
    "data_seed": 1,
    "horizon": 4,
    "seed": 0,
    "batch_size": 64,
    "steps": 150,
    "learning_rate": 0.001,
    "episodes": 50,
    "first_seed": 20_000,
    "execute": 2,
}
HELD_OUT, HELD_OUT_SEED = 256, 900_000
EPISODES, SUCCESS_BAR = 50, 0.9


@check(
    kind="behaviour",
    title="A predicted action is in metres",
    property="The predicted chunk must be the head's numbers, times the standard deviation of the demonstrations' actions, plus their mean.",
    instrument="debugkit.check(policy, batch, select=['DK401'])",
)
def test_predicted_actions_are_in_metres(submission: Submission, rng: Rng) -> None:
    for count in (64, rng.integer(100, 300)):
        seen = submission.observe("chunk", batch=random_batch(rng, 5), seed=rng.integer(0, 1000), count=count)
        frames = demonstrations(count, seed=SETTINGS["data_seed"])
        mean, std = moments(torch.from_numpy(frames.action), torch.from_numpy(frames.action_is_pad))
        wanted = seen["head"] * std + mean
        for name, how in (("action", "policy.predict(batch)"), ("called", "policy(**batch).action")):
            expect(seen[name], f"the chunk of `{how}`").has_shape(*wanted.shape)
            expect(gain(seen[name], seen["head"], std), f"the gain of the movements of `{how}`").close_to(
                1.0, rtol=1e-3
            )
            expect_equal(seen[name], wanted, f"the chunk of `{how}`")


@check(
    kind="behaviour",
    title="Converting there and back changes nothing",
    property="`unnormalize(normalize(x))` must be x, for actions of any size and for any number of dimensions.",
    instrument="python -c 'from model import *; s = ActionScale.of(torch.randn(9, 4, 3) / 9, torch.zeros(9, 4).bool()); print(s.unnormalize(s.normalize(torch.ones(3))))'",
)
def test_conversions_are_inverse(submission: Submission, rng: Rng) -> None:
    for width, size in ((3, 0.05), (rng.integer(4, 9), 1.0), (2, 20.0)):
        given, is_pad, tried = drawn(rng, width, size)
        seen = submission.observe("scaled", action=given, is_pad=is_pad, tried=tried)
        expect(seen["back"], "what comes back").has_shape(*tried.shape)
        expect_equal(seen["back"], tried, f"what comes back, for actions of about {size:g},")
        mean, std = moments(given, is_pad)
        expect_equal(seen["actions"], tried * std + mean, f"the actions from numbers, for actions of about {size:g},")


@check(
    kind="outcome",
    title="The arm grasps the named block",
    property=f"After a training with the project's settings, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on new tables must end with a grasp of the named block.",
    instrument="lab run c1",
)
def test_robot_grasps(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


@check(
    kind="behaviour",
    title="The rates are shares of all episodes",
    property="`success` and `wrong_block` must be shares of all episodes that were started, however they ended.",
    instrument="python -c 'from evaluate import *; print(evaluate.__doc__)'",
)
def test_rates_are_shares_of_all_episodes(submission: Submission, rng: Rng) -> None:
    for count, reached in ((40, 0.1), (rng.integer(20, 90), 0.5), (rng.integer(5, 20), 0.9), (8, 0.0), (7, 1.0)):
        ended = rng.uniform(count)
        success, wrong = ended < 0.7 * reached, (ended >= 0.7 * reached) & (ended < reached)
        seen = submission.observe("summarised", success=success, wrong_block=wrong)
        said = f"for {int(success.sum())} grasps, {int(wrong.sum())} at another block and {count} episodes in all"
        expect(seen.get("success"), f"`success` {said}").close_to(int(success.sum()) / count)
        expect(seen.get("wrong_block"), f"`wrong_block` {said}").close_to(int(wrong.sum()) / count)


@check(
    kind="behaviour",
    title="The evaluation counts every episode",
    property="For a policy that always gives the same command, `evaluate` must give the shares of all episodes, which are those of a rollout with the same settings.",
    instrument="lab run c1",
)
def test_evaluation_counts_every_episode(submission: Submission, rng: Rng) -> None:
    policy = Policy.from_base()
    for move, grip in ((0.0, 1.0), (0.05, 1.0), (0.02, -1.0)):
        changed = {"episodes": rng.integer(20, 60), "first_seed": rng.integer(20_000, 90_000), "execute": 3}
        seen = submission.observe("evaluated", move=move, grip=grip, changed=changed)
        command = torch.tensor([move, move, grip])
        result = rollout(policy, **changed, predict=lambda batch, one=command: one.expand(len(batch["state"]), 4, 3))
        said = f"for a policy that always commands ({move:g}, {move:g}, {grip:g})"
        expect(seen.get("success"), f"`success` {said}").close_to(result.success_rate)
        expect(seen.get("wrong_block"), f"`wrong_block` {said}").close_to(result.wrong_block_rate)


@check(
    kind="invariant",
    title="The head learns numbers of mean 0 and deviation 1",
    property="`normalize` must subtract the mean of the actions and divide by their standard deviation, both without padded steps.",
    instrument="python -c 'from model import *; print(ActionScale.of(torch.randn(9, 4, 3), torch.zeros(9, 4).bool()))'",
)
def test_targets_are_as_before(submission: Submission, rng: Rng) -> None:
    for width, size in ((3, 0.05), (5, 2.0)):
        given, is_pad, tried = drawn(rng, width, size)
        seen = submission.observe("scaled", action=given, is_pad=is_pad, tried=tried)
        mean, std = moments(given, is_pad)
        expect_equal(seen["normalized"], (tried - mean) / std, "the numbers that the head learns")


@check(
    kind="invariant",
    title="The training is as it was",
    property="The losses of a training must be those of the pretrained base with a new head on the actions' numbers of mean 0 and deviation 1; the held-out loss must be that of the 256 held-out demonstrations.",
    instrument="git diff HEAD -- train.py data.py",
)
def test_training_is_as_before(submission: Submission, rng: Rng) -> None:
    changed = {
        "seed": rng.integer(0, 1000),
        "data_seed": rng.integer(0, 1000),
        "frames": 64,
        "batch_size": 8,
        "steps": 3,
    }
    frames = demonstrations(64, seed=changed["data_seed"])
    policy = reference(changed["seed"], frames)
    wanted = fit(policy, frames, steps=3, seed=changed["seed"], batch_size=8, learning_rate=SETTINGS["learning_rate"])
    found = submission.observe("losses", changed=changed)
    expect(torch.tensor(found), "the losses of three steps").close_to(torch.tensor(wanted), rtol=1e-3)
    policy = reference(5, demonstrations(96, seed=SETTINGS["data_seed"]))
    batch = collate(demonstrations(HELD_OUT, HELD_OUT_SEED), np.arange(HELD_OUT))
    with torch.no_grad():
        loss = float(policy(**batch).loss)
    logged = submission.observe("held_out_loss", seed=5, batch_size=96)
    expect(logged["loss"], "the held-out loss").close_to(loss, rtol=1e-3)
    for number in ("0.25", "50%", "25%"):
        expect(logged["line"], "the line of the log").contains(number)


@check(
    kind="invariant",
    title="The settings are as they were",
    property="`config.yaml` must have the settings of the head: a slow arm is not to be made up for by more steps or other tables.",
    instrument="git diff HEAD -- config.yaml",
)
def test_settings_are_kept(submission: Submission) -> None:
    found = submission.observe("settings")
    expect(found, "the settings").equals(SETTINGS)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    batch = next(batches(demonstrations(24, seed=rng.integer(0, 1000)), 6, steps=1, seed=0))
    expect_image_and_instruction_to_matter(submission, rng, batch=batch)


def drawn(rng: Rng, width: int, size: float) -> tuple[Tensor, Tensor, Tensor]:
    """Actions (N, 4, A) whose padded steps are far away, what is padded (N, 4), and values to convert (5, 4, A)."""
    spread = size * rng.uniform(width, low=0.5, high=3.0)
    given = rng.normal(12, 4, width) * spread + size
    is_pad = random_padding(rng, 12)
    return torch.where(is_pad[..., None], 9 * size, given), is_pad, rng.normal(5, 4, width) * spread


def moments(action: Tensor, is_pad: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (A,) of actions (N, H, A) without padded steps (N, H)."""
    rows = action[~is_pad].double()
    return rows.mean(dim=0).float(), rows.std(dim=0).float()


def gain(action: Tensor, head: Tensor, std: Tensor) -> float:
    """The movements of a chunk (B, H, A) over those that the head's numbers stand for."""
    meant, moved = (head * std)[..., :2].flatten(0, 1), action[..., :2].flatten(0, 1)
    meant, moved = meant - meant.mean(dim=0), moved - moved.mean(dim=0)
    return float((moved * meant).sum() / meant.square().sum())


def reference(seed: int, frames: object) -> Policy:
    """The healthy policy, whose statistics are those of the frames."""
    policy = Policy.from_base(seed=seed)
    mean, std = moments(torch.from_numpy(frames.action), torch.from_numpy(frames.action_is_pad))  # type: ignore[attr-defined]
    policy.action_statistics = ActionStatistics(mean, std)
    return policy
