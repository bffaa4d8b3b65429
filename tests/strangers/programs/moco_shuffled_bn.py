"""MoCo: momentum encoder, queue of negatives, shuffled BN for keys, SGD with cosine per epoch."""
import math, torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

torch.manual_seed(0)
PROTO = torch.randn(12, 3, 12, 12)
PROTO = F.avg_pool2d(F.pad(PROTO, (1, 1, 1, 1)), 3, 1) * 2


class TwoCrops(Dataset):
    def __init__(self, n):
        self.y = torch.randint(0, 12, (n,), generator=torch.Generator().manual_seed(4))
        self.base = PROTO[self.y] + .4 * torch.randn(n, 3, 12, 12, generator=torch.Generator().manual_seed(5))
    def __len__(self):
        return len(self.y)
    def aug(self, x):
        if torch.rand(()) < .5:
            x = x.flip(-1)
        dx, dy = torch.randint(-1, 2, (2,)).tolist()
        return torch.roll(x, (dx, dy), (1, 2)) * (1 + .2 * torch.randn(3, 1, 1)) + .1 * torch.randn_like(x)
    def __getitem__(self, i):
        return [self.aug(self.base[i]), self.aug(self.base[i])], self.y[i]


def encoder(dim=32):
    return nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(inplace=True),
                         nn.Conv2d(24, 48, 3, 2, 1, bias=False), nn.BatchNorm2d(48), nn.ReLU(inplace=True),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, dim))


class MoCo(nn.Module):
    def __init__(self, dim=32, K=256, m=.97, T=.2):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q, self.encoder_k = encoder(dim), encoder(dim)
        for pq, pk in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            pk.data.copy_(pq.data)
            pk.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, K), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _momentum_update(self):
        for pq, pk in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            pk.data = pk.data * self.m + pq.data * (1. - self.m)

    @torch.no_grad()
    def _enqueue(self, keys):
        p = int(self.queue_ptr)
        self.queue[:, p:p + len(keys)] = keys.T
        self.queue_ptr[0] = (p + len(keys)) % self.K

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            self._momentum_update()
            sh = torch.randperm(len(im_k))
            k = F.normalize(self.encoder_k(im_k[sh]), dim=1)[torch.argsort(sh)]
        pos = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        neg = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
        logits = torch.cat([pos, neg], dim=1) / self.T
        labels = torch.zeros(len(logits), dtype=torch.long)
        self._enqueue(k)
        return logits, labels


def train():
    model, crit = MoCo(), nn.CrossEntropyLoss()
    opt = torch.optim.SGD(model.parameters(), .06, momentum=.9, weight_decay=1e-4)
    loader = DataLoader(TwoCrops(640), batch_size=64, shuffle=True, drop_last=True)
    for epoch in range(8):
        for g in opt.param_groups:
            g["lr"] = .06 * .5 * (1. + math.cos(math.pi * epoch / 8))
        model.train()
        tot = acc = 0
        for images, _ in loader:
            output, target = model(im_q=images[0], im_k=images[1])
            loss = crit(output, target)
            acc += (output.argmax(1) == 0).float().mean().item()
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item()
        print(f"epoch {epoch} loss {tot / len(loader):.3f} acc@1 {acc / len(loader):.3f}")


WATCH = ()
