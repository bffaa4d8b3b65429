"""Runs whose outputs are kept together."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

RUN = "/runs/outputs/2026-03-01/12-00-00"


def everything_in_the_run_directory() -> dict[str, Any]:
    """Every path is built from the run directory."""
    directories = {"checkpoints": f"{RUN}/checkpoints", "logs": Path(RUN), "plots": f"{RUN}/a/b"}
    return {"config": {"directories": directories, "run_dir": RUN}}


def relative_paths_of_a_job_that_moved() -> dict[str, Any]:
    """hydra.job.chdir=True: the working directory is the run directory."""
    return {"config": {"directories": {"checkpoints": "checkpoints"}, "run_dir": Path.cwd()}}


def scratch_disk_that_leads_back() -> dict[str, Any]:
    """Weights are large and are written to another disk, in a folder with the name of the run."""
    directories = {"checkpoints": "/scratch/weights/2026-03-01/12-00-00"}
    return {"config": {"directories": directories, "run_dir": RUN}}


def root_of_all_runs() -> dict[str, Any]:
    """`paths.log_dir` is the folder of all Hydra run directories; the checkpoints are in the run directory."""
    cfg = OmegaConf.create({"paths": {"log_dir": "/runs"}, "callbacks": {"dirpath": "${run}/checkpoints"}, "run": RUN})
    return {"config": {"cfg": cfg, "run_dir": RUN}}


def no_run_directory() -> dict[str, Any]:
    """Without Hydra there is no run directory to compare with."""
    config = {"directories": {"checkpoints": "checkpoints"}}
    return {"config": config, "expect": {"not_examined": "No run directory is known"}}
