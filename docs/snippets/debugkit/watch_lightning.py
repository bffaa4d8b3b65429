import lightning
import torch
from torch import nn

from debugkit.integrations.lightning import DebugkitCallback


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
data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 2))
loader = torch.utils.data.DataLoader(data, batch_size=8)
trainer.fit(Policy(), loader)
for finding in watching.report.causes:
    print(finding.code, finding.message)
