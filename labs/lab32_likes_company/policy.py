"""A policy that predicts a plan in words, one word for each 20 cm of the way to the named block.

    patches, instruction, state ─┐
    <start> left left up grasp ──┴─ Llama ── plan head ── left left up grasp <end>

A plan goes sideways first, then along the table, then says `grasp`. Its length depends on the distance: two words for
an arm above its block, ten for one in the far corner. In training the plan's words are the input and the policy
predicts each next word; the robot starts from `<start>` and decodes one word at a time until `<end>`.

Notable choices
- The plan has its own vocabulary of seven words, with its own embedding table and head.
- A batch of plans is as long as its longest one. Everything after the end of a shorter plan is padding: the mask hides
  it from attention, and it is not part of the loss, which is the mean over the words of the batch's plans.
- Positions count only what the mask keeps, so a plan gives the same logits in every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers.utils import ModelOutput

from labs.vla.dataset import Batch, Moments, observation_batch
from labs.vla.heads import ActionHead
from labs.vla.policy import OBSERVATION_KEYS, Policy, PolicyConfig

PLAN_WORDS = ("left", "right", "up", "down", "grasp", "<end>", "<start>")
LEFT, RIGHT, UP, DOWN, GRASP, END, START = range(len(PLAN_WORDS))
STEP = 0.2
"""Metres per word."""
LONGEST = 16
IGNORED = -100
"""The label that the loss ignores."""


@dataclass
class PlanOutput(ModelOutput):
    """`loss`, a scalar, if labels were given, and `logits` (B, T, words)."""

    loss: Tensor | None = None
    logits: Tensor | None = None


def plan(arm: NDArray, block: NDArray) -> list[int]:
    """The words from arm (2,) to block (2,), both in metres, without `<end>`."""
    sideways, along = (round(float(way) / STEP) for way in block - arm)
    words = [RIGHT if sideways > 0 else LEFT] * abs(sideways)
    words += [DOWN if along > 0 else UP] * abs(along)
    return [*words, GRASP]


def collate_plans(plans: Sequence[Sequence[int]]) -> Batch:
    """Plans of any lengths as a batch: input ids, their mask, and the labels to predict, (B, T) each.

    `plan_ids` are `<start>` and the plan; `labels` are the plan and `<end>`, one position ahead.
    """
    rows = [torch.tensor(words) for words in plans]
    start, end = torch.tensor([START]), torch.tensor([END])
    plan_ids = pad_sequence([torch.cat([start, row]) for row in rows], batch_first=True)
    labels = pad_sequence([torch.cat([row, end]) for row in rows], batch_first=True)
    plan_mask = pad_sequence([torch.ones(len(row) + 1, dtype=torch.long) for row in rows], batch_first=True)
    return {"plan_ids": plan_ids, "plan_mask": plan_mask, "labels": labels}


def planning_batch(moments: Moments) -> Batch:
    """Everything that the policy trains on: observations and plans."""
    observation = observation_batch(moments.images(), moments.state(), moments.instruction)
    plans = [plan(arm, block) for arm, block in zip(moments.arm, moments.target_block, strict=True)]
    return {**observation, **collate_plans(plans)}


class PlanningPolicy(Policy):
    """The base policy with a plan in words; `policy(**batch).loss` trains it, `say(batch)` decodes plans."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.plan_embedding = nn.Embedding(len(PLAN_WORDS), self.config.width)
        nn.init.normal_(self.plan_embedding.weight, std=0.3)
        self.plan_head = nn.Linear(self.config.width, len(PLAN_WORDS))

    def build_head(self) -> ActionHead:
        """No head for actions: a controller follows the plan."""
        return ActionHead(self.config.horizon, self.config.action_dim)

    def forward(
        self,
        pixel_values: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        state: Tensor,
        plan_ids: Tensor,
        plan_mask: Tensor,
        labels: Tensor | None = None,
    ) -> PlanOutput:
        """Logits of the word after each of `plan_ids` (B, T), and the mean loss if `labels` (B, T) are given."""
        prefix, mask = self.embed_prefix(pixel_values, input_ids, attention_mask, state)
        sequence = torch.cat([prefix, self.plan_embedding(plan_ids)], dim=1)
        hidden = self.run_language_model(sequence, torch.cat([mask, plan_mask], dim=1))
        logits = self.plan_head(hidden[:, prefix.shape[1] :])  # (B, T, words)
        if labels is None:
            return PlanOutput(logits=logits)
        loss = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORED)
        return PlanOutput(loss=loss, logits=logits)

    @torch.no_grad()
    def say(self, batch: Batch) -> list[list[int]]:
        """The plan for each observation, without `<end>`; a plan that does not end is cut after 16 words."""
        observation = {name: batch[name] for name in OBSERVATION_KEYS}
        ids = torch.full((len(batch["state"]), 1), START)
        for _ in range(LONGEST):
            logits = self(**observation, plan_ids=ids, plan_mask=torch.ones_like(ids)).logits
            ids = torch.cat([ids, logits[:, -1, :START].argmax(dim=-1, keepdim=True)], dim=1)
        return [row[: row.index(END)] if END in row else row for row in ids[:, 1:].tolist()]


def build_policy(seed: int) -> PlanningPolicy:
    """The pretrained base, with the plan's embedding table and head drawn from `seed`."""
    return PlanningPolicy.from_base(seed=seed)
