"""A binary classifier with rare positives, balanced by pos_weight; sorted shards read through a buffer that shuffles.

fault half_sized_labels: DK002 at here
fault all_negative_loader: DK307 at here
fault rewrapped_parameter: DK102|DK101 at here|parameter:2.weight
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
import random
torch.manual_seed(46)
class Stream(IterableDataset):
    def __init__(self, n=320): self.n = n
    def __iter__(self):
        g = torch.Generator().manual_seed(1); rnd = random.Random(int(torch.randint(0, 10**6, (1,)))); buffer = []
        for i in range(self.n):
            y = float(i % 10 == 0)  #! all_negative_loader: y = 0.0
            buffer.append((torch.randn(6, generator=g) + 1.5 * y, torch.tensor([y])))
            if len(buffer) >= 64: yield buffer.pop(rnd.randrange(len(buffer)))
        rnd.shuffle(buffer); yield from buffer
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.NAdam(net.parameters(), 2e-3)
pass  #! rewrapped_parameter: net[2].weight = nn.Parameter(net[2].weight.detach() * 0.5)
bce = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([9.0]))
loader = DataLoader(Stream(), batch_size=32)
def loss_fn(m, b): return bce(m(b[0]), b[1])  #! half_sized_labels: def loss_fn(m, b): return (m(b[0]) - b[1].squeeze(1)).pow(2).mean() + 0 * bce(m(b[0]), b[1])
def train():
    for _ in range(3):
        for b in loader:
            opt.zero_grad(); loss_fn(net, b).backward(); opt.step()
CHECK = lambda: dict(model=net, batch=next(iter(loader)), loss_fn=loss_fn, optimizer=opt, dataloader=loader)
WATCH = (net, opt)
