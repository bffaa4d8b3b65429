"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child.

The processes that train together are forks of that child. They find each other through a file, communicate over the
loopback interface, and are killed when their time is up, whatever they are waiting for.
"""

from __future__ import annotations

import gc
import mmap
import os
import re
import signal
import struct
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labs.vla.dataset import batches, demonstrations

PATIENCE_S = 8.0
"""Processes that do no work for this long wait for each other. The learner's own time-out is shorter."""
WORK = 0.05
"""Below this part of one processor's time, on average over `PATIENCE_S`, the processes together do no work."""
LONGEST_S = 80.0
WITHOUT_IMAGE = 0.3
BATCH_SIZE = 16
SHOWN_STEPS = 8


def trained_together(
    learner: Any, streams: list[list[dict[str, Tensor]]], seed: int, rate: float = 1.0, adam: bool = False
) -> list[dict[str, Any]]:
    """Train one policy in one process per stream of batches; returns a result for each process.

    `ended` is `finished`, `raised …` or `still waiting after 8 s`; `losses` are the process's own; `before` and
    `parameters` are the parameters at its start and at its end. Uses plain SGD at `rate`, so that one step at rate 1
    subtracts the gradient, or AdamW.
    """
    return _together(learner, streams, seed, _optimizer(adam, rate))


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk of a newly built policy in evaluation mode, (B, H, 3); by default every frame has an image."""
    policy = learner.policy.MixedPolicy.from_base(seed=seed).eval()
    has_image = batch.get("has_image", torch.ones(len(batch["state"]), dtype=torch.bool))
    return policy.predict({**batch, "has_image": has_image})


def trainable(learner: Any) -> dict[str, bool]:
    """Which parameters of a newly built policy require a gradient."""
    policy = learner.policy.MixedPolicy.from_base(seed=0)
    return {name: parameter.requires_grad for name, parameter in policy.named_parameters()}


def trained_on_demonstrations(learner: Any, seed: int, steps: int) -> list[dict[str, Any]]:
    """Two processes fine-tune the base on demonstrations; three out of ten batches have no image."""
    streams = demonstration_streams(seed, steps)
    return _together(learner, streams, seed, _optimizer(adam=True, rate=1e-3))


def demonstration_streams(seed: int, steps: int, without_image: float = WITHOUT_IMAGE) -> list[list[dict[str, Tensor]]]:
    """A stream of batches for each of two processes; in the other batches, some frames have no image either."""
    chance = torch.Generator().manual_seed(seed)
    streams = []
    for rank in (0, 1):
        frames = demonstrations(steps * BATCH_SIZE, seed=2 * seed + rank)
        stream = []
        for batch in batches(frames, BATCH_SIZE, steps=steps, seed=seed):
            dropped = torch.rand((), generator=chance) < without_image
            has_image = (torch.rand(BATCH_SIZE, generator=chance) > 0.1) & ~dropped
            stream.append({**batch, "pixel_values": batch["pixel_values"][has_image], "has_image": has_image})
        streams.append(stream)
    return streams


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: the wrapped policy of one process, and a batch without images."""
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = learner.policy.wrap(learner.policy.MixedPolicy.from_base(seed=0))
    batch = next(batches(demonstrations(8, seed=81), 8, steps=1, seed=81))
    blind = {**batch, "pixel_values": batch["pixel_values"][:0], "has_image": torch.zeros(8, dtype=torch.bool)}
    return {"model": model, "batch": blind, "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3)}


def symptom(learner: Any) -> None:
    """Train in two processes and print how far each got: what `lab run 81` shows."""
    print(f"Fine-tuning in two processes, {SHOWN_STEPS} steps of {BATCH_SIZE} frames each\n", flush=True)
    began = time.monotonic()
    ranks = shown_run(learner)
    print(f"\nafter {time.monotonic() - began:.0f} s")
    for rank, result in enumerate(ranks):
        print(f"  process {rank}: {len(result['losses'])} of {SHOWN_STEPS} steps, {result['ended']}")
        if result["at"]:
            print(f"             at {result['at']}")


def shown_run(learner: Any) -> list[dict[str, Any]]:
    """A run that is recorded step by step: `began` and `over` are times of the same clock."""
    streams = demonstration_streams(81, SHOWN_STEPS, without_image=0.0)
    blind = streams[1][4]
    streams[1][4] = {**blind, "pixel_values": blind["pixel_values"][:0], "has_image": blind["has_image"] & False}
    optimizer = _optimizer(adam=True, rate=1e-3)
    return _together(learner, streams, 81, optimizer, show=True)


def _optimizer(adam: bool, rate: float) -> Any:
    if adam:
        return lambda parameters: torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.95))
    return lambda parameters: torch.optim.SGD(parameters, lr=rate)


def _together(
    learner: Any,
    streams: list[list[dict[str, Tensor]]],
    seed: int,
    optimizer: Any,
    show: bool = False,
) -> list[dict[str, Any]]:
    """Fork one process per stream, wait for their results, and kill them."""
    with tempfile.TemporaryDirectory() as folder, mmap.mmap(-1, 8 * len(streams)) as work:
        meeting = Path(folder) / "meeting"
        notes = [Path(folder) / f"rank{rank}" for rank in range(len(streams))]
        sys.stdout.flush()
        gc.collect()
        children = []
        try:
            for rank, stream in enumerate(streams):
                child = os.fork()
                if child == 0:
                    _be_a_rank(learner, rank, len(streams), meeting, stream, seed, optimizer, notes[rank], show, work)
                children.append(child)
            _wait_for(notes, work)
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        silent = {"ended": f"still waiting after {PATIENCE_S:.0f} s", "at": "", "losses": []}
        silent |= {"before": {}, "parameters": {}, "began": [], "over": 0.0}
        return [torch.load(note) if note.exists() else silent for note in notes]


def _wait_for(notes: list[Path], work: mmap.mmap) -> None:
    """Return when every process has finished, or when none has worked for a while: a busy machine is not a hang."""
    began = since = time.monotonic()
    done_before = 0.0
    while not all(note.exists() for note in notes):
        time.sleep(0.02)
        now, done = time.monotonic(), sum(struct.unpack(f"{len(notes)}d", work[:]))
        if done - done_before > WORK * PATIENCE_S:
            since, done_before = now, done
        if now - since > PATIENCE_S or now - began > LONGEST_S:
            return


def _tell_work(work: mmap.mmap, rank: int) -> None:
    """Write the CPU seconds of this process where its parent reads them."""
    while True:
        struct.pack_into("d", work, 8 * rank, time.process_time())
        time.sleep(0.1)


def _be_a_rank(
    learner: Any,
    rank: int,
    world_size: int,
    meeting: Path,
    stream: list[dict[str, Tensor]],
    seed: int,
    optimizer: Any,
    note: Path,
    show: bool,
    work: mmap.mmap,
) -> None:
    """Train, write the result, and stay alive: a process that exits looks like a broken connection, not like a hang."""
    gc.freeze()
    threading.Thread(target=_tell_work, args=(work, rank), daemon=True).start()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    told: dict[str, Any] = {"ended": "finished", "at": "", "losses": [], "before": {}, "parameters": {}, "began": []}
    try:
        learner.policy.join_processes(rank, world_size, f"file://{meeting}")
        policy = learner.policy.MixedPolicy.from_base(seed=seed)
        told["before"] = _copy(policy)
        model = learner.policy.wrap(policy)
        steps = _watched(stream, rank, told) if show else stream
        told["losses"] = learner.policy.train(model, optimizer(model.parameters()), steps)
    except Exception as error:
        told["ended"] = f"raised {type(error).__name__}: {_first_sentence(error)}"
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith("policy.py")]
        told["at"] = f"policy.py:{lines[-1].lineno}  {lines[-1].line}" if lines else ""
    told["parameters"], told["over"] = _copy(policy), time.monotonic()
    torch.save(told, note.with_suffix(".part"))
    note.with_suffix(".part").rename(note)
    time.sleep(2 * LONGEST_S)
    os._exit(0)


def _watched(stream: list[dict[str, Tensor]], rank: int, told: dict[str, Any]) -> Any:
    """Yield the batches; for each, print a line and record the time at which it is requested."""
    for step, batch in enumerate(stream):
        time.sleep(0.1 * rank)  # so that the lines come in order
        print(f"  process {rank} begins step {step}", flush=True)
        told["began"].append(time.monotonic())
        yield batch
        told["losses"] = [0.0] * (step + 1)  # how far it got, if training raises


def _copy(policy: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in policy.named_parameters()}


def _first_sentence(error: Exception) -> str:
    text = re.sub(r"^\[[^]]*\]\s*", "", str(error))  # gloo's messages start with its source file
    return re.split(r"\. |\n", text)[0][:110]
