import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.state = nn.Linear(5, 4), nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, state, image=None):
        feature = self.state(state)
        if image is not None:
            feature = feature + self.vision(image)
        return self.head(feature)


def loss_fn(model, batch):
    return model(**batch).square().mean()


dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(Policy(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batch = {"state": torch.randn(4, 3)}  # a batch without images
report = debugkit.check(model, batch, loss_fn, optimizer, select="DK801")
print(report)
dist.destroy_process_group()
