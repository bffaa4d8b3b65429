"""Lesson 64: what else refers to a reader that was evicted, on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("64").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:owners]
import weakref

from policy import RecordedFrames

from labs.recordings import record

dataset = RecordedFrames(record(20, seed=64))
first = weakref.ref(dataset._reader(0))
for number in range(1, 20):
    dataset._reader(number)
print("readers in the cache:", list(dataset._readers))
print("the first one is freed:", first() is None)
print("attributes of its episode:", list(vars(dataset.episodes[0])))
# --8<-- [end:owners]
assert first() is not None
sys.path.pop(0)
