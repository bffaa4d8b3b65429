"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child.

The processes that train together are forks of that child. They find each other through a file, communicate over the
loopback interface, and are killed as soon as all of them wait. How long that takes on a busy machine decides nothing:
each process counts how often it was asked and had not computed, and the learner's time-out does not apply.
"""

from __future__ import annotations

import gc
import mmap
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import debugkit
from labs.vla.dataset import batches, demonstrations

BEAT_S = 0.05
"""How often each process looks whether it has computed."""
WORK = 0.02
"""Below this part of one processor's time between two beats, a process has not computed."""
IDLE_BEATS = 30
"""A process that has not computed for so many beats waits."""
LONGEST_S = 80.0
WITHOUT_IMAGE = 0.3
BATCH_SIZE = 16
SHOWN_STEPS = 8


def trained_together(
    learner: Any, streams: list[list[dict[str, Tensor]]], seed: int, rate: float = 1.0, normalized: bool = False
) -> list[dict[str, Any]]:
    """Train one policy in one process per stream of batches; returns a result for each process.

    `ended` is `finished`, `raised …`, `aborted` or `still waiting`; `losses` are the process's own; `before` and
    `parameters` are the parameters at its start and at its end; `counts` is described by `COUNTS`. Each process builds
    a policy of its own: the first from `seed`. Uses plain SGD at `rate`, so that one step at rate 1 subtracts the
    gradient. With `normalized` each gradient is divided by its size: averaging the weights after the step is then
    another training.
    """
    return _together(learner, streams, seed, _normalized(rate) if normalized else _sgd(rate))


def action(learner: Any, batch: dict[str, Tensor], seed: int, louder: float = 1.0) -> Tensor:
    """The chunk of a newly built policy in evaluation mode, (B, H, 3); by default every frame has an image.

    The weights of its head's last layer are multiplied by `louder`.
    """
    policy = learner.policy.MixedPolicy.from_base(seed=seed).eval()
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(louder)
    has_image = batch.get("has_image", torch.ones(len(batch["state"]), dtype=torch.bool))
    return policy.predict({**batch, "has_image": has_image})


def declared_timeout(learner: Any) -> float:
    """The seconds of the learner's TIMEOUT."""
    return learner.policy.TIMEOUT.total_seconds()


def losses(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """The training loss of a newly built policy, with the batch's padding and without any; has predict() a graph?"""
    policy = learner.policy.MixedPolicy.from_base(seed=seed)
    unpadded = {name: value for name, value in batch.items() if name != "action_is_pad"}
    graph = policy.predict(batch).requires_grad
    with torch.no_grad():
        return {
            "with `action_is_pad`": policy(**batch).loss,
            "without `action_is_pad`": policy(**unpadded).loss,
            "graph": graph,
        }


def trainable(learner: Any) -> dict[str, bool]:
    """Which parameters of a newly built policy require a gradient."""
    policy = learner.policy.MixedPolicy.from_base(seed=0)
    return {name: parameter.requires_grad for name, parameter in policy.named_parameters()}


def trained_on_demonstrations(learner: Any, seed: int, steps: int) -> list[dict[str, Any]]:
    """Two processes fine-tune the base on demonstrations; three out of ten batches have no image."""
    streams = demonstration_streams(seed, steps)
    return _together(learner, streams, seed, _adam())


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
    optimizer = _adam()
    return _together(learner, streams, 81, optimizer, show=True)


def _sgd(rate: float) -> Any:
    return lambda parameters: torch.optim.SGD(parameters, lr=rate)


def _normalized(rate: float) -> Any:
    """It remembers nothing: for it, a missing gradient and a gradient of zero are the same."""
    return lambda parameters: torch.optim.RMSprop(parameters, lr=rate, alpha=0.0, eps=1e-2)


def _adam() -> Any:
    return lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95))


COUNTS = (
    "idle",
    "timeout_s",
    "batches",
    "towers",
    "empty",
    "forwards",
    "losses",
    "evaluations",
    "unsynchronized",
    "backwards",
    "without_gradient",
    "tower_without_gradient",
    "steps",
)
"""What is counted in each process, also in one that never returns.

Beats since it last computed; the time-out that it asked for; batches requested; passes through the vision tower, and
those of no image; forward passes begun and completed, those in evaluation mode, and those under `no_sync`; backward
passes begun; the most parameters without a gradient in an optimizer step, of all and of the tower; optimizer steps.
"""


class Counts:
    """The counts of each process, in memory that they share."""

    def __init__(self, processes: int) -> None:
        self._shared = memoryview(mmap.mmap(-1, 8 * len(COUNTS) * processes)).cast("d")

    def of(self, rank: int) -> dict[str, float]:
        """All counts of one process."""
        return {name: self._shared[self._place(rank, name)] for name in COUNTS}

    def set(self, rank: int, name: str, value: float) -> None:
        """Set one count of one process."""
        self._shared[self._place(rank, name)] = value

    def add(self, rank: int, name: str) -> None:
        """Count once more."""
        self._shared[self._place(rank, name)] += 1

    def _place(self, rank: int, name: str) -> int:
        return len(COUNTS) * rank + COUNTS.index(name)


def _together(
    learner: Any, streams: list[list[dict[str, Tensor]]], seed: int, optimizer: Any, show: bool = False
) -> list[dict[str, Any]]:
    """Fork a process per stream, wait for their results, and kill them. With `show`, the learner's time-out holds."""
    counts = Counts(len(streams))
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder) / "meeting"
        notes = [Path(folder) / f"rank{rank}" for rank in range(len(streams))]
        sys.stdout.flush()
        gc.collect()
        children: list[int] = []
        dead: set[int] = set()
        try:
            for rank, stream in enumerate(streams):
                child = os.fork()
                if child == 0:
                    _be_a_rank(learner, rank, len(streams), meeting, stream, seed, optimizer, notes[rank], counts, show)
                children.append(child)
            _wait_for(notes, counts, children, dead, until_idle=not show)
        finally:
            for rank, child in enumerate(children):
                if rank not in dead:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
        silent = {"at": "", "losses": [], "before": {}, "parameters": {}, "began": [], "over": 0.0}
        results = [
            torch.load(note) if note.exists() else {"ended": "aborted" if rank in dead else "still waiting", **silent}
            for rank, note in enumerate(notes)
        ]
    return [{**result, "counts": counts.of(rank)} for rank, result in enumerate(results)]


def _wait_for(notes: list[Path], counts: Counts, children: list[int], dead: set[int], *, until_idle: bool) -> None:
    """Return when every process has finished, or when none of them computes: a busy machine is not a hang.

    Adds to `dead` the ranks whose process has ended; none ends by itself.
    """
    began = time.monotonic()
    while time.monotonic() - began < LONGEST_S and not all(note.exists() for note in notes):
        dead |= {rank for rank, child in enumerate(children) if rank not in dead and os.waitpid(child, os.WNOHANG)[0]}
        idle = [rank in dead or counts.of(rank)["idle"] >= IDLE_BEATS for rank in range(len(notes))]
        if until_idle and all(idle):
            return
        time.sleep(0.02)


def _be_a_rank(
    learner: Any,
    rank: int,
    world_size: int,
    meeting: Path,
    stream: list[dict[str, Tensor]],
    seed: int,
    optimizer: Any,
    note: Path,
    counts: Counts,
    show: bool,
) -> None:
    """Train, write the result, and stay alive: a process that exits looks like a broken connection, not like a hang."""
    gc.freeze()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    told: dict[str, Any] = {"ended": "finished", "at": "", "losses": [], "before": {}, "parameters": {}, "began": []}
    policy = learner.policy.MixedPolicy.from_base(seed=seed + rank).eval()
    if not show:
        _replace_time_out(rank, counts)
        threading.Thread(target=_count_idle_beats, args=(rank, counts), daemon=True).start()
    try:
        learner.policy.join_processes(rank, world_size, f"file://{meeting}")
        model = learner.policy.wrap(policy)
        told["before"] = _copy(policy)
        stepper = optimizer(model.parameters())
        _count_passes(rank, counts, policy, model, stepper)
        steps = _watched(stream, rank, told) if show else _counted(stream, rank, counts)
        told["losses"] = learner.policy.train(model, stepper, steps)
    except Exception as error:
        told["ended"] = f"raised {type(error).__name__}: {_first_sentence(error)}"
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith("policy.py")]
        told["at"] = f"policy.py:{lines[-1].lineno}  {lines[-1].line}" if lines else ""
    told["parameters"], told["over"] = _copy(policy), time.monotonic()
    torch.save(told, note.with_suffix(".part"))
    note.with_suffix(".part").rename(note)
    time.sleep(2 * LONGEST_S)
    os._exit(0)


def _replace_time_out(rank: int, counts: Counts) -> None:
    """Record the time-out that the learner's code asks for, and wait longer: a busy machine must not reach it."""
    join = dist.init_process_group

    def join_patiently(*args: Any, **options: Any) -> None:
        wanted = options.get("timeout")
        if wanted is not None:
            counts.set(rank, "timeout_s", wanted.total_seconds())
            options["timeout"] = timedelta(seconds=2 * LONGEST_S)
        join(*args, **options)

    dist.init_process_group = join_patiently


def _count_idle_beats(rank: int, counts: Counts) -> None:
    """Count the beats since this process last computed, without this thread's own time.

    A process that waits for its turn on a busy machine counts none: its other threads run between two beats.
    """
    idle, used = 0, 0.0
    while True:
        time.sleep(BEAT_S)
        now = time.process_time() - time.thread_time()
        idle = idle + 1 if now - used < WORK * BEAT_S else 0
        used = now
        counts.set(rank, "idle", idle)


def _count_passes(rank: int, counts: Counts, policy: Any, model: Any, optimizer: torch.optim.Optimizer) -> None:
    """Count the passes through the tower and through the model, and the optimizer's steps."""

    def tower(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        counts.add(rank, "towers")
        if any(isinstance(given, Tensor) and len(given) == 0 for given in (*args, *options.values())):
            counts.add(rank, "empty")

    def begun(*_: Any) -> None:
        counts.add(rank, "forwards")
        if not all(module.training for module in model.modules()):
            counts.add(rank, "evaluations")
        if not getattr(model, "require_backward_grad_sync", True):
            counts.add(rank, "unsynchronized")

    def completed(_: Any, __: Any, output: Any) -> None:
        counts.add(rank, "losses")
        loss = getattr(output, "loss", None)
        if isinstance(loss, Tensor) and loss.requires_grad:
            loss.register_hook(lambda _: counts.add(rank, "backwards"))

    def stepping(*_: Any) -> None:
        counts.add(rank, "steps")
        for name, part in (("without_gradient", policy), ("tower_without_gradient", policy.vision)):
            missing = sum(parameter.grad is None for parameter in part.parameters())
            counts.set(rank, name, max(missing, counts.of(rank)[name]))

    policy.vision.register_forward_pre_hook(tower, with_kwargs=True)
    model.register_forward_pre_hook(begun)
    model.register_forward_hook(completed)
    optimizer.register_step_pre_hook(stepping)


def _counted(stream: list[dict[str, Tensor]], rank: int, counts: Counts) -> Any:
    """Yield the batches, and count them."""
    for batch in stream:
        counts.add(rank, "batches")
        yield batch


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


def second_device(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """A step of a newly built policy on a second device, which is simulated in a child process."""
    policy = learner.policy.MixedPolicy.from_base(seed=seed).train()
    return asdict(debugkit.simulate_device(policy, batch))
