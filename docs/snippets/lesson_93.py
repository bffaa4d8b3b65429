"""Lesson 93's measurement, run on the lab as shipped."""

import os

from labs.grading.catalog import find

os.chdir(find("93").folder)  # a learner runs this in the workspace folder instead

# --8<-- [start:measure]
from debugkit.integrations.hydra import provenance

print(provenance("conf", "config"))
# --8<-- [end:measure]
batch = provenance("conf", "config").of("train.batch_size")
assert [setting.value for setting in batch.settings] == [64, 16]
