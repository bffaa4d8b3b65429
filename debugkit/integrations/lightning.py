"""Use debugkit in Lightning's `Trainer`.

lightning.Trainer(callbacks=[DebugkitCallback()]).fit(module, loader)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from debugkit.declare import Declare
from debugkit.integrations.attachment import Attachment
from debugkit.integrations.missing import missing
from debugkit.on_finding import OnFinding
from debugkit.report import Report

try:
    from lightning.pytorch.callbacks import Callback
except ImportError as error:
    raise missing("Lightning", "lightning", "lightning") from error

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


class DebugkitCallback(Callback):
    """Watches the training in `fit()`: automatic and manual optimization, any number of optimizers, and `fast_dev_run`.

    The arguments are those of `debugkit.watch`. Losses are bit-equal with and without the callback. On a NaN or an Inf
    the last module calls are logged with the smallest and largest absolute value of their weights, inputs and outputs.
    All hooks are removed when `fit()` returns or raises. `.report` stays available. Raises UnknownCodeError.
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

    @property
    def report(self) -> Report:
        """The findings of the current fit, or of the last one."""
        return self._attachment.report

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start watching: the sanity check is over, and everything is on its device."""
        self._attachment.open(pl_module, trainer.optimizers or None)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Training ended without an error."""
        self._attachment.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Training raised, was interrupted, or was stopped by a finding."""
        self._attachment.close(exception)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Remove all hooks, whether training succeeded or failed."""
        self._attachment.close()
