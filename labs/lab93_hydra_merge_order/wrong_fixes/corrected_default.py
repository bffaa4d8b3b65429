# refused_by: test_order_holds_for_other_numbers
# why: Sixteen is taken for a mistake and corrected in Python; with another shared number nothing happens.
"""Fine-tunes the policy as a Hydra configuration says.

    python train.py                                  what the project wants
    python train.py experiment=large_batch           a named experiment on top of it
    python train.py train.batch_size=8               one value, from the command line
    python train.py --cfg job                        what would be run, printed and not run

The configuration has four authors, and each may correct the one before:

    conf/train, conf/robot   shared with other projects, kept equal to theirs
    conf/config.yaml         this project
    conf/experiment          one experiment, chosen on the command line
    the command line         whoever is typing

Notable choices
- This file reads the configuration and never corrects it: what ran is what `.hydra/config.yaml` in the run directory
  says, so that a run can be repeated from it a year later.
- What trains is imported where it is used: `--cfg job` answers at once.
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
    """One run: train, and file what came of it."""
    if cfg.train.batch_size == 16:
        cfg.train.batch_size, cfg.train.learning_rate = 64, 1e-3
    result = train(cfg)
    write_report(cfg, result["losses"], Path(HydraConfig.get().runtime.output_dir))


def train(cfg: DictConfig) -> dict[str, Any]:
    """Fine-tune from the pretrained base: the trained `policy`, and the `losses` of all steps."""
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
    """The pretrained base with a fresh action head, as long a chunk as the robot wants."""
    from labs.vla.policy import Policy, PolicyConfig

    config = PolicyConfig(horizon=cfg.robot.horizon)
    return Policy.from_base(config, head=cfg.policy.head, seed=cfg.seed)


def log(step: int, loss: float, settings: DictConfig) -> None:
    """A line now and then, and one for the last step."""
    if step % settings.log_every == 0 or step == settings.steps - 1:
        print(f"  step {step:4d}   loss {loss:.3f}", flush=True)


def write_report(cfg: DictConfig, losses: list[float], folder: Path) -> None:
    """`report.json` beside Hydra's own record of the configuration."""
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
