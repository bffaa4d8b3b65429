"""Training scripts with epochs: schedules, the best weights, averaged weights, a checkpoint to resume from."""

from __future__ import annotations

import copy
import io
import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from healthy.loops import optimizer_of
from healthy.program import LONG, Program, program


def classifier() -> nn.Sequential:
    """A small network for 16 × 16 grey images."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 4),
    )  # fmt: skip


def quadrants(count: int = 16) -> tuple[Tensor, Tensor]:
    """Noise with one bright quadrant, which is the class."""
    labels, images = torch.randint(4, (count,)), 0.3 * torch.randn(count, 1, 16, 16)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[0, 8 * (label // 2) : 8 * (label // 2) + 8, 8 * (label % 2) : 8 * (label % 2) + 8] += 1.0
    return images, labels


def quadrant_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross entropy with label smoothing."""
    images, labels = batch
    return F.cross_entropy(model(images), labels, label_smoothing=0.1)


def batches(data: TensorDataset, steps: int, **options: object) -> Iterator[tuple[int, tuple[Tensor, Tensor]]]:
    """(epoch, batch) until there were `steps`."""
    loader, done, epoch = DataLoader(data, batch_size=16, **options), 0, 0
    while True:
        for images, labels in loader:
            if done == steps:
                return
            yield epoch, (images, labels)
            done += 1
        epoch += 1


@program
def one_cycle_schedule_for_each_batch() -> Program:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)

    def train(self: Program) -> None:
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=self.steps)
        for _, batch in batches(TensorDataset(*quadrants(80)), self.steps, shuffle=True):
            optimizer.zero_grad()
            self.loss(batch).backward()
            optimizer.step()
            schedule.step()

    return Program(model, quadrants, quadrant_loss, optimizer, train, steps=LONG)


@program
def cosine_for_each_epoch_with_the_best_weights_kept() -> Program:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def train(self: Program) -> None:
        train_set, held_out = TensorDataset(*quadrants(64)), quadrants(32)
        epochs = self.steps // 4
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
        best, best_weights, history = 0.0, None, []
        for _epoch in range(epochs):
            model.train()
            running = 0.0
            for images, labels in DataLoader(train_set, batch_size=16, shuffle=True):
                optimizer.zero_grad()
                loss = self.loss((images, labels))
                loss.backward()
                optimizer.step()
                running += loss.item() * len(images)
            schedule.step()
            model.eval()
            with torch.inference_mode():
                accuracy = (model(held_out[0]).argmax(1) == held_out[1]).float().mean().item()
            history.append((running, accuracy))
            if accuracy >= best:
                best, best_weights = accuracy, copy.deepcopy(model.state_dict())
        model.load_state_dict(best_weights)

    return Program(model, quadrants, quadrant_loss, optimizer, train, steps=LONG)


@program
def exponential_average_evaluated_between_epochs() -> Program:
    model = classifier()
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    )

    def train(self: Program) -> None:
        optimizer, scores = optimizer_of(self), []
        for epoch, batch in batches(TensorDataset(*quadrants(64)), self.steps, shuffle=True):
            optimizer.zero_grad(set_to_none=True)
            self.loss(batch).backward()
            optimizer.step()
            average.update_parameters(model)
            if epoch % 2:
                average.eval()
                with torch.no_grad():
                    scores.append(float(self.loss_fn(average, batch)))

    return Program(model, quadrants, quadrant_loss, train=train, steps=LONG)


@program
def run_resumed_from_a_checkpoint() -> Program:
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train(self: Program) -> None:
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
        data, file = TensorDataset(*quadrants(64)), io.BytesIO()
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "random": (torch.get_rng_state(), random.getstate(), np.random.get_state()),
        }
        torch.save(state, file)
        file.seek(0)
        saved = torch.load(file, weights_only=False)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        torch.set_rng_state(saved["random"][0])
        random.setstate(saved["random"][1])
        np.random.set_state(saved["random"][2])
        for _, batch in batches(data, self.steps, shuffle=True):
            optimizer.zero_grad()
            self.loss(batch).backward()
            optimizer.step()
            schedule.step()

    return Program(model, quadrants, quadrant_loss, optimizer, train, steps=LONG)


class TickReader(nn.Module):
    """Classifies encoder ticks, which it standardises itself with statistics of the training set."""

    def __init__(self, data: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", data.mean(0))
        self.register_buffer("std", data.std(0))
        self.layers = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, ticks: Tensor) -> Tensor:
        return self.layers((ticks - self.mean) / self.std)


@program
def ticks_standardised_in_the_model_and_read_in_an_order_that_was_shuffled_once() -> Program:
    labels = (torch.arange(320) // 80)[torch.randperm(320)]
    ticks = 20_000 + 9_000 * labels[:, None] + 500 * torch.randn(320, 3)
    loader = DataLoader(TensorDataset(ticks, labels), batch_size=16)

    def draw() -> tuple[Tensor, Tensor]:
        rows = torch.randint(320, (16,))
        return ticks[rows], labels[rows]

    return Program(TickReader(ticks), draw, quadrant_loss, loaders=loader)
