"""Measures both paths to the policy for the grader and `lab run`; runs with the learner's code in the sandboxed child.

Raw frames are a dictionary: `image` uint8 (N, S, S, 3), `state` (N, 3), `instruction`, N sentences, `action` (N, H, 3)
and `action_is_pad` (N, H).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from debugkit import Declare
from labs.policy_comparison import with_louder_head
from labs.vla.dataset import Batch, Frames
from labs.vla.policy import OBSERVATION_KEYS, Policy
from labs.vla.rollout import Rollout, rollout
from labs.vla.tabletop import stack_observations
from labs.wide_camera import Observation, observations_of, through_the_wide_camera, wide_demonstrations

BATCH_SIZE = 64
TRAINING_STEPS = 150


def both_paths(
    learner: Any, raw: Mapping[str, Any], settings: Mapping[str, Any] | None, seed: int, louder: float = 1.0
) -> dict[str, Any]:
    """The training batch, and what a robot's policy received and answered, after saving and loading a checkpoint.

    Without `settings`, the processor is that of the learner's fine-tuning. `louder` multiplies the head's weights.
    """
    frames = _frames(raw)
    processor = learner.policy.TRAINED_WITH if settings is None else learner.policy.Processor(**settings)
    with _folder() as folder:
        policy = with_louder_head(Policy.from_base(seed=seed), louder)
        learner.policy.save_checkpoint(folder, policy, processor, {"seed": seed})
        seen = _asked(learner, folder, frames)
    return {**seen, "training": learner.policy.training_batch(frames, np.arange(len(frames)), processor)}


def from_file(learner: Any, raw: Mapping[str, Any], about: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """What a robot with a checkpoint in these words received and answered, and the error, if there was one."""
    with _folder() as folder:
        save_file(Policy.from_base(seed=seed).state_dict(), folder / "model.safetensors")
        (folder / "about.json").write_text(json.dumps(about))
        try:
            seen = _asked(learner, folder, _frames(raw))
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}", "robot": {}, "loaded": {}, "action": torch.zeros(0)}
    return {**seen, "error": None}


def in_one_folder(
    learner: Any, raw: Mapping[str, Any], files: list[Mapping[str, Any]], seed: int
) -> list[dict[str, Any]]:
    """What robots received and answered whose checkpoints were saved into one folder, one over the other."""
    found = []
    with _folder() as folder:
        for settings in files:
            processor = learner.policy.Processor(**settings)
            learner.policy.save_checkpoint(folder, Policy.from_base(seed=seed), processor, {"seed": seed})
            found.append(_asked(learner, folder, _frames(raw)))
    return found


def saved(learner: Any, settings: Mapping[str, Any], training: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """What is in the two files of a checkpoint, saved twice into a folder inside a new one."""
    processor = learner.policy.Processor(**settings)
    with _folder() as top:
        folder = top / "runs" / "48"
        for number in (seed + 1, seed):
            learner.policy.save_checkpoint(folder, Policy.from_base(seed=number), processor, training)
        return _files(learner, folder)


def fine_tuned(
    learner: Any, raw: Mapping[str, Any], seed: int, steps: int, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The inputs of the policy in each step of `fine_tune`, the losses, the files, and what it returned."""
    reported: list[list[float]] = []
    given = {} if settings is None else {"processor": learner.policy.Processor(**settings)}
    with _folder() as folder, _recorded() as seen:
        policy = learner.policy.fine_tune(
            _frames(raw), folder, seed, steps, on_step=lambda step, loss: reported.append([step, loss]), **given
        )
        files = _files(learner, folder)
    return {
        "seen": seen,
        "reported": reported,
        **files,
        "returned": {name: value.detach().clone() for name, value in policy.state_dict().items()},
        "training": policy.training,
    }


def trained_rollout(learner: Any, seed: int, episodes: int) -> dict[str, Tensor]:
    """Fine-tune from the base and run closed-loop episodes with the checkpoint."""
    with _folder() as folder:
        learner.policy.fine_tune(wide_demonstrations(TRAINING_STEPS * BATCH_SIZE, seed), folder, seed, TRAINING_STEPS)
        result = _drive(learner.policy.Robot(folder), episodes, 500_000 + seed)
    return {name: torch.from_numpy(getattr(result, name)) for name in ("success", "wrong_block", "distance")}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy, and both paths of one raw frame."""
    frames, processor = wide_demonstrations(64, seed=48), learner.policy.TRAINED_WITH
    policy = Policy.from_base(seed=0)
    with _folder() as folder:
        learner.policy.save_checkpoint(folder, policy, processor, {})
        robot = learner.policy.Robot(folder)

    def training(observations: list[Observation]) -> Batch:
        seen = stack_observations(observations)
        one = replace(frames, image=seen["image"], state=seen["state"], instruction=tuple(seen["instruction"]))
        return learner.policy.training_batch(one, np.arange(len(observations)), processor)

    return {
        "model": policy,
        "batch": learner.policy.training_batch(frames, np.arange(32), processor),
        "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3),
        "declare": Declare(training_path=training, serving_path=robot.observe, raw_frame=observations_of(frames)[:1]),
    }


def symptom(learner: Any) -> None:
    """Fine-tunes the policy, asks it on recordings and runs it on the robot: the output of `lab run 48`."""
    print(f"Fine-tuning the policy, {TRAINING_STEPS} steps\n")
    print("  step    loss")

    def report(step: int, loss: float) -> None:
        if step % 50 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)

    with _folder() as folder:
        frames = wide_demonstrations(TRAINING_STEPS * BATCH_SIZE, 48)
        policy = learner.policy.fine_tune(frames, folder, 48, TRAINING_STEPS, on_step=report)
        robot = learner.policy.Robot(folder)
    batch = learner.policy.training_batch(wide_demonstrations(500, 480), np.arange(500), learner.policy.TRAINED_WITH)
    found, expert = policy.predict(batch)[:, 0], batch["action"][:, 0]
    print("\n500 new recordings                      100 episodes on the robot")
    print("  distance to the expert's movement       success   no block   distance to the block")
    result = _drive(robot, 100, 10_000)
    print(
        f"  {100 * (found - expert)[:, :2].norm(dim=-1).median():.1f} cm{result.success_rate:42.0%}"
        f"{result.never_closed_rate:11.0%}{100 * result.final_distance:21.1f} cm"
    )


def _drive(robot: Any, episodes: int, first_seed: int) -> Rollout:
    predict = through_the_wide_camera(robot.act)
    return rollout(robot.policy, episodes=episodes, first_seed=first_seed, predict=predict)


def _asked(learner: Any, folder: Path, frames: Frames) -> dict[str, Any]:
    """What the policy of a checkpoint received from its robot, and the robot's actions, for these frames."""
    robot = learner.policy.Robot(folder)
    observations = observations_of(frames)
    with _recorded() as seen:
        action = robot.act(observations)
    loaded = learner.policy.load_processor(folder)(frames.image, frames.state, frames.instruction)
    received = seen[-1] if seen else {}
    return {"robot": received, "observed": robot.observe(observations), "loaded": loaded, "action": action}


@contextmanager
def _recorded() -> Iterator[list[Batch]]:
    """The observations that any policy encodes inside the block."""
    seen: list[Batch] = []
    encode = Policy.encode

    def recorded(self: Policy, *given: Tensor, **named: Tensor) -> Tensor:
        batch = {**dict(zip(OBSERVATION_KEYS, given, strict=False)), **named}
        seen.append({name: value.detach().clone() for name, value in batch.items()})
        return encode(self, *given, **named)

    with patch.object(Policy, "encode", recorded):
        yield seen


def _files(learner: Any, folder: Path) -> dict[str, Any]:
    about = json.loads((folder / learner.policy.ABOUT).read_text())
    return {"about": about, "weights": load_file(folder / learner.policy.WEIGHTS)}


def _frames(raw: Mapping[str, Any]) -> Frames:
    arrays = {name: raw[name].numpy() for name in ("image", "state", "action", "action_is_pad")}
    return Frames(instruction=tuple(raw["instruction"]), **arrays)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def saved_over(
    learner: Any, raw: Mapping[str, Any], settings: Mapping[str, Any], other: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """What a robot received and answered after another policy was saved over its checkpoint, with `other` settings."""
    observations = observations_of(_frames(raw))
    with _folder() as folder:
        for number, used in ((seed, settings), (seed + 1, other)):
            processor = learner.policy.Processor(**used)
            learner.policy.save_checkpoint(folder, Policy.from_base(seed=number), processor, {"seed": number})
            if number == seed:
                robot = learner.policy.Robot(folder)
        with _recorded() as seen:
            action = robot.act(observations)
        return {"robot": seen[-1] if seen else {}, "observed": robot.observe(observations), "action": action}
