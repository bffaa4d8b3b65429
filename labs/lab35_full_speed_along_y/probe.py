"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.dataset import Frames, demonstrations
from labs.vla.tabletop import MAX_STEP

FRAMES, STEPS = 16, 80
LEARNING_RATE = 2e-3


def training_step(
    learner: Any, observation: dict[str, Tensor], texts: list[str], training: bool, seed: int
) -> dict[str, Any]:
    """The loss of a fresh policy on these texts, the logits (B, T, tokens), and the gradients of the parameters."""
    policy = learner.policy.build_policy(seed).train(training)
    output = policy(**observation, **learner.policy.collate_texts(texts))
    output.loss.backward()
    gradients = {name: value.grad for name, value in policy.named_parameters() if value.grad is not None}
    return {"loss": output.loss.detach(), "logits": output.logits.detach(), "gradients": gradients}


def stored(learner: Any, seed: int) -> dict[str, Any]:
    """The names in the checkpoint, and the sizes of the head for actions."""
    policy = learner.policy.build_policy(seed)
    return {"names": sorted(policy.state_dict()), "head": [policy.head.horizon, policy.head.action_dim]}


def batch(learner: Any, seed: int, count: int) -> dict[str, Tensor]:
    """The training batch of `count` demonstrations drawn from `seed`."""
    made: dict[str, Tensor] = learner.policy.text_batch(demonstrations(count, seed))
    return made


def written(learner: Any, action: Tensor) -> dict[str, Any]:
    """The texts of actions (N, 3), and what is read from them (N, 3)."""
    texts = [learner.policy.write(one) for one in action]
    return {"texts": texts, "read": torch.stack([learner.policy.read(text) for text in texts])}


def readings(learner: Any, texts: list[str]) -> dict[str, Any]:
    """For each text: the action that is read (N, 3), and its tokens."""
    found = torch.stack([learner.policy.read(text) for text in texts])
    return {"read": found, "tokens": [list(learner.policy.tokenise(text)) for text in texts]}


def generated(learner: Any, observation: dict[str, Tensor], weight: Tensor, bias: Tensor, seed: int) -> dict[str, Any]:
    """What a policy generates, says and answers whose text head has this weight and bias.

    `positions` is how many positions each call of the language model had while generating, `graph` whether one of the
    calls recorded a graph.
    """
    policy = learner.policy.build_policy(seed).eval()
    with torch.no_grad():
        policy.text_head.weight.copy_(weight)
        policy.text_head.bias.copy_(bias)
    positions: list[int] = []
    graph: list[bool] = []

    def look(_module: Any, _inputs: Any, output: Any) -> None:
        positions.append(output.last_hidden_state.shape[1])
        graph.append(output.last_hidden_state.requires_grad)

    handle = policy.language_model.register_forward_hook(look)
    tokens = policy.generate(observation)
    handle.remove()
    return {
        "tokens": tokens,
        "positions": positions,
        "graph": any(graph),
        "texts": policy.say(observation),
        "action": policy.answer(observation),
    }


def memorised(learner: Any, seed: int) -> dict[str, Any]:
    """After many steps on one batch: what the policy writes for it, how many tokens each answer took, the action
    (B, 3), and the demonstrated action (B, 3)."""
    policy, frames, batch, _ = _memorised(learner, seed, STEPS)
    return {
        "texts": policy.say(batch),
        "tokens": policy.generate(batch).shape[1],
        "action": policy.answer(batch),
        "wanted": _first_actions(frames),
    }


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of texts."""
    policy = learner.policy.build_policy(0)
    return {
        "model": policy,
        "batch": learner.policy.text_batch(demonstrations(48, seed=3)),
        "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3),
    }


def symptom(learner: Any) -> None:
    """Memorises a batch, and compares what the robot does with the demonstrations: the output of `lab run 35`."""
    print(f"Memorising {FRAMES} demonstrations, {STEPS} steps\n\n  step    loss")
    policy, frames, batch, losses = _memorised(learner, 35, STEPS)
    for step in (0, 20, 40, 60, STEPS - 1):
        print(f"  {step:4d}  {losses[step]:6.3f}")
    wanted, texts = _first_actions(frames), [learner.policy.write(action) for action in _first_actions(frames)]
    print(f"\nNext characters predicted correctly: {_accuracy(learner, policy, batch, texts):.0%}")
    command = policy.answer(batch)
    right = ((command - wanted).abs() < 0.001).sum(dim=0).tolist()
    beyond = (command[:, :2].abs() > MAX_STEP + 0.001).sum(dim=0).tolist()
    print("\nWhat the robot is told in these frames   gripper     dx     dy")
    print(f"  as demonstrated, to 1 mm               {right[2]:7d} {right[0]:6d} {right[1]:6d}   of {FRAMES}")
    print(f"  farther than it can move in a step     {'-':>7} {beyond[0]:6d} {beyond[1]:6d}   of {FRAMES}")


def _memorised(learner: Any, seed: int, steps: int) -> tuple[Any, Frames, dict[str, Tensor], list[float]]:
    frames = demonstrations(FRAMES, seed)
    policy, batch = learner.policy.build_policy(seed), learner.policy.text_batch(frames)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95))
    losses = []
    policy.train()
    for _ in range(steps):
        loss = policy(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return policy.eval(), frames, batch, losses


def _accuracy(learner: Any, policy: Any, batch: dict[str, Tensor], texts: list[str]) -> float:
    """The share of the texts' characters that are the likeliest after those before them."""
    with torch.no_grad():
        likeliest = policy(**batch).logits.argmax(dim=-1).tolist()
    right = [
        learner.policy.VOCABULARY[token] == character
        for row, text in zip(likeliest, texts, strict=True)
        for token, character in zip(row, text, strict=False)
    ]
    return sum(right) / len(right)


def _first_actions(frames: Frames) -> Tensor:
    return torch.from_numpy(frames.action[:, 0])
