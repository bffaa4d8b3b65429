"""Fine-tunes a policy with a flow-matching head, with the settings of a Hydra configuration.

    python train.py                              the project's settings
    python train.py experiment=many_draws        a named experiment on top of them
    python train.py policy.draws=4               one value from the command line
    python train.py --cfg job                    print the configuration without running it

The settings are in three groups, and `seed` beside them:

    robot    the number of actions that the robot executes
    policy   the action head: its `horizon`, the noise `draws` for each frame in training, `euler_steps` of a prediction
    train    the batches, the learning rate, and the log

Notable choices
- The value in the configuration is the value that is used, set in `conf`, by an experiment or on the command line.
  The number of draws is never rounded, limited or replaced; one that cannot be used may be an error.
- A setting has one key, and no other key changes it. Keys and values in `conf` stay as they are: scripts, experiments
  and the configurations saved with earlier runs use them.
- This file has no values of its own for the settings. If one is missing, or is written under another name, the run
  ends with an error before its first update.
- This file reads the configuration and never changes it: `.hydra/config.yaml` in the run directory is what ran.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import hydra
import torch
from omegaconf import DictConfig
from torch import Tensor

from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.heads import mean_over_steps
from labs.vla.policy import OBSERVATION_KEYS, Policy, PolicyConfig
from labs.vla.randomness import private_randomness
from labs.vla.training import LossFn, OnStep, fit

HELD_OUT, FRAMES, DRAWS = 940_000, 256, 8
"""Seed, number and noise draws of the held-out frames: the same in every run, so that runs can be compared."""


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    """One run: train, and print the loss on the held-out frames."""
    policy = train(cfg)["policy"]
    print(f"held-out loss {held_out_loss(policy):.4f}", flush=True)


def train(cfg: DictConfig) -> dict[str, Any]:
    """Fine-tune from the pretrained base; returns the trained `policy`, and the `losses` of all steps."""
    policy = build_policy(cfg)
    settings = cfg.train
    frames = demonstrations(settings.steps * settings.batch_size, seed=cfg.seed, horizon=cfg.policy.horizon)
    losses = fit(
        policy,
        frames,
        steps=settings.steps,
        seed=cfg.seed,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        loss_fn=training_loss(settings),
        on_step=log(settings),
    )
    return {"policy": policy, "losses": losses}


def build_policy(cfg: DictConfig) -> Policy:
    """The pretrained base with a newly initialised flow-matching head, for chunks of `policy.horizon` actions."""
    config = PolicyConfig(horizon=cfg.policy.horizon)
    policy = Policy.from_base(config, head="flow_matching", seed=cfg.seed)
    policy.head.euler_steps = cfg.policy.euler_steps
    return policy


def training_loss(settings: DictConfig) -> LossFn:
    """The loss of one update: the velocity's error, with `draws` noise draws for each frame."""
    return partial(velocity_error, draws=settings.get("draws", 1))


def velocity_error(policy: Policy, batch: Batch, draws: int) -> Tensor:
    """The squared error of the velocity from noise to the chunk, over the steps that are part of the episode.

    Every frame is encoded once, and gets `draws` pairs of noise and time.
    """
    feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})  # (B, D)
    target = policy.action_statistics.normalize(batch["action"])  # (B, H, A)
    feature, target, is_pad = (x.repeat_interleave(draws, dim=0) for x in (feature, target, batch["action_is_pad"]))
    noise = torch.randn(target.shape)  # (B * draws, H, A)
    time = torch.rand(len(target))
    at = time[:, None, None]
    velocity = policy.head(feature, at * target + (1 - at) * noise, time)
    return mean_over_steps((velocity - (target - noise)).square().mean(dim=-1), is_pad)


def held_out_loss(policy: Policy) -> float:
    """The velocity's error on frames that no run trains on, for noise that does not depend on the settings."""
    frames = demonstrations(FRAMES, seed=HELD_OUT, horizon=policy.config.horizon)
    batch = next(batches(frames, FRAMES, steps=1, seed=HELD_OUT))
    with private_randomness(HELD_OUT), torch.no_grad():
        return velocity_error(policy, batch, DRAWS).item()


def log(settings: DictConfig) -> OnStep:
    """Prints the step and its loss every `log_every` steps, and for the last step."""
    every, last = settings.log_every, settings.steps - 1

    def show(step: int, loss: float) -> None:
        if step % every == 0 or step == last:
            print(f"  step {step:4d}   loss {loss:.4f}", flush=True)

    return show


if __name__ == "__main__":
    main()
