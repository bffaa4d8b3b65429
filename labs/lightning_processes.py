"""Lightning's Trainer as one process of a group that exists already, and callbacks that keep what was logged."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import lightning
from lightning.fabric.plugins.environments import ClusterEnvironment
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.utils.data import DataLoader

Batch = dict[str, Tensor]


class Beside(ClusterEnvironment):
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


def trainer_of(rank: int, processes: int, **options: Any) -> lightning.Trainer:
    """Lightning's trainer on the CPU, as process `rank` of a group, or alone; without files and progress bars."""
    beside = DDPStrategy(cluster_environment=Beside(rank, processes), process_group_backend="gloo")
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


def ready(prepared: Sequence[Batch]) -> DataLoader[Batch]:
    """A loader of ready-made batches."""
    return DataLoader(list(prepared), batch_size=None)  # type: ignore[arg-type]  # a list is a data set


class Recorder(Logger):
    """Keeps what Lightning gives to a logger; it does so in process 0 only."""

    name, version = "recorder", "0"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:  # noqa: ARG002
        self.rows.append({name: float(value) for name, value in metrics.items()})

    def log_hyperparams(self, *args: Any, **options: Any) -> None:
        pass


class Values(lightning.Callback):
    """The metrics that callbacks such as EarlyStopping can read after each validation."""

    def __init__(self) -> None:
        self.all: list[dict[str, float]] = []

    def on_validation_end(self, trainer: Any, _module: Any) -> None:
        if not trainer.sanity_checking:
            self.all.append({name: float(value) for name, value in trainer.callback_metrics.items()})


class Losses(lightning.Callback):
    """The loss of each training step, and in which modes the module's parts were: `training`, `evaluation` or both."""

    def __init__(self) -> None:
        self.all: list[float] = []
        self.modes: list[str] = []

    def on_train_batch_end(self, _trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
        self.all.append(outputs["loss"].item())
        modes = {"training" if part.training else "evaluation" for part in module.modules()}
        self.modes = sorted({*self.modes, *modes})


@contextmanager
def quiet() -> Iterator[None]:
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
