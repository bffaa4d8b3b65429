import torch
from torch import nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present as strip

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters())
wrapper = nn.ModuleDict({"module": model})  # its names are those of a model in DDP
saved = wrapper.state_dict()

with debugkit.watch(model, optimizer, select="DK118") as run:
    strip(saved, "module.")
    missing, _ = model.load_state_dict(saved, strict=False)
    assert not missing, missing
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
print(run.report)
