from pathlib import Path

from debugkit.integrations.hydra import check_config

Path("conf/train").mkdir(parents=True)
Path("conf/train/base.yaml").write_text("batch_size: 16\n")
Path("conf/config.yaml").write_text("""
defaults:
  - train: base
  - _self_

train:
  batch_size: 64
""")
report = check_config(config_dir="conf", config_name="config", select="DK901")
print(report)
