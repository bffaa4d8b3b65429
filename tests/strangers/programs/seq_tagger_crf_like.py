"""Samples of different length in a loop without padding, loss summed over a Python list of tensors, gradient accumulated by hand; SGD with a plateau schedule."""
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(44)
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(30, 12); self.cell = nn.GRUCell(12, 16); self.o = nn.Linear(16, 3); self.h0 = nn.Parameter(torch.zeros(1, 16))
    def forward(self, ids):
        h, out = self.h0, []
        for t in ids:
            h = self.cell(self.e(t)[None], h); out.append(self.o(h))
        return torch.cat(out)
net = Tagger(); opt = torch.optim.SGD(net.parameters(), 0.05); plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=2)
corpus = [torch.randint(0, 30, (int(n),)) for n in torch.randint(3, 9, (40,))]
def loss_fn(m, sents): return torch.stack([F.cross_entropy(m(s), s % 3, reduction="sum") for s in sents]).sum() / sum(len(s) for s in sents)
def train():
    for epoch in range(4):
        total = 0.0
        for i in range(0, 40, 8):
            loss = loss_fn(net, corpus[i:i + 8]); opt.zero_grad(); loss.backward(); opt.step(); total += float(loss)
        plateau.step(total)
CHECK = lambda: dict(model=net, batch=corpus[:8], loss_fn=loss_fn, optimizer=opt)
WATCH = (net, opt)
