"""Fine-tunes the policy, saves its checkpoint and its losses, and reloads the policy of a run.

    python train.py seed=1                   trains, and prints the run directory
    python train.py output.logs=curves       the same, with another folder name for the losses

A run writes these files, all in its run directory, whatever folder it was started from:

    .hydra/config.yaml             the configuration (written by Hydra)
    checkpoints/last.safetensors   the weights after the last step
    logs/losses.csv                step and loss, one line per step
    report.json                    seed, number of steps, and as the final loss the mean of the last ten

so that `load_policy(run)` can reload the policy in another process, from another folder, after a hundred other runs,
and a run directory can be moved to another machine.

Notable choices
- A checkpoint is written every `train.save_every` steps and after the last one, to a second file that then replaces the
  old one: a run that is killed, or whose disk is full, leaves a complete file.
- The losses are flushed line by line: the log of a crashed run is complete up to the crash.
- The training settings in `conf/config.yaml` keep their values: new runs are compared with old ones.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:
    from labs.vla.policy import Policy

CHECKPOINT = "last.safetensors"
LOSSES = "losses.csv"
REPORT = "report.json"


@dataclass(frozen=True)
class Outputs:
    """The folders of one run."""

    run: Path
    checkpoints: Path
    logs: Path


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    """One run: train, save everything, and print where."""
    out = outputs(cfg, Path(HydraConfig.get().runtime.output_dir))
    losses = train(cfg, out)["losses"]
    report = {"seed": cfg.seed, "steps": len(losses), "final_loss": sum(losses[-10:]) / len(losses[-10:])}
    (out.run / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"seed {cfg.seed}: loss {losses[0]:.3f} → {report['final_loss']:.3f}, saved in {out.run.name}")


def outputs(cfg: DictConfig, run: Path) -> Outputs:
    """The output folders of the run in this directory; their names come from the configuration."""
    return Outputs(run, checkpoints=run / cfg.output.checkpoints, logs=run / cfg.output.logs)


def train(cfg: DictConfig, out: Outputs) -> dict[str, Any]:
    """Fine-tune from the pretrained base; returns the trained `policy`, and the `losses` of all steps."""
    from labs.vla.dataset import demonstrations
    from labs.vla.training import fit

    policy, settings = build_policy(cfg), cfg.train

    def keep(step: int, loss: float) -> None:
        log.write(step, loss)
        if (step + 1) % settings.save_every == 0 or step == settings.steps - 1:
            save(policy, out.checkpoints)

    with LossLog(out.logs) as log:
        losses = fit(
            policy,
            demonstrations(settings.steps * settings.batch_size, seed=cfg.seed),
            steps=settings.steps,
            seed=cfg.seed,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            on_step=keep,
        )
    return {"policy": policy, "losses": losses}


def build_policy(cfg: DictConfig) -> Policy:
    """The pretrained base with a newly initialised action head."""
    from labs.vla.policy import Policy

    return Policy.from_base(seed=cfg.seed)


def save(policy: Policy, folder: Path) -> None:
    """Write the weights to the folder, completely or not at all."""
    from safetensors.torch import save_model

    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{CHECKPOINT}.part"
    save_model(policy, str(unfinished))
    unfinished.replace(folder / CHECKPOINT)


def load_policy(run: Path) -> Policy:
    """The policy trained by the run in this directory, in evaluation mode.

    Raises FileNotFoundError if the directory has no complete checkpoint.
    """
    from safetensors.torch import load_model

    cfg = OmegaConf.load(run / ".hydra" / "config.yaml")
    policy = build_policy(cfg)
    load_model(policy, str(outputs(cfg, run).checkpoints / CHECKPOINT))
    return policy.eval()


class LossLog:
    """Appends one line per step to `losses.csv`; a resumed run continues its log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> LossLog:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = (self.folder / LOSSES).open("a", newline="", encoding="utf-8")
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, step: int, loss: float) -> None:
        """Write one line and flush it before the next step begins."""
        csv.writer(self._file).writerow([step, f"{loss:.6f}"])
        self._file.flush()


if __name__ == "__main__":
    main()
