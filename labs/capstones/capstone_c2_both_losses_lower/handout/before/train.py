"""Trains a policy, and prints the loss, the held-out loss and the success rate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
import yaml
from data import Indices, Settings, draw, epoch, split, whole
from evaluate import success_rate
from model import action_loss, build_policy, gripper_accuracy, unfreeze

from labs.vla.dataset import Batch, Frames
from labs.vla.policy import Policy

CONFIG = Path(__file__).with_name("config.yaml")


def stream(frames: Frames, chosen: Indices, settings: Settings) -> Iterator[Batch]:
    """The batches of all epochs."""
    for number in range(settings["epochs"]):
        yield from epoch(frames, chosen, settings, number)


def make_optimizer(policy: Policy, settings: Settings) -> torch.optim.Optimizer:
    """AdamW over everything that trains."""
    trainable = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trainable, lr=settings["learning_rate"], weight_decay=0.01)


def train(settings: Settings) -> tuple[Policy, list[float]]:
    """A trained policy, and the loss of each update."""
    frames = draw(settings)
    training, _ = split(len(frames), settings)
    policy = build_policy(settings["seed"])
    if settings["train_vision"]:
        unfreeze(policy)
    optimizer = make_optimizer(policy, settings)

    updates = settings["epochs"] * (len(training) // settings["batch_size"])
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=settings["learning_rate"], total_steps=updates)

    losses = []
    policy.train()
    for batch in stream(frames, training, settings):
        optimizer.zero_grad()
        loss = action_loss(policy, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), settings["max_norm"])
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    policy.eval()
    return policy, losses


def held_out(policy: Policy, settings: Settings) -> tuple[float, float]:
    """The loss and the gripper's accuracy on frames that did not train."""
    frames = draw(settings)
    _, chosen = split(len(frames), settings)
    batch = whole(frames, chosen)
    with torch.no_grad():
        return float(action_loss(policy, batch)), gripper_accuracy(policy, batch)


def main() -> None:
    """One run."""
    settings = yaml.safe_load(CONFIG.read_text())
    policy, losses = train(settings)
    loss, accuracy = held_out(policy, settings)
    print(f"loss {sum(losses[-10:]) / 10:.3f}   held-out loss {loss:.3f}   gripper {accuracy:.2f}")
    print(f"success {success_rate(policy, settings):.2f}")


if __name__ == "__main__":
    main()
