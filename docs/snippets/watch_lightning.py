"""A LightningModule whose training_step keeps its loss to itself, in Lightning's own Trainer."""

import logging
import warnings

import lightning
import torch
from torch import nn

# --8<-- [start:import]
from debugkit.integrations.lightning import DebugkitCallback

# --8<-- [end:import]

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")  # its advice about workers


# --8<-- [start:watch]
class Policy(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def training_step(self, batch):
        state, action = batch
        loss = (self.head(state) - action).square().mean()
        self.log("loss", loss)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


watching = DebugkitCallback()
trainer = lightning.Trainer(fast_dev_run=4, logger=False, accelerator="cpu", callbacks=[watching])
# --8<-- [end:watch]
data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 2))
loader = torch.utils.data.DataLoader(data, batch_size=8)
# --8<-- [start:fit]
trainer.fit(Policy(), loader)
for finding in watching.report.causes:
    print(finding.code, finding.message)
# --8<-- [end:fit]

assert [finding.code for finding in watching.report.causes] == ["DK906"]
