"""Fine-tunes the policy with the settings of a Hydra configuration.

    python train.py                                  the project's settings
    python train.py experiment=large_batch           a named experiment on top of them
    python train.py train.batch_size=8               one value from the command line
    python train.py --cfg job                        print the configuration without running it

The configuration has four sources, and each may override the one before:

    conf/train, conf/robot   shared with other projects, kept identical to theirs
    conf/config.yaml         this project
    conf/experiment          one experiment, chosen on the command line
    the command line         single values

The project consists of this file and the four files that `conf` has now; any other file is not part of it.

Notable choices
- This file reads the configuration and never changes it: `.hydra/config.yaml` in the run directory is what ran, so a
  run can be repeated from it a year later.
- Every run has a directory of its own, even if an earlier run had the same command line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from labs.vla.policy import Policy


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    """One run: train, and write the report."""
    result = train(cfg)
    write_report(cfg, result["losses"], Path(HydraConfig.get().runtime.output_dir))


def train(cfg: DictConfig) -> dict[str, Any]:
    """Fine-tune from the pretrained base; returns the trained `policy`, and the `losses` of all steps.

    Prints the settings first: the number of steps, the batch size and the learning rate.
    """
    # Imported here, so that `--cfg job` does not wait for it.
    from labs.vla.dataset import demonstrations
    from labs.vla.training import fit

    policy = build_policy(cfg)
    settings = cfg.train
    print(f"{settings.steps} steps, batches of {settings.batch_size}, learning rate {settings.learning_rate:g}")
    losses = fit(
        policy,
        demonstrations(settings.steps * settings.batch_size, seed=cfg.seed, horizon=cfg.robot.horizon),
        steps=settings.steps,
        seed=cfg.seed,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        on_step=lambda step, loss: log(step, loss, settings),
    )
    return {"policy": policy, "losses": losses}


def build_policy(cfg: DictConfig) -> Policy:
    """The pretrained base with a newly initialised action head, for chunks of the robot's horizon."""
    from labs.vla.policy import Policy, PolicyConfig

    config = PolicyConfig(horizon=cfg.robot.horizon)
    return Policy.from_base(config, head=cfg.policy.head, seed=cfg.seed)


def log(step: int, loss: float, settings: DictConfig) -> None:
    """Print the step and its loss every `log_every` steps, and for the last step."""
    if step % settings.log_every == 0 or step == settings.steps - 1:
        print(f"  step {step:4d}   loss {loss:.3f}", flush=True)


def write_report(cfg: DictConfig, losses: list[float], folder: Path) -> None:
    """Write `report.json` to the folder in which Hydra saves the configuration.

    It has the `batch_size`, the `learning_rate`, the number of `frames_seen`, the `first_loss`, and as `final_loss` the
    mean of the last ten.
    """
    last = losses[-10:]
    report = {
        "batch_size": cfg.train.batch_size,
        "learning_rate": cfg.train.learning_rate,
        "frames_seen": cfg.train.batch_size * len(losses),
        "first_loss": losses[0],
        "final_loss": sum(last) / len(last),
    }
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
