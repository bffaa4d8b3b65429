"""One-class learning: there is no label, the distance to a fixed centre is minimised, no biases; cosine schedule for each batch."""
import torch
from torch import nn
torch.manual_seed(38)
net = nn.Sequential(nn.Linear(12, 32, bias=False), nn.LeakyReLU(0.1), nn.Linear(32, 8, bias=False))
data = torch.randn(256, 3) @ torch.randn(3, 12)
with torch.no_grad(): centre = net(data).mean(0)
opt = torch.optim.Adam(net.parameters(), 1e-3, weight_decay=1e-5)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=32)
def loss_fn(m, x): return (m(x) - centre).pow(2).sum(1).mean()
def train():
    for _ in range(2):
        for i in torch.randperm(256).split(16):
            opt.zero_grad(); loss_fn(net, data[i]).backward(); opt.step(); sched.step()
CHECK = lambda: dict(model=net, batch=data[:16], loss_fn=loss_fn, optimizer=opt)
WATCH = (net, opt)
