"""Co-training on demonstrations and captions without a Trainer: what checks compare with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.grading import Rng
from labs.invariants import random_batch
from labs.vla.dataset import Batch, collate, demonstrations
from labs.vla.policy import Policy

Sample: TypeAlias = dict[str, Any]

HORIZON, ACTION_DIM = 4, 3
OBSERVATION = ("pixel_values", "input_ids", "attention_mask", "state")
WORDS = 0.1
LEARNING_RATE, WARM_UP_STEPS, WEIGHT_DECAY, BETAS, MAX_GRADIENT_NORM = 2e-3, 20, 0.01, (0.9, 0.95), 1.0


def batch_of(samples: Sequence[Sample]) -> Batch:
    """The batch of these samples."""
    batch = {name: torch.stack([sample[name] for sample in samples]) for name in OBSERVATION}
    given = [sample.get("action", torch.zeros(0, ACTION_DIM)) for sample in samples]
    chunk = torch.stack([F.pad(action, (0, 0, 0, HORIZON - len(action))) for action in given])
    length = torch.tensor([len(action) for action in given])
    return {**batch, "chunk": chunk, "is_step": torch.arange(HORIZON) < length[:, None]}


def losses_of(policy: Policy, batch: Batch) -> dict[str, Tensor]:
    """The losses of the chunks and of the words, computed separately."""
    observation = {name: batch[name] for name in OBSERVATION}
    predicted = policy.head(policy.encode(**observation))  # (B, H, A), normalised
    error = F.smooth_l1_loss(predicted, policy.action_statistics.normalize(batch["chunk"]), beta=0.1, reduction="none")
    steps = batch["is_step"]
    chunks = error[steps].mean() if bool(steps.any()) else 0.0 * error.sum()
    embeddings, mask = policy.embed_prefix(**observation)
    hidden = policy.run_language_model(embeddings, mask)
    words, patches = batch["input_ids"], hidden.shape[1] - batch["input_ids"].shape[1] - 1
    is_word = batch["attention_mask"].bool()
    is_word[:, 0] = False
    row, position = is_word.nonzero(as_tuple=True)
    logits = hidden[row, patches + position - 1] @ policy.language_model.embed_tokens.weight.T
    return {"chunks": chunks, "words": F.cross_entropy(logits, words[row, position])}


def loss_of(policy: Policy, batch: Batch) -> Tensor:
    """The documented loss."""
    losses = losses_of(policy, batch)
    return losses["chunks"] + WORDS * losses["words"]


def train(policy: Policy, batch: Batch, steps: int) -> list[Tensor]:
    """Train the policy in place with the whole batch in each step, as documented; returns the losses.

    Biases and the scales of norms have no weight decay, as in every Trainer.
    """
    decayed = {
        id(module.weight) for module in policy.modules() if isinstance(module, nn.Linear | nn.Embedding | nn.Conv2d)
    }
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for parameter in policy.parameters():
        groups[id(parameter) in decayed].append(parameter)
    settings = [{"params": groups[True], "weight_decay": WEIGHT_DECAY}, {"params": groups[False], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(settings, lr=LEARNING_RATE, betas=BETAS)
    policy.train()
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * rate_at(step, steps)
        loss = loss_of(policy, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        losses.append(loss.detach())
    return losses


def rate_at(step: int, steps: int) -> float:
    """Twenty steps of warm-up from 0, then a cosine to 0; relative to the peak."""
    if step < WARM_UP_STEPS:
        return step / WARM_UP_STEPS
    return 0.5 * (1 + math.cos(math.pi * (step - WARM_UP_STEPS) / max(1, steps - WARM_UP_STEPS)))


def mixture_of(count: int, seed: int) -> list[Sample]:
    """The samples of a mixture: the columns that are documented."""
    frames, robot = demonstrations(count, seed), count - count // 3
    samples: list[Sample] = []
    for index in range(count):
        frame = {name: value[0] for name, value in collate(frames, [index]).items()}
        sample: Sample = {name: frame[name] for name in OBSERVATION}
        sample["instruction"] = frames.instruction[index]
        sample["source"] = "robot" if index < robot else "web"
        samples.append({**sample, "action": frame["action"][~frame["action_is_pad"]]} if index < robot else sample)
    return samples


def random_samples(rng: Rng, demonstrations: int, captions: int) -> list[Sample]:
    """Samples in the documented format, with two columns for nobody. The first demonstration ends early, if it can."""
    samples: list[Sample] = []
    for number in range(demonstrations + captions):
        batch = random_batch(rng, 1)
        words = rng.integer(3, 9)
        batch["attention_mask"][:, words:] = 0
        batch["input_ids"][:, words:] = 0
        sample: Sample = {name: batch[name][0] for name in OBSERVATION}
        if number < demonstrations:
            sample["action"] = batch["action"][0, : rng.integer(1, HORIZON + (number > 0))]
        samples.append({**sample, "instruction": f"sentence {number}", "recorded_at": number})
    return samples
