import torch
from accelerate import Accelerator
from torch import nn

from debugkit.integrations.accelerate import watch

data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters())

accelerator = Accelerator(gradient_accumulation_steps=4, cpu=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

with watch(accelerator, model, optimizer) as run:
    for state, action in loader:
        with accelerator.accumulate(model):
            loss = (model(state) - action).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

print(run.steps, "steps for", len(loader), "batches:", "ok" if run.report.ok else run.report)
