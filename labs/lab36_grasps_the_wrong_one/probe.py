"""Measures both paths to the policy for the grader and `lab run`; runs with the learner's code in the sandboxed child.

Images of the cameras are dictionaries of uint8 tensors (N, H, W, 3), and a file is a uint8 tensor of its bytes. `told`
is the rest of a recording: `state` (N, 3), `instruction`, N sentences, `action` (N, H, 3) and `action_is_pad` (N, H).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from debugkit import Declare
from labs.policy_comparison import with_louder_head
from labs.two_cameras import as_delivered, through_two_cameras
from labs.vla.dataset import Batch, Frames, collate, demonstrations
from labs.vla.policy import Policy
from labs.vla.rollout import Rollout, rollout

BATCH_SIZE = 64
TRAINING_STEPS = 300
FIRST_EPISODE = 500_000

Views = Mapping[str, Tensor]


def both_paths(learner: Any, delivered: Views, told: Mapping[str, Any]) -> dict[str, Any]:
    """What the policy learns from and what it receives on the robot, for what the drivers delivered, and the files."""
    given, again = ({name: view.numpy().copy() for name, view in delivered.items()} for _ in range(2))
    grabbed = learner.policy.grab(given)
    before = _tensors(grabbed)
    files = learner.policy.record(grabbed)
    recorded = _tensors(grabbed)
    frames = learner.policy.training_frames(_recording(learner, files, told))
    robot = learner.policy.observe(again, told["state"].numpy(), list(told["instruction"]))
    return {
        "files": {name: [_bytes_of(file) for file in files[name]] for name in files},
        "grabbed": before,
        "after_recording": recorded,
        "delivered": [_tensors(given), _tensors(again)],
        "frames": _plain(frames),
        "training": collate(frames, range(len(frames))),
        "robot": robot,
    }


def from_files(learner: Any, files: Mapping[str, Sequence[Tensor]]) -> dict[str, Any]:
    """What `load` gives for files that another program wrote, and the previews of all moments."""
    there = {name: [file.numpy().tobytes() for file in one] for name, one in files.items()}
    moments = len(next(iter(there.values())))
    with torch.no_grad():
        loaded = _tensors(learner.policy.load(there))
    return {
        "loaded": loaded,
        "previews": [_tensor(learner.policy.preview(there, moment)) for moment in range(moments)],
    }


def action(
    learner: Any,
    delivered: Views,
    state: Tensor,
    instruction: Sequence[str],
    seed: int,
    louder: float = 1.0,
) -> dict[str, Batch | Tensor]:
    """The input of a fresh policy on the robot, and its action chunks (B, H, 3), its head's weights times `louder`."""
    given = {name: view.numpy() for name, view in delivered.items()}
    policy = with_louder_head(Policy.from_base(seed=seed), louder).eval()
    return {
        "robot": learner.policy.observe(given, state.numpy(), list(instruction)),
        "action": learner.policy.act(policy, given, state.numpy(), list(instruction)),
    }


def fine_tuned(
    learner: Any, files: Mapping[str, Sequence[Tensor]], told: Mapping[str, Any], seed: int, steps: int
) -> dict[str, Any]:
    """The weights and losses of a short fine-tuning, and the frames that it learned from."""
    there = {name: [file.numpy().tobytes() for file in one] for name, one in files.items()}
    recording = _recording(learner, there, told)
    reported: list[list[float]] = []
    policy = learner.policy.fine_tune(recording, seed, steps, on_step=lambda step, loss: reported.append([step, loss]))
    return {
        "frames": _plain(learner.policy.training_frames(recording)),
        "weights": {name: value.detach().clone() for name, value in policy.state_dict().items()},
        "reported": reported,
        "training": policy.training,
    }


def trained_rollout(learner: Any, seed: int, steps: int, episodes: int) -> dict[str, Tensor]:
    """Fine-tune on a recording, and run closed-loop episodes through the robot's cameras."""
    result = _drive(learner, _train(learner, seed, steps), episodes, FIRST_EPISODE + seed)
    return {name: torch.from_numpy(getattr(result, name)) for name in ("success", "wrong_block", "distance")}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy, and both paths of one moment."""
    frames = demonstrations(BATCH_SIZE, seed=36)
    policy = Policy.from_base(seed=0)

    def training(moment: Frames) -> Batch:
        return collate(learner.policy.training_frames(_record(learner, moment)), range(len(moment)))

    def serving(moment: Frames) -> Batch:
        return learner.policy.observe(as_delivered(moment.image), moment.state, moment.instruction)

    return {
        "model": policy,
        "batch": training(frames),
        "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3),
        "declare": Declare(training_path=training, serving_path=serving, raw_frame=demonstrations(1, seed=36)),
    }


def symptom(learner: Any) -> None:
    """Fine-tunes the policy, asks it on recordings and runs it on the robot: the output of `lab run 36`."""
    print(f"Fine-tuning the policy on recordings, {TRAINING_STEPS} steps\n")
    print("  step    loss")

    def report(step: int, loss: float) -> None:
        if step % 100 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)

    policy = _train(learner, 36, TRAINING_STEPS, report)
    new = _record(learner, demonstrations(500, seed=36_000))
    batch = collate(learner.policy.training_frames(new), range(500))
    error = (policy.predict(batch) - batch["action"])[:, 0, :2].norm(dim=-1).mean()
    result = _drive(learner, policy, 100, FIRST_EPISODE + 36)
    print("\n500 new recordings                      100 episodes on the robot")
    print("  distance to the expert's movement       success   another block   no block")
    rates = f"{result.success_rate:7.0%} {result.wrong_block_rate:15.0%} {result.never_closed_rate:10.0%}"
    print(f"  {100 * error:.1f} cm                                  {rates}")


def _train(learner: Any, seed: int, steps: int, on_step: Any = None) -> Policy:
    recording = _record(learner, demonstrations(steps * BATCH_SIZE, seed))
    return learner.policy.fine_tune(recording, seed, steps, on_step=on_step)


def _drive(learner: Any, policy: Policy, episodes: int, first_seed: int) -> Rollout:
    predict = through_two_cameras(partial(learner.policy.act, policy))
    return rollout(policy, episodes=episodes, first_seed=first_seed, predict=predict)


def _record(learner: Any, shown: Frames) -> Any:
    """A recording of demonstrations, seen by the two cameras."""
    files = learner.policy.record(learner.policy.grab(as_delivered(shown.image)))
    return learner.policy.Recording(files, shown.state, shown.instruction, shown.action, shown.action_is_pad)


def _recording(learner: Any, files: Mapping[str, Sequence[bytes]], told: Mapping[str, Any]) -> Any:
    arrays = {name: told[name].numpy() for name in ("state", "action", "action_is_pad")}
    return learner.policy.Recording(files=files, instruction=tuple(told["instruction"]), **arrays)


def _plain(frames: Frames) -> dict[str, Any]:
    arrays = {name: _tensor(getattr(frames, name)) for name in ("image", "state", "action", "action_is_pad")}
    return {**arrays, "instruction": list(frames.instruction)}


def _tensors(images: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: _tensor(image) for name, image in images.items()}


def _tensor(image: Any) -> Tensor:
    return torch.from_numpy(np.array(image))  # a copy, also of a view with negative strides


def _bytes_of(file: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(file, np.uint8).copy())


def exchanged_names(
    learner: Any, delivered: Views, files: Mapping[str, Sequence[Tensor]], told: Mapping[str, Any]
) -> dict[str, Any]:
    """What is made of files and of what the drivers deliver, where the mappings name the last camera first.

    `loaded`, the images of the files; `joined`, those of the same images, (N, H, W, 3); `image`, what the policy learns
    from; and `robot`, its input on the robot.
    """
    there = {name: [file.numpy().tobytes() for file in files[name]] for name in reversed(files)}
    loaded = learner.policy.load(there)
    given = {name: delivered[name].numpy().copy() for name in reversed(delivered)}
    return {
        "loaded": _tensors(loaded),
        "joined": _tensor(learner.policy.join({name: loaded[name] for name in there})),
        "image": _tensor(learner.policy.training_frames(_recording(learner, there, told)).image),
        "preview": _tensor(learner.policy.preview(there, 0)),
        "robot": learner.policy.observe(given, told["state"].numpy(), list(told["instruction"])),
    }
