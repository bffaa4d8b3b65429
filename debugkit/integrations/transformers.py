"""Use debugkit in the Hugging Face `Trainer`.

trainer = Trainer(model, arguments, train_dataset=data, callbacks=[DebugkitCallback()])
print(check_trainer(trainer))    # before training: the model, the loss and the data of this Trainer
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

from debugkit.declare import Declare
from debugkit.integrations.attachment import Attachment
from debugkit.integrations.missing import missing
from debugkit.on_finding import OnFinding
from debugkit.preflight import check
from debugkit.report import Report

try:
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_utils import RemoveColumnsCollator
except ImportError as error:
    raise missing("the Hugging Face Trainer", "'transformers[torch]'", "transformers") from error

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments


class DebugkitCallback(TrainerCallback):
    """Watches the training of a Trainer: `Trainer(..., callbacks=[DebugkitCallback()])`.

    The arguments are those of `debugkit.watch`. Losses are bit-equal with and without the callback. On a NaN or an Inf
    the last module calls are logged with the smallest and largest absolute value of their weights, inputs and outputs,
    in the format of `--debug underflow_overflow`. All hooks are removed when `train()` returns or raises. `.report`
    stays available. Raises UnknownCodeError.
    """

    def __init__(
        self,
        *,
        on_finding: OnFinding = "log",
        snapshot_dir: str | Path | None = None,
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
        """The findings of the current training run, or of the last one."""
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
        """Start watching: everything is prepared and on its device."""
        if model is not None:
            self._attachment.open(model, [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else None)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Training ended without an error."""
        self._attachment.close()

    def close(self, error: BaseException | None = None) -> None:
        """Stop watching. Called automatically when `Trainer.train` returns or raises."""
        self._attachment.close(error)


def check_trainer(
    trainer: Trainer,
    *,
    select: str | Sequence[str] | None = None,
    ignore: str | Sequence[str] | Mapping[str, str] | None = None,
    declare: Declare | None = None,
) -> Report:
    """Run `debugkit.check` on the model, the `compute_loss`, the optimizer and the data loaders of `trainer`.

    For example, this finds a column that the loss needs and that `remove_unused_columns` removes (DK905). Nothing is
    trained, and everything stays bit-identical. Raises UnknownCodeError.
    """
    loaders: dict[str, Any] = {"train": _with_all_columns(trainer, trainer.get_train_dataloader())}
    if trainer.eval_dataset is not None:
        loaders["validation"] = trainer.get_eval_dataloader()

    def loss_fn(model: nn.Module, batch: Any) -> torch.Tensor:
        loss = trainer.compute_loss(model, dict(batch) if isinstance(batch, Mapping) else batch)
        assert isinstance(loss, torch.Tensor)  # a tuple only with return_outputs=True
        return loss

    given = trainer.optimizer
    assert trainer.model is not None  # set by the constructor of Trainer
    try:
        return check(
            trainer.model,
            _first_batch(loaders["train"]),
            loss_fn,
            trainer.create_optimizer(),
            dataloader=loaders,
            select=select,
            ignore=ignore,
            declare=declare,
        )
    finally:
        trainer.optimizer = given


def _with_all_columns(trainer: Trainer, loader: Any) -> Any:
    """A loader with the columns that the Trainer removed from a `datasets.Dataset` before it made its own loader."""
    whole: Any = trainer.train_dataset
    left = getattr(loader.dataset, "column_names", None)
    if left is None or loader.dataset is whole:
        return loader
    collate = RemoveColumnsCollator(loader.collate_fn, signature_columns=list(left))
    return DataLoader(whole, batch_size=loader.batch_size, collate_fn=collate)


def _first_batch(loader: Any) -> Any:
    """The first batch if the collator fails without a removed column, made with all columns; otherwise None."""
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
    """Wraps `Trainer.train` while a callback exists: Trainer has no callback event for an exception in training."""

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
