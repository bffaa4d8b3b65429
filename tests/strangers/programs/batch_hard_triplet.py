"""Metric learning with batch-hard triplets; positives of the wrong kind are filled with Inf that min and max leave out.

fault root_of_zero: DK202|DK201 at "sqrt()"
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(8)

class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)

def batch_hard(e, y, margin=0.3):
    d2 = (e[:, None] - e[None]).pow(2).sum(-1)
    d = (d2 + 1e-12).sqrt()  #! root_of_zero: d = d2.sqrt()
    same = y[:, None] == y[None]
    eye = torch.eye(len(y), dtype=torch.bool, device=y.device)
    far = d.masked_fill(~same | eye, float("-inf")).max(1).values
    near = d.masked_fill(same, float("inf")).min(1).values
    return F.relu(far - near + margin).mean()

model = Embed()
opt = torch.optim.Adam(model.parameters(), 1e-3)
centres = torch.randn(8, 8)

def sample():
    y = torch.arange(8).repeat_interleave(4)
    return centres[y] + 0.3 * torch.randn(32, 8), y

def train():
    for _ in range(40):
        x, y = sample()
        loss = batch_hard(model(x), y)
        opt.zero_grad(); loss.backward(); opt.step()

CHECK = lambda: dict(model=model, batch=sample(), loss_fn=lambda m, b: batch_hard(m(b[0]), b[1]), optimizer=opt)
WATCH = (model, opt)
