"""debugkit inside Lightning's `Trainer`.

lightning.Trainer(callbacks=[DebugkitCallback()]).fit(module, loader)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from debugkit.declare import Declare
from debugkit.integrations.attachment import Attachment
from debugkit.integrations.missing import missing
from debugkit.report import Report
from debugkit.watch import OnFinding

try:
    from lightning.pytorch.callbacks import Callback
except ImportError as error:
    raise missing("Lightning", "lightning", "lightning") from error

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


class DebugkitCallback(Callback):
    """Watches what `fit()` trains: automatic and manual optimization, any number of optimizers, `fast_dev_run` too.

    The arguments are those of `debugkit.watch`; losses are bit-equal with it. On a NaN or an Inf the last module calls
    are logged with the smallest and largest absolute value of their weights, inputs and outputs. Every hook is gone
    when `fit()` returns and when it raises; `.report` stays. Raises UnknownCodeError.
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

    @property
    def report(self) -> Report:
        """What was found in the fit that runs, or in the last one."""
        return self._attachment.report

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The sanity check is over, everything is on its device: watch from here."""
        self._attachment.open(pl_module, trainer.optimizers or None)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Training ended well."""
        self._attachment.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Training raised, was interrupted, or was stopped by a finding."""
        self._attachment.close(exception)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Whatever happened: nothing stays attached."""
        self._attachment.close()
