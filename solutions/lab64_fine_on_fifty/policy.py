"""Fine-tuning on recorded episodes whose images are compressed like a video.

    RecordedFrames ─┬─ worker 0 ── open readers ── decoded segments ─┬─ DataLoader ── policy(**batch).loss
                    └─ worker 1 ── open readers ── decoded segments ─┘

A single image cannot be read from a video: a reader decodes the whole segment of eight images that it is in, and keeps
it, because other images of that segment are usually wanted soon.

What reading must guarantee
- Every worker has its own copy of the dataset. Each keeps at most 16 decoded segments in memory (8 readers, 2 segments
  each), however many episodes the dataset has and however long they are.
- What is kept is what was used last: images of the 8 episodes that were read last, from the 2 segments of each that
  were read last, are returned without decoding anything.
- A dataset keeps nothing for another one, and its images are freed as soon as it is no longer referenced: no reference
  cycle has to wait for the garbage collector.
- A dataset can be pickled, before and after reading from it: some systems start workers that way.

Notable choice
- Episodes are shuffled six at a time, so that the same few videos are read for a while.
"""

from __future__ import annotations

import bisect
import itertools
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from labs.recordings import SEGMENT, Recording
from labs.vla.dataset import Batch
from labs.vla.language import tokenize
from labs.vla.policy import Policy
from labs.vla.vision import normalize_pixels

HORIZON = 4
OPEN_READERS = 8
SEGMENTS_KEPT = 2
SHUFFLED_TOGETHER = 6
MAX_GRADIENT_NORM = 1.0
LEARNING_RATE = 1e-3


class VideoReader:
    """The images of one recording. Keeps the two segments that were read last."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._segments: OrderedDict[int, Tensor] = OrderedDict()

    def image(self, step: int) -> Tensor:
        """The image at `step`, uint8 (64, 64, 3)."""
        number, offset = divmod(step, SEGMENT)
        if number not in self._segments:
            if len(self._segments) == SEGMENTS_KEPT:
                self._segments.popitem(last=False)
            self._segments[number] = self.recording.decode(number)
        self._segments.move_to_end(number)
        return self._segments[number][offset]


@dataclass
class Episode:
    """A recording, and the position of its first frame in the dataset."""

    recording: Recording
    start: int

    def open_video(self) -> VideoReader:
        """A new reader of the recorded images."""
        return VideoReader(self.recording)


class RecordedFrames(Dataset[Batch]):
    """The frames of all episodes, one after the other: an item is a batch's row, with the recorded chunk of actions."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        starts = [0, *itertools.accumulate(map(len, recordings))]
        self.length = starts.pop()
        self.episodes = [Episode(recording, start) for recording, start in zip(recordings, starts, strict=True)]
        self._tokens: dict[str, tuple[Tensor, Tensor]] = {}  # there are few sentences
        self._readers: OrderedDict[int, VideoReader] = OrderedDict()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Batch:
        """The frame at `index`; steps of the chunk after the end repeat the last action and are padding.

        Raises IndexError for an index outside of the dataset.
        """
        if not 0 <= index < self.length:
            raise IndexError(f"The frames are 0 to {self.length - 1}; {index} is out of range.")
        number = bisect.bisect_right(self.episodes, index, key=lambda episode: episode.start) - 1
        recording, step = self.episodes[number].recording, index - self.episodes[number].start
        steps = step + torch.arange(HORIZON)
        input_ids, attention_mask = self._tokenized(recording.instruction)
        return {
            "pixel_values": normalize_pixels(self._reader(number).image(step)[None])[0],  # (3, 64, 64)
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "state": recording.state[step],
            "action": recording.action[steps.clamp(max=len(recording) - 1)],  # (H, A)
            "action_is_pad": steps >= len(recording),
        }

    def _reader(self, number: int) -> VideoReader:
        """The reader of an episode; closes the one that was not used for the longest time if there are too many."""
        if number not in self._readers:
            if len(self._readers) == OPEN_READERS:
                self._readers.popitem(last=False)
            self._readers[number] = self.episodes[number].open_video()
        self._readers.move_to_end(number)
        return self._readers[number]

    def _tokenized(self, instruction: str) -> tuple[Tensor, Tensor]:
        if instruction not in self._tokens:
            input_ids, attention_mask = tokenize([instruction])
            self._tokens[instruction] = input_ids[0], attention_mask[0]
        return self._tokens[instruction]


class FewEpisodesAtATime(Sampler[int]):
    """Every frame once per epoch: six random episodes, their frames in random order, then the next six.

    The same seed gives the same epochs, and each epoch another order.
    """

    def __init__(self, dataset: RecordedFrames, seed: int) -> None:
        self.dataset = dataset
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[int]:
        order = self.rng.permutation(len(self.dataset.episodes))
        for first in range(0, len(order), SHUFFLED_TOGETHER):
            chosen = [self.dataset.episodes[number] for number in order[first : first + SHUFFLED_TOGETHER]]
            frames = [episode.start + step for episode in chosen for step in range(len(episode.recording))]
            yield from self.rng.permutation(frames).tolist()


def build_loader(dataset: RecordedFrames, batch_size: int, seed: int, workers: int = 2) -> DataLoader[Batch]:
    """Batches of the dataset, read by `workers` processes that live as long as the loader, or by this one if 0."""
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=FewEpisodesAtATime(dataset, seed),
        num_workers=workers,
        persistent_workers=workers > 0,
        multiprocessing_context="fork" if workers else None,
    )


def build_policy(seed: int) -> Policy:
    """The pretrained base with an action head initialised from `seed`."""
    return Policy.from_base(seed=seed)


def fine_tune(policy: Policy, loader: DataLoader[Batch], epochs: int) -> list[float]:
    """Train `policy` in place, and return the loss of every step."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE)
    losses = []
    policy.train()
    for batch in itertools.chain.from_iterable(itertools.repeat(loader, epochs)):
        optimizer.zero_grad()
        loss = policy(**batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        losses.append(loss.item())
    return losses
