import os

from debugkit.integrations.hydra import check_config

os.chdir("/")

run = "/runs/outputs/2026-03-01/12-00-00"
directories = {"checkpoints": "checkpoints", "logs": f"{run}/logs"}
report = check_config(directories=directories, run_dir=run, select="DK904")
print(report)
