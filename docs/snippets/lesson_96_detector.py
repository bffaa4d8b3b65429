"""What debugkit finds in lab 96's Trainer as shipped."""

import sys
import tempfile
from pathlib import Path

from labs.grading.catalog import find

sys.path.insert(0, str(find("96").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

from policy import build_model, build_trainer, mixture

samples, folder = mixture(48, seed=96), Path(tempfile.mkdtemp())
trainer = build_trainer(build_model(seed=0), samples, samples, steps=1, folder=folder, seed=0, batch_size=16)
# --8<-- [start:measure]
from debugkit.integrations.transformers import check_trainer

report = check_trainer(trainer, select="DK905")
print(report)
# --8<-- [end:measure]
assert {finding.code for finding in report.findings} == {"DK905"}
sys.path.pop(0)
sys.modules.pop("policy", None)
