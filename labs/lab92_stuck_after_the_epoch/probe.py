"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

import logging
import mmap
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import lightning
import torch
from lightning.fabric.plugins.environments import ClusterEnvironment
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.utils.data import DataLoader

from labs.lab92_stuck_after_the_epoch.processes import Ended, Report, in_processes

Batch = dict[str, Tensor]


def validated(learner: Any, runs: list[list[list[Batch]]], seed: int) -> list[list[dict[str, Any]]]:
    """`Trainer.validate` in two processes, run by run: for each run and process, how it ended and what it logged.

    A run is one list of batches for each process. A run that does not end is cut off; the next ones begin anew.
    """

    def work(rank: int, number: int) -> Any:
        recorder, values = _Recorder(), _Values()
        module = learner.policy.build_module(seed)
        _trainer(rank, len(runs[number]), logger=recorder, callbacks=[values]).validate(
            module, _ready(runs[number][rank]), verbose=False
        )
        return {"values": values.all, "recorded": recorder.rows}

    return _run_by_run(work, len(runs), len(runs[0]))


def fitted(learner: Any, runs: list[dict[str, Any]], seed: int) -> list[list[dict[str, Any]]]:
    """`Trainer.fit` in two processes, with validation after each of `epochs` epochs; the runs as in `validated`.

    A run has `training` and `validation`, a list of batches for each process. Also returned are the losses of the
    process's own steps, its weights at the end, and `before`, those at its start.
    """

    def work(rank: int, number: int) -> Any:
        run = runs[number]
        recorder, values, losses = _Recorder(), _Values(), _Losses()
        module = learner.policy.build_module(seed)
        trainer = _trainer(
            rank,
            len(run["training"]),
            max_epochs=run["epochs"],
            num_sanity_val_steps=run.get("sanity", 0),
            logger=recorder,
            callbacks=[values, losses],
            log_every_n_steps=1,
        )
        trainer.fit(module, _ready(run["training"][rank]), _ready(run["validation"][rank]))
        weights = {name: value.detach() for name, value in module.policy.named_parameters()}
        return {"values": values.all, "recorded": recorder.rows, "losses": losses.all, "weights": weights}

    return _run_by_run(work, len(runs), len(runs[0]["training"]))


def alone(learner: Any, batches: list[Batch], seed: int) -> dict[str, Any]:
    """`Trainer.validate` in one process without a group."""
    recorder, values = _Recorder(), _Values()
    with _quiet():
        trainer = _trainer(0, 1, logger=recorder, callbacks=[values])
        trainer.validate(learner.policy.build_module(seed), _ready(batches), verbose=False)
    return {"values": values.all, "recorded": recorder.rows}


def _run_by_run(work: Any, count: int, processes: int) -> list[list[dict[str, Any]]]:
    """Do `work(rank, number)` for all numbers in order; where it does not end, go on with the next in new processes."""
    told: list[list[dict[str, Any]]] = []
    while len(told) < count:
        first = len(told)
        arrived = memoryview(mmap.mmap(-1, 8 * processes)).cast("d")

        def one_after_another(rank: int, report: Report, first: int = first, arrived: memoryview = arrived) -> None:
            with _quiet():
                for number in range(first, count):
                    report(work(rank, number))
                    arrived[rank] = number - first + 1
                    while min(arrived) < arrived[rank]:  # without a collective: a later run may not answer this one's
                        time.sleep(0.01)

        ranks = in_processes(one_after_another, processes)
        done = min(len(rank.results) for rank in ranks)
        told += [[_finished(rank.results[number]) for rank in ranks] for number in range(done)]
        if len(told) < count:
            told.append([_finished(rank.results[done]) if len(rank.results) > done else _cut(rank) for rank in ranks])
    return told


def _finished(result: dict[str, Any]) -> dict[str, Any]:
    return {"ended": "finished", "stack": [], **result}


def _cut(rank: Ended) -> dict[str, Any]:
    nothing: dict[str, Any] = {"values": [], "recorded": [], "losses": [], "weights": {}}
    return {"ended": rank.how, "stack": [list(line) for line in rank.stack], **nothing}


class _Beside(ClusterEnvironment):
    """Tells Lightning that the processes of the group exist already."""

    creates_processes_externally = True
    main_address = "127.0.0.1"
    main_port = 0

    def __init__(self, rank: int, count: int) -> None:
        self._rank, self._count = rank, count

    @staticmethod
    def detect() -> bool:
        return True

    def world_size(self) -> int:
        return self._count

    def set_world_size(self, size: int) -> None:
        pass

    def global_rank(self) -> int:
        return self._rank

    def set_global_rank(self, rank: int) -> None:
        pass

    def local_rank(self) -> int:
        return self._rank

    def node_rank(self) -> int:
        return 0


def _trainer(rank: int, processes: int, **options: Any) -> lightning.Trainer:
    """Lightning's trainer on the CPU, as process `rank` of a group, or alone; without files and progress bars."""
    beside = DDPStrategy(cluster_environment=_Beside(rank, processes), process_group_backend="gloo")
    return lightning.Trainer(
        accelerator="cpu",
        devices=processes,
        strategy=beside if processes > 1 else "auto",
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


def _ready(prepared: Sequence[Batch]) -> DataLoader[Batch]:
    """A loader of ready-made batches."""
    return DataLoader(list(prepared), batch_size=None)  # type: ignore[arg-type]  # a list is a data set


class _Recorder(Logger):
    """Keeps what Lightning gives to a logger; it does so in process 0 only."""

    name, version = "recorder", "0"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:  # noqa: ARG002
        self.rows.append({name: float(value) for name, value in metrics.items()})

    def log_hyperparams(self, *args: Any, **options: Any) -> None:
        pass


class _Values(lightning.Callback):
    """The metrics that callbacks such as EarlyStopping can read after each validation."""

    def __init__(self) -> None:
        self.all: list[dict[str, float]] = []

    def on_validation_end(self, trainer: Any, _module: Any) -> None:
        if not trainer.sanity_checking:
            self.all.append({name: float(value) for name, value in trainer.callback_metrics.items()})


class _Losses(lightning.Callback):
    """The loss of each training step."""

    def __init__(self) -> None:
        self.all: list[float] = []

    def on_train_batch_end(self, _trainer: Any, _module: Any, outputs: Any, *_: Any) -> None:
        self.all.append(outputs["loss"].item())


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses Lightning's advice about devices, workers and loggers."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
