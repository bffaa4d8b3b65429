from pathlib import Path

from debugkit.integrations.hydra import check_config

Path("robot.yaml").write_text("learning_rate: 1e-4\n")
report = check_config(files=["robot.yaml"], select="DK903")
print(report)
