"""A Hydra job that examines its own configuration, in two lines."""

import logging
import os
import sys
import tempfile
from pathlib import Path

# --8<-- [start:import]
import hydra

from debugkit.integrations.hydra import check_config, track_reads

# --8<-- [end:import]

folder = Path(tempfile.mkdtemp())
(folder / "config.yaml").write_text("lr: 1e-3\nsteps: 10\ntraining:\n  warm_up: 20\n")
os.chdir(folder)
arguments, handlers, reports = sys.argv, logging.root.handlers[:], []
sys.argv = ["train.py", f"--config-path={folder}", "hydra/job_logging=none", "hydra/hydra_logging=none"]


def train(cfg):
    """Reads its warm-up at the top, where it is not."""
    return cfg.lr, cfg.steps, cfg.get("warm_up", 0)


# --8<-- [start:main]
@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    cfg = track_reads(cfg)
    train(cfg)
    report = check_config(cfg, directories={"checkpoints": "checkpoints"})
    # --8<-- [end:main]
    reports.append(report)


try:
    main()
finally:
    sys.argv = arguments
    logging.root.handlers[:] = handlers

for finding in reports[0].findings:
    print(finding.code, finding.message.replace(str(folder), "…"))
assert set(reports[0].by_code) == {"DK902", "DK904"}
