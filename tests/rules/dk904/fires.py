"""Runs that write to more than one place."""

from typing import Any

from omegaconf import OmegaConf

RUN = "/runs/outputs/2026-03-01/12-00-00"


def relative_paths() -> dict[str, Any]:
    """Relative paths depend on the folder from which the program was started."""
    config = {"directories": {"checkpoints": "checkpoints", "logs": f"{RUN}/logs"}, "run_dir": RUN}
    message = "The run writes checkpoints to `checkpoints`, but its configuration to"
    return {"config": config, "expect": {"severity": "warning", "message": message}}


def one_folder_for_every_run() -> dict[str, Any]:
    """The next run overwrites this run's checkpoint."""
    config = {"directories": {"checkpoints": "/scratch/checkpoints", "logs": "logs"}, "run_dir": RUN}
    return {"config": config, "expect": {"message": "an absolute path is the same for every run"}}


def folder_above_the_run() -> dict[str, Any]:
    """A declared folder is where the checkpoints are really written."""
    return {"config": {"directories": {"checkpoints": "/runs/outputs"}, "run_dir": RUN}}


def found_by_the_key() -> dict[str, Any]:
    """No folder is declared, but two config keys are named like output folders."""
    cfg = OmegaConf.create({"logger": {"save_dir": "tensorboard"}, "checkpoint": {"dirpath": "ckpt"}, "lr": 0.1})
    expect = {"severity": "info", "message": "`logger.save_dir` to `tensorboard` and `checkpoint.dirpath` to `ckpt`"}
    return {"config": {"cfg": cfg, "run_dir": RUN}, "expect": expect}
