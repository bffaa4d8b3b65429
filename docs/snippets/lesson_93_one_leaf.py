"""Lesson 93: one leaf with an experiment on the command line, run on the lab as shipped."""

import os

from labs.grading.catalog import find

os.chdir(find("93").folder)  # a learner runs this in the workspace folder instead
from debugkit.integrations.hydra import provenance

# --8<-- [start:measure]
leaf = provenance("conf", "config", ["experiment=large_batch"]).of("train.batch_size")
for setting in leaf.settings:
    print(f"{setting.value:>4}  {setting.chosen_by:<16}  {setting.place}")
# --8<-- [end:measure]
assert leaf.winner.value == 128
