# why: The names stay relative to the run, and whoever opens one joins them.
"""Fine-tunes the policy, keeps its checkpoint and its losses, and reloads what a run has kept.

    python train.py seed=1                   trains, and prints the run directory
    python train.py output.logs=curves       the same, with another name for the folder of the losses

What a run leaves behind, all of it in its run directory, wherever it was started from:

    .hydra/config.yaml             what was asked for (Hydra writes it)
    checkpoints/last.safetensors   the weights after the last step
    logs/losses.csv                step and loss, one line a step
    report.json                    the last word

so that `load_policy(run)` gives the policy back in another process, from another folder, after a hundred other runs,
and a run directory can be moved to another machine.

Notable choices
- A checkpoint is written beside the old one and put in its place: a run that is killed leaves a whole file.
- The losses are flushed line by line: the log of a crashed run ends where the run ended.
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
    """The folders of one run; the last two are named as from the first."""

    run: Path
    checkpoints: Path
    logs: Path


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    """One run: train, keep everything, and say where."""
    out = outputs(cfg, Path(HydraConfig.get().runtime.output_dir))
    losses = train(cfg, out)["losses"]
    report = {"seed": cfg.seed, "steps": len(losses), "final_loss": sum(losses[-10:]) / len(losses[-10:])}
    (out.run / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"seed {cfg.seed}: loss {losses[0]:.3f} → {report['final_loss']:.3f}, kept in {out.run.name}")


def outputs(cfg: DictConfig, run: Path) -> Outputs:
    """Where the run of this directory keeps what it makes; the names of its folders are the configuration's."""
    return Outputs(run, checkpoints=Path(cfg.output.checkpoints), logs=Path(cfg.output.logs))


def train(cfg: DictConfig, out: Outputs) -> dict[str, Any]:
    """Fine-tune from the pretrained base: the trained `policy`, and the `losses` of all steps."""
    from labs.vla.dataset import demonstrations
    from labs.vla.training import fit

    policy, settings = build_policy(cfg), cfg.train

    def keep(step: int, loss: float) -> None:
        log.write(step, loss)
        if (step + 1) % settings.save_every == 0 or step == settings.steps - 1:
            save(policy, out.run / out.checkpoints)

    with LossLog(out.run / out.logs) as log:
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
    """The pretrained base with a fresh action head."""
    from labs.vla.policy import Policy

    return Policy.from_base(seed=cfg.seed)


def save(policy: Policy, folder: Path) -> None:
    """Put the weights into the folder, whole or not at all."""
    from safetensors.torch import save_model

    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{CHECKPOINT}.part"
    save_model(policy, str(unfinished))
    unfinished.replace(folder / CHECKPOINT)


def load_policy(run: Path) -> Policy:
    """The policy that the run of this directory trained, in evaluation mode. Raises FileNotFoundError."""
    from safetensors.torch import load_model

    cfg = OmegaConf.load(run / ".hydra" / "config.yaml")
    policy = build_policy(cfg)
    load_model(policy, str(run / outputs(cfg, run).checkpoints / CHECKPOINT))
    return policy.eval()


class LossLog:
    """Appends a line a step to `losses.csv`; a resumed run goes on where it ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> LossLog:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = (self.folder / LOSSES).open("a", newline="", encoding="utf-8")
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, step: int, loss: float) -> None:
        """One line, on disk before the next step begins."""
        csv.writer(self._file).writerow([step, f"{loss:.6f}"])
        self._file.flush()


if __name__ == "__main__":
    main()
