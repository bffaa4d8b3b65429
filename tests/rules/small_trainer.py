"""A short training by a Trainer of transformers, for the fixtures of several files."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import nn


def train_in_pairs(trainer: type, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Six steps, each of two micro-batches of four rows `{"x": (4,), "labels": ()}` of three classes."""
    from transformers import TrainingArguments  # imports Accelerate as well, which other fixtures do not need

    x, labels = torch.randn(64, 4), torch.randint(3, (64,))
    rows: list[dict[str, Any]] = [{"x": one, "labels": label} for one, label in zip(x, labels, strict=True)]
    with tempfile.TemporaryDirectory() as folder:  # a Trainer makes its folder, also if it saves nothing
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            max_steps=6,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer(model=model, args=arguments, train_dataset=rows, optimizers=(optimizer, None)).train()
