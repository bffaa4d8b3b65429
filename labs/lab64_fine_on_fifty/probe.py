"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child.

Counts the images that are alive, not the memory of the process: every decoded storage from its allocation until it is
freed, whatever refers to it. Counts are in images of 64 × 64 pixels.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import weakref
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import default_collate, get_worker_info

from debugkit.measurements.memory_profile.storage_counter import StorageCounter
from labs.recordings import SEGMENT, Recording, record
from labs.reference_training import with_dropout
from labs.vla.dataset import Batch
from labs.vla.randomness import private_randomness

IMAGE = 64 * 64 * 3
FEW, MANY, BATCH_SIZE = 50, 250, 32


class Decoded:
    """Patches `Recording.decode`: counts the segments that were decoded, and the images of them that are alive."""

    def __init__(self, counter: StorageCounter | None = None, decode: Any = Recording.decode) -> None:
        self.segments = 0
        self.alive = 0
        self._counter = counter
        self._decode = decode

    def __enter__(self) -> Decoded:

        def counted(recording: Recording, segment: int) -> Tensor:
            images = self._decode(recording, segment)
            self.segments += 1
            self.alive += len(images)
            # The storage and not the tensor: a view keeps the storage alive.
            weakref.finalize(images.untyped_storage(), self._freed, len(images))
            if self._counter is not None:
                self._counter.hold([images], "activations")
            return images

        self._patch = patch.object(Recording, "decode", counted)
        self._patch.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._patch.__exit__(*error)

    def _freed(self, images: int) -> None:
        self.alive -= images


def reads(learner: Any, lengths: list[list[int]], order: list[tuple[int, int]], same: bool = False) -> dict[str, Any]:
    """Read frames in an order of (data set, index), from data sets whose episodes have these `lengths`.

    If they are to be the `same`, all data sets have the recordings of the first.

    After each read: `decoded`, how many segments have been decoded so far, and `alive`, how many images' bytes are
    alive. `left`: how many are alive after each of the data sets has been dropped, in their order, before the garbage
    collector runs.
    """
    gc.freeze()  # a data set that collects garbage at every read must not search all of torch each time
    recordings = [black(own) for own in lengths]
    recordings = [recordings[0] if same else own for own in recordings]
    datasets = [learner.policy.RecordedFrames(own) for own in recordings]
    decoded, alive, left = [], [], []
    with StorageCounter() as counter, Decoded(counter, decode_black) as seen:
        counter.hold([tensor for own in recordings for one in own for tensor in (one.state, one.action)], "parameters")
        before = counter.live
        for which, index in order:
            datasets[which][index]
            decoded.append(seen.segments)
            alive.append((counter.live - before) // IMAGE)
        gc.disable()
        try:
            while datasets:
                del datasets[0]
                left.append((counter.live - before) // IMAGE)
        finally:
            gc.enable()
            gc.unfreeze()
    return {"decoded": torch.tensor(decoded), "alive": torch.tensor(alive), "left": left}


def items(
    learner: Any, recordings: list[list[dict[str, Any]]], order: list[tuple[int, int]], pickled_at: int | None
) -> dict[str, Any]:
    """Read items in an order of (data set, index): `items`, or the type and text of the error that pickling raised.

    Before the read number `pickled_at` every data set is replaced by a pickled copy.
    """
    datasets = [learner.policy.RecordedFrames([recording_of(one) for one in own]) for own in recordings]
    seen: list[Batch] = []
    for number, (which, index) in enumerate(order):
        if number == pickled_at:
            try:
                datasets = pickle.loads(pickle.dumps(datasets))
            except Exception as error:  # the check says what it means
                return {"items": [], "raised": f"{type(error).__name__}: {error}"}
        seen.append({name: value.clone() for name, value in datasets[which][index].items()})
    return {"items": seen, "raised": None}


def bounds(learner: Any, lengths: list[int]) -> dict[str, Any]:
    """The data set's length, and by index what reading an item raises: its type, or None."""
    dataset = learner.policy.RecordedFrames(black(lengths))
    raised: dict[int, str | None] = {}
    with Decoded(decode=decode_black):
        for index in (-1, 0, sum(lengths) - 1, sum(lengths)):
            try:
                dataset[index]
                raised[index] = None
            except Exception as error:  # the check decides whether it is the expected one
                raised[index] = type(error).__name__
    return {"length": len(dataset), "raised": raised}


def loaded(
    learner: Any, lengths: list[int], batch_size: int, seed: int, epochs: int, workers: int | None
) -> dict[str, Any]:
    """Go through a loader: `frames`, the indices of each epoch in their order, and `sizes` of its batches.

    By the number of the worker, `alive`: the most decoded images that were alive in it when it had read a batch.
    `processes`: the ids of the processes that read each epoch. `workers` of None asks for the default.
    """
    asked = {} if workers is None else {"workers": workers}
    with Decoded(decode=decode_black) as seen:
        loader = learner.policy.build_loader(learner.policy.RecordedFrames(black(lengths)), batch_size, seed, **asked)
        noted = Noted(loader, seen)
        frames, sizes, processes = [], [], []
        for _ in range(epochs):
            first = len(noted.notes)
            batches = [batch["state"][:, 0].long() for batch in noted]
            frames.append(torch.cat(batches))
            sizes.append([len(batch) for batch in batches])
            processes.append(sorted({process for process, _, _ in noted.notes[first:]}))
        running = len(multiprocessing.active_children())
    return {
        "frames": frames,
        "sizes": sizes,
        "length": len(loader),
        "alive": noted.most(),
        "processes": processes,
        "running": running,
        "main": os.getpid(),
    }


def tuned(learner: Any, batches: list[Batch], epochs: int, seed: int, head_scale: float) -> dict[str, Any]:
    """`fine_tune` on a list of batches, of a policy in evaluation mode with dropout and a scaled head.

    Returns the losses, the norm of each parameter's gradient at each step of the optimizer, and the weights.
    """
    policy = scaled(with_dropout(learner.policy.build_policy(seed)).eval(), head_scale)
    norms: list[dict[str, float]] = []

    def note(*_: Any) -> None:
        norms.append({name: float(p.grad.norm()) for name, p in policy.named_parameters() if p.grad is not None})

    handle = register_optimizer_step_pre_hook(note)
    try:
        with private_randomness(seed):
            losses = learner.policy.fine_tune(policy, batches, epochs)
    finally:
        handle.remove()
    weights = {name: value.detach() for name, value in policy.named_parameters()}
    return {"losses": losses, "norms": norms, "weights": weights}


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The chunk that a newly built policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def trained(learner: Any, seed: int, episodes: int) -> dict[str, Any]:
    """Fine-tune one epoch on recordings with two workers: the most images alive in each.

    `before` and `after` are the policy's losses on the frames of other recordings.
    """
    policy, others = learner.policy.build_policy(seed), record(24, seed + 500_000)
    held_out = learner.policy.RecordedFrames(others)
    batch = default_collate([held_out[index] for index in range(len(held_out))])
    before = _loss(policy, batch)
    with Decoded() as seen:
        noted = Noted(_loader(learner, episodes, seed), seen)
        losses = learner.policy.fine_tune(policy, noted, 1)
    return {"steps": len(losses), "before": before, "after": _loss(policy, batch), "alive": noted.most()}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit's arguments: a policy, and an epoch over sixty episodes, read by the process that trains."""
    policy = learner.policy.build_policy(0)
    dataset = learner.policy.RecordedFrames(record(60, seed=64))
    loader = learner.policy.build_loader(dataset, 16, seed=64, workers=0)
    return {"model": policy, "loop": lambda: learner.policy.fine_tune(policy, loader, 1)}


def symptom(learner: Any) -> None:
    """Train on few episodes and on many, and print what is alive in the workers: what `lab run 64` shows."""
    print("Fine-tuning on recordings, one epoch with two workers\n")
    print("                             decoded images in memory, MB")
    print("  episodes   step    loss         worker 0   worker 1")
    for episodes in (FEW, MANY):
        with Decoded() as seen:
            noted = Noted(_loader(learner, episodes, 64), seen)
            losses = learner.policy.fine_tune(learner.policy.build_policy(64), noted, 1)
        steps = len(losses)
        for step in (steps,) if episodes == FEW else (steps // 4, steps // 2, 3 * steps // 4, steps):
            loss = sum(losses[max(0, step - 10) : step]) / min(step, 10)
            alive = "   ".join(f"{images * IMAGE / 2**20:8.1f}" for images in noted.latest(step))
            print(f"  {episodes:8d}   {step:4d}   {loss:5.3f}         {alive}", flush=True)


class Noted:
    """A loader's batches. Each worker notes with every batch how many decoded images are alive in it."""

    def __init__(self, loader: Any, seen: Decoded) -> None:
        self._loader = loader
        self.notes: list[tuple[int, int, int]] = []
        collate = loader.collate_fn

        def noting(rows: list[Any]) -> Any:
            batch = collate(rows)
            del rows
            info = get_worker_info()
            return batch, (os.getpid(), info.id if info is not None else 0, seen.alive)

        loader.collate_fn = noting

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Batch]:
        for batch, note in self._loader:
            self.notes.append(note)
            yield batch

    def most(self) -> dict[int, int]:
        """By worker, the most images."""
        return {worker: max(alive for _, w, alive in self.notes if w == worker) for _, worker, _ in self.notes}

    def latest(self, step: int) -> list[int]:
        """The images of worker 0 and of worker 1 after so many steps."""
        return [[alive for _, w, alive in self.notes[:step] if w == worker][-1] for worker in (0, 1)]


def black(lengths: list[int]) -> list[Recording]:
    """Recordings of these lengths with black images. A state's first number is its frame's index in the data set."""
    recordings, start = [], 0
    for length in lengths:
        state = torch.zeros(length, 3)
        state[:, 0] = torch.arange(start, start + length)
        video = (b"",) * -(-length // SEGMENT)  # `decode_black` does not read it
        recordings.append(Recording("reach red", state, torch.zeros(length, 3), video))
        start += length
    return recordings


def decode_black(recording: Recording, segment: int) -> Tensor:
    """The black images of one segment, without the time that decoding takes.

    As for `decode`, a negative number counts from the end, and one that is out of range raises IndexError.
    """
    number = range(len(recording.video))[segment]
    return torch.zeros(min(SEGMENT, len(recording) - number * SEGMENT), 64, 64, 3, dtype=torch.uint8)


def recording_of(fields: dict[str, Any]) -> Recording:
    """A recording from its instruction, states, actions and images."""
    return Recording.of(fields["instruction"], fields["state"], fields["action"], fields["images"].numpy())


@torch.no_grad()
def _loss(policy: Any, batch: Batch) -> float:
    return float(policy.eval()(**batch).loss)


@torch.no_grad()
def scaled(policy: Any, factor: float) -> Any:
    """The policy with the head's last weights multiplied, which makes its gradients longer."""
    policy.head.mlp[-1].weight.mul_(factor)
    return policy


def _loader(learner: Any, episodes: int, seed: int) -> Any:
    return learner.policy.build_loader(learner.policy.RecordedFrames(record(episodes, seed)), BATCH_SIZE, seed)
