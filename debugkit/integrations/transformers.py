"""debugkit inside the Hugging Face `Trainer`.

trainer = Trainer(model, arguments, train_dataset=data, callbacks=[DebugkitCallback()])
print(check_trainer(trainer))    # before training: the model, the loss and the data as this Trainer puts them together
trainer.train()                  # watched

"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from debugkit.checkup import check
from debugkit.declare import Declare
from debugkit.integrations.attachment import Attachment
from debugkit.integrations.missing import missing
from debugkit.report import Report
from debugkit.watch import OnFinding

try:
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_utils import RemoveColumnsCollator
except ImportError as error:
    raise missing("the Hugging Face Trainer", "'transformers[torch]'", "transformers") from error

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments


class DebugkitCallback(TrainerCallback):
    """Watches what a Trainer trains: `Trainer(..., callbacks=[DebugkitCallback()])`. Losses are bit-equal with it.

    The arguments are those of `debugkit.watch`. On a NaN or an Inf the last module calls are logged with the smallest
    and largest absolute value of their weights, inputs and outputs, as `--debug underflow_overflow` prints them. Every
    hook is gone when `train()` returns and when it raises; `.report` stays. Raises UnknownCodeError.
    """

    def __init__(
        self,
        on_finding: OnFinding = "log",
        snapshot_dir: str | Path | None = None,
        *,
        every: int = 1,
        select: str | Sequence[str] | None = None,
        ignore: str | Iterable[str] | None = None,
        declare: Declare | None = None,
    ) -> None:
        self._attachment = Attachment(
            on_finding, snapshot_dir, every=every, select=select, ignore=ignore, declare=declare
        )
        _guard.hold_for(self)

    @property
    def report(self) -> Report:
        """What was found in the training that runs, or in the last one."""
        return self._attachment.report

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: nn.Module | None = None,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        """Everything is prepared and on its device: watch from here."""
        if model is not None:
            self._attachment.open(model, [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else None)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Training ended well."""
        self._attachment.close()

    def close(self, error: BaseException | None = None) -> None:
        """Stop watching, now. Called by itself when `Trainer.train` returns or raises."""
        self._attachment.close(error)


def check_trainer(
    trainer: Trainer,
    *,
    select: str | Sequence[str] | None = None,
    ignore: str | Sequence[str] | Mapping[str, str] | None = None,
    declare: Declare | None = None,
) -> Report:
    """`debugkit.check` on what `trainer` would train: its model, its `compute_loss`, its optimizer, its data loaders.

    Among others this finds a column that `remove_unused_columns` takes away and the loss needs (DK905). Nothing is
    trained, and everything is left bit-identical. Raises UnknownCodeError.
    """
    loaders: dict[str, Any] = {"train": _with_all_columns(trainer, trainer.get_train_dataloader())}
    if trainer.eval_dataset is not None:
        loaders["validation"] = trainer.get_eval_dataloader()

    def loss_fn(model: nn.Module, batch: Any) -> torch.Tensor:
        loss = trainer.compute_loss(model, dict(batch) if isinstance(batch, Mapping) else batch)
        assert isinstance(loss, torch.Tensor)  # it is a pair only where outputs are asked for
        return loss

    given = trainer.optimizer
    assert trainer.model is not None  # a Trainer that was constructed has one
    try:
        return check(
            trainer.model,
            _first_batch(loaders["train"]),
            loss_fn,
            trainer.create_optimizer(),
            loaders,
            select=select,
            ignore=ignore,
            declare=declare,
        )
    finally:
        trainer.optimizer = given


def _with_all_columns(trainer: Trainer, loader: Any) -> Any:
    """A loader that still knows the columns which were taken off a `datasets.Dataset` before it was made."""
    whole: Any = trainer.train_dataset
    left = getattr(loader.dataset, "column_names", None)
    if left is None or loader.dataset is whole:
        return loader
    collate = RemoveColumnsCollator(loader.collate_fn, signature_columns=list(left))
    return DataLoader(whole, batch_size=loader.batch_size, collate_fn=collate)


def _first_batch(loader: Any) -> Any:
    """None leaves it to check(); a collator that misses a dropped column is given all of them, so that it runs."""
    collate = loader.collate_fn
    if not isinstance(collate, RemoveColumnsCollator):
        return None
    samples = [loader.dataset[index] for index in range(min(loader.batch_size or 1, len(loader.dataset)))]
    try:
        collate(samples)
    except Exception:
        return collate.data_collator(samples)
    return None


class _Guard:
    """Wraps `Trainer.train` for as long as a callback lives: a Trainer tells no callback that training raised."""

    def __init__(self) -> None:
        self._holders = 0
        self._original: Callable[..., Any] = Trainer.train
        self._wrapper: Callable[..., Any] | None = None

    def hold_for(self, callback: DebugkitCallback) -> None:
        if self._holders == 0:
            self._original = Trainer.train
            self._wrapper = _closing(Trainer.train)
            Trainer.train = self._wrapper  # type: ignore[method-assign]
        self._holders += 1
        weakref.finalize(callback, self._release)

    def _release(self) -> None:
        self._holders -= 1
        if self._holders == 0 and Trainer.train is self._wrapper:
            Trainer.train = self._original  # type: ignore[method-assign]


def _closing(train: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(train)
    def closing(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        def close(error: BaseException | None) -> None:
            for callback in trainer.callback_handler.callbacks:
                if isinstance(callback, DebugkitCallback):
                    callback.close(error)

        try:
            result = train(trainer, *args, **kwargs)
        except BaseException as error:
            close(error)
            raise
        close(None)
        return result

    return closing


_guard = _Guard()
