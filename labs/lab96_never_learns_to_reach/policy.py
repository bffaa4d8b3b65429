"""A policy that the Hugging Face Trainer trains on demonstrations and on captioned images.

    demonstrations   image, sentence, state, action ┐
                                                    ├ shuffled ── collate ── policy ── loss of chunk and words
    captions         image, sentence, state         ┘

Demonstrations are expensive; images with a sentence are not. From captions the policy learns the words and what they
look like, from demonstrations the movements too.

Notable choices
- A sample is a dict of columns. All have those of an observation. Only demonstrations have `action`, the expert's next
  actions (n, A) in environment units: one for each step of a chunk, or fewer where the episode ends earlier.
- A batch has `chunk` (B, H, A), the actions padded with zeros, and `is_step` (B, H), true where the expert acts. A
  caption has no such step.
- The loss of the chunks is the head's, over the expert's steps; 0 in a batch without any.
- The loss of the words is the mean cross-entropy over all words of the batch, given the image and the words before.
- Samples may have other columns, as their source. Neither the batch nor the policy has those.
- The loss of held-out samples is the same one, also of those given to `evaluate`; the Trainer logs it as `eval_loss`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, Dataset
from transformers import Trainer, TrainingArguments

from labs.vla import dataset
from labs.vla.policy import OBSERVATION_KEYS, Policy, PolicyConfig, PolicyOutput

Sample = Mapping[str, Any]

HORIZON, ACTION_DIM = PolicyConfig.tiny().horizon, PolicyConfig.tiny().action_dim
LEARNING_RATE = 2e-3
WORDS = 0.1
"""The weight of the words in the loss; that of the chunks is 1."""


class CoTraining(nn.Module):
    """The training loss of a policy. `policy` itself is unchanged: it runs on the robot, and predicts as before."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(
        self,
        pixel_values: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        state: Tensor,
        chunk: Tensor,
        is_step: Tensor,
    ) -> PolicyOutput:
        """`loss`, a scalar: that of the chunks plus the weighted one of the words."""
        embeddings, mask = self.policy.embed_prefix(pixel_values, input_ids, attention_mask, state)
        hidden = self.policy.run_language_model(embeddings, mask)  # (B, P+L+1, D)
        before = hidden[:, -1 - input_ids.shape[1] : -2]  # (B, L-1, D)
        words = self.words_loss(before, input_ids[:, 1:], attention_mask[:, 1:])
        return PolicyOutput(loss=self.policy.loss(hidden[:, -1], chunk, ~is_step) + WORDS * words)

    def words_loss(self, before: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        """The cross-entropy of the words (B, N), from the hidden states of the tokens before them (B, N, D)."""
        logits = F.linear(before, self.policy.language_model.embed_tokens.weight)  # (B, N, vocabulary)
        error = F.cross_entropy(logits.flatten(0, 1), words.flatten(), reduction="none")
        return (error * mask.flatten()).sum() / mask.sum()


class Samples(Dataset[Sample]):
    """One sample for each frame: demonstrations if the source is a robot, else captions.

    Besides the columns for the policy, a sample has its sentence, `instruction`, and its `source`.
    """

    def __init__(self, frames: dataset.Frames, source: str) -> None:
        self.frames, self.source = frames, source

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> Sample:
        frame = {name: value[0] for name, value in dataset.collate(self.frames, [index]).items()}
        sample = {name: frame[name] for name in OBSERVATION_KEYS}
        if self.source == "robot":
            sample["action"] = frame["action"][~frame["action_is_pad"]]
        return {**sample, "instruction": self.frames.instruction[index], "source": self.source}


def mixture(count: int, seed: int) -> Dataset[Sample]:
    """`count` samples: demonstrations, and after them half as many captions, from the source `web`."""
    frames = dataset.demonstrations(count, seed)
    robot = count - count // 3

    def part(rows: slice) -> dataset.Frames:
        return dataset.Frames(**{name: values[rows] for name, values in vars(frames).items()})

    return ConcatDataset([Samples(part(slice(robot)), "robot"), Samples(part(slice(robot, None)), "web")])


def collate(samples: Sequence[Sample]) -> dict[str, Tensor]:
    """A batch of samples: the arguments of `CoTraining.forward`, and nothing else."""
    batch = {name: torch.stack([sample[name] for sample in samples]) for name in OBSERVATION_KEYS}
    chunk = torch.zeros(len(samples), HORIZON, ACTION_DIM)
    is_step = torch.zeros(len(samples), HORIZON, dtype=torch.bool)
    for row, sample in enumerate(samples):
        if "action" in sample:
            steps = len(sample["action"])
            chunk[row, :steps] = sample["action"]
            is_step[row, :steps] = True
    return {**batch, "chunk": chunk, "is_step": is_step}


def build_model(seed: int) -> CoTraining:
    """The pretrained base policy with a new head initialised from `seed`, ready for `build_trainer`."""
    return CoTraining(Policy.from_base(seed=seed))


def build_trainer(
    model: CoTraining,
    train: Dataset[Sample],
    held_out: Dataset[Sample],
    *,
    steps: int,
    folder: Path,
    seed: int,
    batch_size: int,
) -> Trainer:
    """A Trainer that trains `model` on samples of any data set, and evaluates it on others, in batches of `batch_size`.

    AdamW with betas of 0.9 and 0.95 and weight decay 0.01, 20 steps of warm-up and a cosine schedule. `seed` determines
    the order of the samples. Every 50 steps the training loss is logged and the held-out samples are evaluated; the
    loss of the first step is logged too. Nothing is written into `folder` but what the Trainer is asked to save.
    """
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=batch_size,
        per_device_eval_batch_size=batch_size,
        learning_rate=LEARNING_RATE,
        adam_beta2=0.95,
        weight_decay=0.01,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        label_names=["chunk"],  # without it, the Trainer computes no `eval_loss`
        eval_strategy="steps",
        logging_steps=50,
        logging_first_step=True,
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        seed=seed,
    )
    return Trainer(model, arguments, data_collator=collate, train_dataset=train, eval_dataset=held_out)
