"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import debugkit
from labs.vla.dataset import Moments, sample_moments

BATCH_SIZE, LEARNING_RATE = 32, 2e-3
SYMPTOM_STEPS, STEPS_BY_HEART, FRAMES_BY_HEART = 100, 100, 16
_STREAM = 32


def training_step(
    learner: Any, observation: dict[str, Tensor], plans: list[list[int]], training: bool, seed: int
) -> dict[str, Any]:
    """The loss of a fresh policy, its logits (B, T, words), and the gradients of the logits and the parameters."""
    policy = learner.policy.build_policy(seed).train(training)
    logits: list[Tensor] = []

    def keep(_module: Any, _inputs: Any, output: Tensor) -> None:
        output.retain_grad()
        logits.append(output)

    policy.plan_head.register_forward_hook(keep)
    output = policy(**observation, **learner.policy.collate_plans(plans))
    output.loss.backward()
    gradients = {name: value.grad for name, value in policy.named_parameters()}
    return {
        "loss": output.loss.detach(),
        "returned": output.logits.detach(),
        "logits": logits[-1].detach(),
        "gradient": logits[-1].grad,
        "gradients": gradients,
    }


def vocabulary(learner: Any) -> list[str]:
    """The words of the plans, in the order of their ids."""
    return list(learner.policy.PLAN_WORDS)


def stored(learner: Any, seed: int) -> dict[str, Any]:
    """The names in the checkpoint, and the sizes of the head."""
    policy = learner.policy.build_policy(seed)
    return {"names": sorted(policy.state_dict()), "head": [policy.head.horizon, policy.head.action_dim]}


def logits(
    learner: Any, observation: dict[str, Tensor], plans: list[list[int]], training: bool, seed: int
) -> dict[str, Any]:
    """The logits (B, T, words) of a fresh policy that reads these plans without labels, and the loss."""
    policy = learner.policy.build_policy(seed).train(training)
    batch = learner.policy.collate_plans(plans)
    with torch.no_grad():
        output = policy(**observation, plan_ids=batch["plan_ids"], plan_mask=batch["plan_mask"])
    return {"logits": output.logits, "loss": output.loss}


def batch(learner: Any, seed: int, count: int) -> dict[str, Any]:
    """The batch of `count` moments drawn from `seed`, and the plan of each."""
    moments = sample_moments(np.random.default_rng(seed), count)
    return {"batch": learner.policy.planning_batch(moments), "plans": _plans(learner, moments)}


def said(learner: Any, observation: dict[str, Tensor], weight: Tensor, bias: Tensor, seed: int) -> list[list[int]]:
    """The plans that a policy says whose plan head has this weight and bias."""
    policy = learner.policy.build_policy(seed).eval()
    with torch.no_grad():
        policy.plan_head.weight.copy_(weight)
        policy.plan_head.bias.copy_(bias)
    words: list[list[int]] = policy.say(observation)
    return words


def learnt_by_heart(learner: Any, seed: int) -> dict[str, Tensor]:
    """After many steps on one batch of plans: whether each next word is correct, and the expected word, (N,) each."""
    moments = _moments(FRAMES_BY_HEART, seed)
    policy, _ = _train(learner, seed, STEPS_BY_HEART, learner.policy.planning_batch(moments))
    right, wanted = _next_words(learner, policy, moments)
    return {"right": right, "wanted": wanted}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of plans."""
    policy = learner.policy.build_policy(0)
    return {
        "model": policy,
        "batch": learner.policy.planning_batch(_moments(48, 3)),
        "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3),
        "declare": debugkit.Declare(padding_mask="plan_mask", labels="labels"),
    }


def symptom(learner: Any) -> None:
    """Trains the planner and computes the loss of the same frames in different batches: the output of `lab run 32`."""
    print(f"Training the planner, {SYMPTOM_STEPS} steps\n\n  step    loss")
    policy, losses = _train(learner, 32, SYMPTOM_STEPS)
    for step in (*range(0, SYMPTOM_STEPS, 20), SYMPTOM_STEPS - 1):
        print(f"  {step:4d}  {losses[step]:6.3f}")
    moments = _moments(256, 33)
    right, _ = _next_words(learner, policy, moments)
    plans = _plans(learner, moments)
    said = policy.say(learner.policy.planning_batch(moments))
    exact = sum(one == other for one, other in zip(said, plans, strict=True)) / len(plans)
    print(
        f"\nOn 256 new frames: {float(right.double().mean()):.0%} of the next words correct, {exact:.0%} of the plans\n"
    )
    by_length = sorted(range(len(plans)), key=lambda i: len(plans[i]))
    near, far = by_length[:8], by_length[-1:]
    print("The loss of the same frames            words")
    for name, rows in (("eight short plans", near), ("one long plan", far), ("all nine in one batch", near + far)):
        batch = learner.policy.planning_batch(_take(moments, rows))
        with torch.no_grad():
            loss = float(policy(**batch).loss)
        print(f"  {name:<22} {loss:6.3f}       {sum(len(plans[i]) + 1 for i in rows):3d}")


def _train(learner: Any, seed: int, steps: int, batch: dict[str, Tensor] | None = None) -> tuple[Any, list[float]]:
    """Train a fresh policy on `batch`, or on fresh frames at every step."""
    policy = learner.policy.build_policy(seed)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95))
    rng = np.random.default_rng([_STREAM, seed])
    losses = []
    policy.train()
    for _ in range(steps):
        loss = policy(**(batch or learner.policy.planning_batch(sample_moments(rng, BATCH_SIZE)))).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return policy.eval(), losses


def _next_words(learner: Any, policy: Any, moments: Moments) -> tuple[Tensor, Tensor]:
    """For every word of every plan: whether the most likely word is the plan's, and the plan's word, (N,) each."""
    plans = [[*words, learner.policy.END] for words in _plans(learner, moments)]
    batch = learner.policy.planning_batch(moments)
    batch.pop("labels")
    with torch.no_grad():
        likeliest = policy(**batch).logits.argmax(dim=-1)
    pairs = [(int(likeliest[row, t]), word) for row, words in enumerate(plans) for t, word in enumerate(words)]
    said, wanted = torch.tensor(pairs).unbind(dim=1)
    return said == wanted, wanted


def _plans(learner: Any, moments: Moments) -> list[list[int]]:
    return [learner.policy.plan(arm, block) for arm, block in zip(moments.arm, moments.target_block, strict=True)]


def _moments(count: int, seed: int) -> Moments:
    return sample_moments(np.random.default_rng([_STREAM, 1, seed]), count)


def _take(moments: Moments, rows: list[int]) -> Moments:
    chosen = {name: value[rows] for name, value in vars(moments).items() if name != "instruction"}
    return Moments(**chosen, instruction=tuple(moments.instruction[i] for i in rows))


def part_of_a_batch(
    learner: Any, observation: dict[str, Tensor], plans: list[list[int]], hidden: Tensor, seed: int
) -> dict[str, Any]:
    """What a fresh policy reads of the first plans of a batch, one for each observation, which stays as wide as it is.

    The logits (B, T, words) and the loss with the labels, the logits without them, and those with labels that are
    IGNORED where `hidden` (B, T) is true.
    """
    policy = learner.policy.build_policy(seed).eval()
    batch = {name: value[: len(hidden)] for name, value in learner.policy.collate_plans(plans).items()}
    labels = batch.pop("labels")
    fewer = labels.masked_fill(hidden, getattr(learner.policy, "IGNORED", -100))
    with torch.no_grad():
        output = policy(**observation, **batch, labels=labels)
        return {
            "loss": output.loss,
            "with the labels": output.logits,
            "without labels": policy(**observation, **batch).logits,
            "with labels of which some words are ignored": policy(**observation, **batch, labels=fewer).logits,
        }
