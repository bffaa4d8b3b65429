"""Trains a policy and evaluates it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import torch
import yaml
from data import Settings, draw, held_out
from evaluate import evaluate
from model import build_policy

from labs.vla.policy import Policy
from labs.vla.training import fit

CONFIG = Path(__file__).with_name("config.yaml")


def train(settings: Settings) -> tuple[Policy, list[float]]:
    """A policy that is trained with these settings, and the loss of each step."""
    frames = draw(settings)
    policy = build_policy(settings["seed"], frames)
    losses = fit(
        policy,
        frames,
        steps=settings["steps"],
        seed=settings["seed"],
        batch_size=settings["batch_size"],
        learning_rate=settings["learning_rate"],
    )
    return policy, losses


@torch.no_grad()
def held_out_loss(policy: Policy, settings: Settings) -> float:
    """The loss on demonstrations of tables that no run trains on."""
    return float(policy(**held_out(settings)).loss)


def line(loss: float, result: Mapping[str, float]) -> str:
    """What the nightly log keeps of a run."""
    return f"loss {loss:.3f}   success {result['success']:4.0%}   wrong block {result['wrong_block']:4.0%}"


def main() -> None:
    """One run with the settings of the file and of the command line."""
    settings = yaml.safe_load(CONFIG.read_text())
    changed = dict(one.split("=") for one in sys.argv[1:])
    settings |= {name: type(settings[name])(value) for name, value in changed.items()}
    if changed:
        print("with", *sys.argv[1:])
    policy, _ = train(settings)
    result = evaluate(policy, settings)
    print(f"seed {settings['seed']}   {line(held_out_loss(policy, settings), result)}")


if __name__ == "__main__":
    main()
