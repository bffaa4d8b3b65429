"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labs.vla.dataset import batches, demonstrations
from labs.vla.tabletop import Tabletop, expert_action
from labs.vla.training import overfit

BATCH_SIZE = 32
LEARNING_RATE = 3e-3
STEPS = 80
EPISODES = 50


def there_and_back(
    learner: Any, demonstrated: Tensor, action_is_pad: Tensor, action: Tensor, training: bool = True
) -> dict[str, Tensor]:
    """With the ranges of `demonstrated` (N, H, A): `action` (M, A) encoded, and decoded again."""
    tokeniser = _tokeniser(learner, demonstrated, action_is_pad).train(training)
    tokens = tokeniser.encode(action)
    return {"tokens": tokens, "returned": tokeniser.decode(tokens)}


def every_token(learner: Any, demonstrated: Tensor, action_is_pad: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    """With the ranges of `demonstrated` (N, H, A): `tokens` (M, A) decoded, and encoded again."""
    tokeniser = _tokeniser(learner, demonstrated, action_is_pad)
    actions = tokeniser.decode(tokens)
    return {"actions": actions, "again": tokeniser.encode(actions)}


def loss_and_action(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """A fresh policy with the batch's ranges: its loss, the tokens of the demonstrated actions, and the executed chunk
    (B, H, A)."""
    policy = _policy(learner, batch, seed)
    with torch.no_grad():
        loss = policy(**batch).loss
    return {"loss": loss, "tokens": policy.head.encode(batch["action"]), "action": policy.predict(batch)}


def decoded_by(learner: Any, seed: int, count: int, tokens: Tensor) -> dict[str, Any]:
    """`tokens` (M, A) decoded by a built policy, by one fitted twice, and by one that loads the first one's state; and
    the weights of the first one's head."""
    frames, others = demonstrations(count, seed), demonstrations(count, seed + 1)
    built, again = (learner.policy.build_policy(some, seed) for some in (frames, others))
    again.head.tokeniser.fit(torch.from_numpy(frames.action), torch.from_numpy(frames.action_is_pad))
    loaded = learner.policy.SpeakingPolicy.from_base(seed=1)
    loaded.load_state_dict(built.state_dict())
    policies = {"a built policy": built, "a policy fitted again": again, "a policy that loads the checkpoint": loaded}
    decoded = {name: policy.head.decode(tokens) for name, policy in policies.items()}
    return {"decoded": decoded, "head": built.head.state_dict()}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy with the batch's ranges predicts, (B, H, 3)."""
    return _policy(learner, batch, seed).predict(batch)


def overfitted(learner: Any, seed: int, steps: int) -> dict[str, Tensor]:
    """After training on one batch: the executed and the demonstrated actions, (M, A), without padded steps, and the
    ranges of the demonstrations, (A,)."""
    policy, batch = _overfitted(learner, seed, steps)
    frames = demonstrations(2000, seed)
    steps_of = torch.from_numpy(frames.action)[~torch.from_numpy(frames.action_is_pad)]
    real = ~batch["action_is_pad"]
    return {
        "executed": policy.predict(batch)[real],
        "wanted": batch["action"][real],
        "low": steps_of.amin(dim=0),
        "high": steps_of.amax(dim=0),
    }


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of demonstrations."""
    frames = demonstrations(2000, seed=34)
    policy = learner.policy.build_policy(frames, 0)
    batch = next(batches(frames, BATCH_SIZE, steps=1, seed=34))
    return {"model": policy, "batch": batch, "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3)}


def symptom(learner: Any) -> None:
    """Overfits one batch, and replays recorded episodes through the tokens: the output of `lab run 34`."""
    policy, batch = _overfitted(learner, 34, STEPS)
    real = ~batch["action_is_pad"]
    with torch.no_grad():
        executed = policy.predict(batch)
    right = (policy.head.encode(executed) == policy.head.encode(batch["action"]))[real].double().mean()
    off = 1000 * (executed - batch["action"])[real].mean(dim=0)
    print(f"Overfitting one batch of {BATCH_SIZE} frames, {STEPS} steps")
    print(f"  executed tokens equal to the demonstrated ones   {right:.1%}")
    print(f"  executed minus demonstrated, mean                dx {off[0]:+.2f} mm   dy {off[1]:+.2f} mm")
    moved, length = _replayed(policy.head)
    print(f"\nReplaying {EPISODES} recorded episodes (mean {length:.1f} actions), each action encoded and decoded")
    print("  where the arm ends, against the recording        ", end="")
    print(f"x {100 * moved[:, 0].mean():+.1f} cm    y {100 * moved[:, 1].mean():+.1f} cm")
    print(f"  episodes that end to the left of and above it    {int((moved < 0).all(axis=1).sum())} of {EPISODES}")


def _replayed(head: Any) -> tuple[NDArray[np.float64], float]:
    """Each replayed episode's end minus its recorded end, (N, 2) metres, and the mean number of actions."""
    moved, lengths = [], []
    for seed in range(EPISODES):
        table = Tabletop()
        table.reset(seed=seed)
        recorded = replayed = table.scene.arm
        block, steps = table.scene.blocks[table.scene.target], 0
        while steps < table.max_steps:
            action = expert_action(recorded[None], block[None])[0]
            spoken = head.decode(head.encode(torch.from_numpy(action)[None].float()))[0].numpy()
            recorded = np.clip(recorded + action[:2], 0.0, 1.0)
            replayed = np.clip(replayed + spoken[:2], 0.0, 1.0)
            steps += 1
            if action[2] > 0:
                break
        moved.append(replayed - recorded)
        lengths.append(steps)
    return np.array(moved), float(np.mean(lengths))


def _overfitted(learner: Any, seed: int, steps: int) -> tuple[Any, dict[str, Tensor]]:
    frames = demonstrations(2000, seed)
    policy = learner.policy.build_policy(frames, seed)
    batch = next(batches(frames, BATCH_SIZE, steps=1, seed=seed))
    overfit(policy, batch, steps, learning_rate=LEARNING_RATE, seed=seed)
    return policy, batch


def _tokeniser(learner: Any, demonstrated: Tensor, action_is_pad: Tensor) -> Any:
    tokeniser = learner.policy.ActionTokeniser(demonstrated.shape[-1])
    tokeniser.fit(demonstrated, action_is_pad)
    return tokeniser


def _policy(learner: Any, batch: dict[str, Tensor], seed: int) -> Any:
    policy = learner.policy.SpeakingPolicy.from_base(seed=seed).eval()
    policy.head.tokeniser.fit(batch["action"], batch["action_is_pad"])
    return policy
