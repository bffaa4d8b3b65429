import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from debugkit.integrations.transformers import check_trainer

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, state, labels, weight=1.0):
        error = (self.head(state) - labels).square().mean(-1)
        return {"loss": (error * weight).mean()}


samples = [
    {
        "state": torch.randn(3),
        "labels": torch.randn(2),
        "weight": 1.0 + index,
        "episode": index,
    }
    for index in range(16)
]
arguments = TrainingArguments(
    tempfile.mkdtemp(),
    report_to=[],
    use_cpu=True,
    dataloader_pin_memory=False,
)
trainer = Trainer(Policy(), arguments, train_dataset=samples)
report = check_trainer(trainer, select="DK905")
print(report)
