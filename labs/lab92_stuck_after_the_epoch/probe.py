"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

import mmap
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor

from labs.grading.sandbox.diagnosis import diagnose
from labs.lightning_processes import Batch, Losses, Recorder, Values, quiet, ready, trainer_of
from labs.processes import Ended, Report, in_processes
from labs.second_process import with_a_second_process
from labs.vla.dataset import batches, demonstrations

BATCH_SIZE, EPOCHS, EPOCH_STEPS = 16, 2, 12
SHOWN = ("validation_loss", "validation_loss/bench", "validation_loss/cart", "validation_loss/gantry")


def validated(learner: Any, runs: list[list[list[Batch]]], seed: int) -> list[list[dict[str, Any]]]:
    """`Trainer.validate` in two processes, run by run: for each run and process, how it ended and what it logged.

    A run is one list of batches for each process. A run that does not end is cut off; the next ones begin anew.
    """

    def work(rank: int, number: int) -> dict[str, Any]:
        recorder, values = Recorder(), Values()
        trainer = trainer_of(rank, len(runs[number]), logger=recorder, callbacks=[values])
        trainer.validate(learner.policy.build_module(seed), ready(runs[number][rank]), verbose=False)
        return {"values": values.all, "recorded": recorder.rows}

    return _run_by_run(work, len(runs), len(runs[0]))


def fitted(learner: Any, runs: list[dict[str, Any]], seed: int) -> list[list[dict[str, Any]]]:
    """`Trainer.fit` in two processes, with validation after each of `epochs` epochs; the runs as in `validated`.

    A run has `training` and `validation`, a list of batches for each process. Also returned are the losses of the
    process's own steps, its weights at the end, its optimizer's settings, and the
    modes of the module's parts in these steps.
    """
    return _run_by_run(lambda rank, number: _fit(learner, runs[number], rank, seed), len(runs), 2)


def alone(learner: Any, runs: list[list[Batch]], seed: int) -> list[dict[str, Any]]:
    """`Trainer.validate` in one process without a group, on each list of batches."""
    told = []
    with quiet():
        for run in runs:
            recorder, values = Recorder(), Values()
            trainer = trainer_of(0, 1, logger=recorder, callbacks=[values])
            trainer.validate(learner.policy.build_module(seed), ready(run), verbose=False)
            told.append({"values": values.all, "recorded": recorder.rows})
    return told


def trained(learner: Any, seed: int) -> list[dict[str, Any]]:
    """Two processes fine-tune the base on demonstrations; process 1's share has no frame of the last robot."""
    return fitted(learner, [demonstration_run(seed)], seed)[0]


def action(learner: Any, batch: Batch, seed: int, louder: float = 1.0) -> Tensor:
    """The chunk that a newly built module predicts in evaluation mode, (B, H, 3).

    The weights of its head's last layer are multiplied by `louder`.
    """
    module = learner.policy.build_module(seed).eval()
    with torch.no_grad():
        module.policy.head.mlp[-1].weight.mul_(louder)
    return module.predict_step(batch)


def parameters(learner: Any) -> dict[str, list[int]]:
    """The shapes of the trainable parameters of a newly built module, without the policy's prefix."""
    named = learner.policy.build_module(0).named_parameters()
    return {name.removeprefix("policy."): list(value.shape) for name, value in named if value.requires_grad}


def _fit(learner: Any, run: dict[str, Any], rank: int, seed: int, *callbacks: lightning.Callback) -> dict[str, Any]:
    recorder, values, losses = Recorder(), Values(), Losses()
    module = learner.policy.build_module(seed)
    trainer = trainer_of(
        rank,
        len(run["training"]),
        max_epochs=run["epochs"],
        num_sanity_val_steps=0,
        logger=recorder,
        callbacks=[values, losses, *callbacks],
        log_every_n_steps=1,
    )
    trainer.fit(module, ready(run["training"][rank]), ready(run["validation"][rank]))
    weights = {name: value.detach() for name, value in module.policy.named_parameters()}
    group = trainer.optimizers[0].param_groups[0]
    settings = {"type": type(trainer.optimizers[0]).__name__}
    settings |= {name: group[name] for name in ("initial_lr", "betas", "weight_decay")}
    logged = {"values": values.all, "recorded": recorder.rows}
    return {**logged, "losses": losses.all, "weights": weights, "optimizer": settings, "modes": losses.modes}


def _run_by_run(work: Any, count: int, processes: int) -> list[list[dict[str, Any]]]:
    """Do `work(rank, number)` for all numbers in order; where it does not end, go on with the next in new processes."""
    told: list[list[dict[str, Any]]] = []
    while len(told) < count:
        first = len(told)
        arrived = memoryview(mmap.mmap(-1, 8 * processes)).cast("d")

        def one_after_another(rank: int, report: Report, first: int = first, arrived: memoryview = arrived) -> None:
            with quiet():
                for number in range(first, count):
                    report(work(rank, number))
                    arrived[rank] = number - first + 1
                    while min(arrived) < arrived[rank]:  # without a collective: no later run may answer this one's
                        time.sleep(0.01)

        ranks = in_processes(one_after_another, processes)
        done = min(len(rank.results) for rank in ranks)
        told += [[_finished(rank.results[number]) for rank in ranks] for number in range(done)]
        if len(told) < count:
            told.append([_finished(rank.results[done]) if len(rank.results) > done else _cut(rank) for rank in ranks])
    return told


def _finished(result: dict[str, Any]) -> dict[str, Any]:
    return {"ended": "finished", **result}


def _cut(rank: Ended) -> dict[str, Any]:
    return {"ended": rank.how, "values": [], "recorded": [], "losses": [], "weights": {}}


def demonstration_run(seed: int) -> dict[str, Any]:
    """A run of `fitted` on demonstrations; process 1's held-out share has no frame of the last robot."""
    training, validation = [], []
    for rank in (0, 1):
        frames = demonstrations(EPOCH_STEPS * BATCH_SIZE, seed=4 * seed + rank)
        training.append(list(batches(frames, BATCH_SIZE, steps=EPOCH_STEPS, seed=seed)))
        held_out = list(batches(demonstrations(48, seed=4 * seed + 2 + rank), 16, steps=3, seed=seed))
        robots = 2 if rank == 1 else 3
        chance = torch.Generator().manual_seed(seed + rank)
        validation.append([{**one, "robot": torch.randint(robots, (16,), generator=chance)} for one in held_out])
    return {"training": training, "validation": validation, "epochs": EPOCHS}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments, and a training of Lightning in two processes; both of them are examined."""
    with_a_second_process(lambda: diagnose(_examined(learner, rank=1)) and None)
    return _examined(learner, rank=0)


def _examined(learner: Any, rank: int) -> dict[str, Any]:
    module, run = learner.policy.build_module(0), demonstration_run(92)

    def loop() -> None:
        trainer = trainer_of(rank, 2, max_epochs=EPOCHS, num_sanity_val_steps=0, logger=False)
        with quiet():
            trainer.fit(module, ready(run["training"][rank]), ready(run["validation"][rank]))

    return {
        "model": module,
        "batch": run["training"][0][0],
        "loss_fn": lambda module, batch: module.frame_losses(batch).mean(),
        "loop": loop,
    }


def symptom(learner: Any) -> None:
    """Train and validate in one process, and on the same data in two: what `lab run 92` shows."""
    run = demonstration_run(92)
    whole = {"epochs": EPOCHS} | {
        name: [[batch for both in zip(*run[name], strict=True) for batch in both]]
        for name in ("training", "validation")
    }
    print("In one process         validation_loss   /bench    /cart  /gantry")
    with quiet():
        _fit(learner, whole, 0, 92, _Diary(lambda line: print(f"  {line}", flush=True)))
    print("\nIn two processes, each with half of the same data")

    def work(rank: int, report: Report) -> None:
        with quiet():
            _fit(learner, run, rank, 92, _Diary(report))

    for rank, ended in enumerate(in_processes(work, 2)):
        for line in ended.results:
            print(f"  process {rank}  {line}")
        print(f"  process {rank}  {ended.how}")
        for file, _, function in ended.stack[-6:]:
            print(f"             {function}  in {Path(file).name}")
        if ended.stack:
            own = sum(file.endswith("policy.py") and "site-packages" not in file for file, *_ in ended.stack)
            print(f"             calls in policy.py on the whole stack: {own}")


class _Diary(lightning.Callback):
    """Tells what a process does, and what it has logged after each validation."""

    def __init__(self, tell: Any) -> None:
        self.tell = tell

    def on_train_epoch_start(self, trainer: Any, _module: Any) -> None:
        self.tell(f"epoch {trainer.current_epoch}  trains")

    def on_validation_start(self, trainer: Any, _module: Any) -> None:
        self.tell(f"epoch {trainer.current_epoch}  validates")

    def on_validation_end(self, trainer: Any, _module: Any) -> None:
        if trainer.is_global_zero:  # as a logger does
            shown = "".join(f"{float(trainer.callback_metrics.get(name, torch.nan)):9.3f}" for name in SHOWN)
            self.tell(f"epoch {trainer.current_epoch}  logs{' ' * 11}{shown}")
