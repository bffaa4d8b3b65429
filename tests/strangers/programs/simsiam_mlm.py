"""SimSiam on vectors with stop-gradient and predictor, then BERT-style MLM with own masking (80/10/10), ALiBi chunked attention with checkpointing and prefix-LM mask."""
import math, torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(18)
D = 16
centers = torch.randn(10, D) * 2


class SimSiam(nn.Module):
    def __init__(self, w=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(D, w, bias=False), nn.BatchNorm1d(w), nn.ReLU(inplace=True), nn.Linear(w, w, bias=False), nn.BatchNorm1d(w), nn.ReLU(inplace=True),
                                     nn.Linear(w, w, bias=False), nn.BatchNorm1d(w, affine=False))
        self.predictor = nn.Sequential(nn.Linear(w, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(inplace=True), nn.Linear(16, w))
    def forward(self, x1, x2):
        z1, z2 = self.encoder(x1), self.encoder(x2)
        return self.predictor(z1), self.predictor(z2), z1.detach(), z2.detach()


def train():
    ss, crit = SimSiam(), nn.CosineSimilarity(dim=1)
    opt = torch.optim.SGD([{"params": ss.encoder.parameters(), "fix_lr": False}, {"params": ss.predictor.parameters(), "fix_lr": True}], .05, momentum=.9, weight_decay=1e-4)
    for it in range(120):
        x = centers[torch.randint(0, 10, (96,))] + .5 * torch.randn(96, D)
        p1, p2, z1, z2 = ss(x + .3 * torch.randn_like(x), x + .3 * torch.randn_like(x))
        loss = -(crit(p1, z2).mean() + crit(p2, z1).mean()) * .5
        opt.zero_grad(); loss.backward(); opt.step()
        for g in opt.param_groups:
            g["lr"] = .05 if g["fix_lr"] else .05 * .5 * (1 + math.cos(math.pi * it / 120))
        if it % 40 == 39:
            print("simsiam", it, loss.item(), "std of z", F.normalize(z1, dim=1).std(0).mean().item())

    V, MASK, PAD, L = 24, 1, 0, 18

    def text(n):
        a, d = torch.randint(0, 20, (n, 1)), torch.randint(1, 4, (n, 1))
        ids = (a + d * torch.arange(L)) % 20 + 4
        ln = torch.randint(10, L + 1, (n, 1))
        return torch.where(torch.arange(L) < ln, ids, PAD)

    def mask_tokens(ids):
        ids, labels = ids.clone(), ids.clone()
        m = (torch.rand(ids.shape) < .2) & (ids != PAD)
        labels[~m] = -100
        r = torch.rand(ids.shape)
        ids[m & (r < .8)] = MASK
        rnd = m & (r >= .8) & (r < .9)
        ids[rnd] = torch.randint(4, V, (int(rnd.sum()),))
        return ids, labels

    class Layer(nn.Module):
        def __init__(self, d=48, h=4, chunk=6):
            super().__init__()
            self.n1, self.n2, self.h, self.chunk = nn.LayerNorm(d), nn.LayerNorm(d), h, chunk
            self.qkv, self.o, self.ff = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Sequential(nn.Linear(d, 96), nn.GELU(), nn.Linear(96, d))
            self.register_buffer("slope", 2. ** -torch.arange(1, h + 1))
        def forward(self, x, pad):
            B, T, C = x.shape
            q, k, v = self.qkv(self.n1(x)).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
            pos, out = torch.arange(T), []
            for i in range(0, T, self.chunk):                      # queries in chunks
                s = q[:, :, i:i + self.chunk] @ k.mT / math.sqrt(k.size(-1))
                s = s - self.slope[:, None, None] * (pos[i:i + self.chunk, None] - pos).abs() + .2 * self.slope[:, None, None] * (pos[i:i + self.chunk, None] - pos).sign()
                out.append(s.masked_fill(pad[:, None, None], -torch.inf).softmax(-1) @ v)
            x = x + self.o(torch.cat(out, 2).transpose(1, 2).flatten(2))
            return x + self.ff(self.n2(x))

    class MLM(nn.Module):
        def __init__(self, d=48):
            super().__init__()
            self.emb, self.layers, self.norm, self.bias = nn.Embedding(V, d), nn.ModuleList(Layer(d) for _ in range(2)), nn.LayerNorm(d), nn.Parameter(torch.zeros(V))
            nn.init.normal_(self.emb.weight, std=.1)
        def forward(self, ids):
            x, pad = self.emb(ids), ids == PAD
            for l in self.layers:
                x = checkpoint(l, x, pad, use_reentrant=False) if self.training else l(x, pad)
            return F.linear(self.norm(x), self.emb.weight, self.bias)

    mlm = MLM()
    opt = torch.optim.AdamW(mlm.parameters(), 4e-3)
    sched = torch.optim.lr_scheduler.SequentialLR(opt, [torch.optim.lr_scheduler.LinearLR(opt, .1, total_iters=20), torch.optim.lr_scheduler.CosineAnnealingLR(opt, 140)], [20])
    for it in range(160):
        ids, labels = mask_tokens(text(32))
        logits = mlm(ids)
        sel = labels != -100
        loss = F.cross_entropy(logits[sel], labels[sel])
        opt.zero_grad(); loss.backward(); opt.step(); sched.step()
        if it % 40 == 39:
            print("mlm", it, loss.item())


WATCH = ()
