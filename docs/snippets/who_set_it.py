"""A Hydra configuration whose batch size is not the one in its main file."""

import os
import tempfile
from pathlib import Path

# --8<-- [start:import]
from debugkit.integrations.hydra import check_config, provenance

# --8<-- [end:import]

folder = Path(tempfile.mkdtemp())
for name, text in {
    "config.yaml": "defaults:\n  - _self_\n  - train: base\n\nseed: 0\ntrain:\n  batch_size: 64\n",
    "train/base.yaml": "batch_size: 16\nlearning_rate: 1e-3\n",
    "train/large.yaml": "defaults:\n  - base\n  - _self_\n\nbatch_size: 256\n",
}.items():
    (folder / "conf" / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / "conf" / name).write_text(text)
os.chdir(folder)

# --8<-- [start:provenance]
print(provenance("conf", "config", ["train.learning_rate=3e-4"]))
# --8<-- [end:provenance]

# --8<-- [start:check]
report = check_config(config_dir="conf", config_name="config", overrides=["train.learning_rate=3e-4"])
# --8<-- [end:check]

assert [finding.code for finding in report.findings] == ["DK901"]
