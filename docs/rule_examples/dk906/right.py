import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader

from debugkit.integrations.lightning import DebugkitCallback

torch.manual_seed(0)


class Policy(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 1)

    def training_step(self, batch):
        return self.head(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


callback = DebugkitCallback(select="DK906")
trainer = lightning.Trainer(
    fast_dev_run=4,
    accelerator="cpu",
    callbacks=[callback],
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Policy(), DataLoader(torch.randn(16, 3), batch_size=4))
print(callback.report)
