"""Lesson 64's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find
from labs.recordings import Recording

sys.path.insert(0, str(find("64").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)
_decode = Recording.decode

# --8<-- [start:measure]
import weakref

from policy import FewEpisodesAtATime, RecordedFrames

from labs.recordings import Recording, record

alive = 0
decode = Recording.decode


def counted(recording, segment):
    images = decode(recording, segment)
    count(len(images))
    weakref.finalize(images.untyped_storage(), count, -len(images))  # when the storage is freed
    return images


def count(images):
    global alive
    alive += images


Recording.decode = counted
dataset = RecordedFrames(record(200, seed=64))
order = FewEpisodesAtATime(dataset, seed=64)
for reads, index in enumerate(order, start=1):
    dataset[index]
    if reads in (50, 100, 200, 400, 800, 1600, len(order)):
        readers = dataset._readers.values()
        kept = sum(len(images) for reader in readers for images in reader._segments.values())
        print(f"{reads:4d} reads: {len(readers)} readers keep {kept:3d} images; {alive:4d} are alive")
# --8<-- [end:measure]
assert alive > 10 * kept
Recording.decode = _decode
sys.path.pop(0)
