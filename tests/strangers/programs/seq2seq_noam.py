"""Transformer seq2seq (reverse a string): teacher forcing, pad masks, causal mask, label smoothing, Noam LR, greedy decode; gradient accumulation over token counts."""
import math, random, torch
from torch import nn
import torch.nn.functional as F

random.seed(0); torch.manual_seed(0)
PAD, BOS, EOS, V = 0, 1, 2, 14


def make_batch(n=24):
    src = [[random.randint(3, V - 1) for _ in range(random.randint(3, 8))] for _ in range(n)]
    tgt = [[BOS, *reversed(s), EOS] for s in src]
    t = lambda rows: torch.tensor([r + [PAD] * (max(map(len, rows)) - len(r)) for r in rows])
    return t(src), t(tgt)


class Positional(nn.Module):
    def __init__(self, d, n=32):
        super().__init__()
        pe, pos, div = torch.zeros(n, d), torch.arange(n)[:, None], torch.exp(torch.arange(0, d, 2) * (-math.log(1e4) / d))
        pe[:, 0::2], pe[:, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[:x.size(1)]


class Seq2Seq(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.d = d
        self.emb, self.pos = nn.Embedding(V, d, padding_idx=PAD), Positional(d)
        nn.init.normal_(self.emb.weight, 0, d ** -.5)
        with torch.no_grad():
            self.emb.weight[PAD].zero_()
        self.tr = nn.Transformer(d, 4, 1, 1, 128, .05, batch_first=True, norm_first=True)
        self.out = nn.Linear(d, V, bias=False)
        self.out.weight = self.emb.weight

    def encode(self, src):
        m = src == PAD
        return self.tr.encoder(self.pos(self.emb(src) * math.sqrt(self.d)), src_key_padding_mask=m), m

    def decode(self, tgt, mem, m):
        L = tgt.size(1)
        causal = torch.triu(torch.ones(L, L, dtype=torch.bool), 1)
        h = self.tr.decoder(self.pos(self.emb(tgt) * math.sqrt(self.d)), mem, tgt_mask=causal, tgt_key_padding_mask=tgt == PAD, memory_key_padding_mask=m)
        return self.out(h)

    def forward(self, src, tgt):
        return self.decode(tgt, *self.encode(src))


class NoamOpt:
    def __init__(self, model_size, factor, warmup, optimizer):
        self.optimizer, self._step, self.warmup, self.factor, self.size = optimizer, 0, warmup, factor, model_size
    def rate(self):
        return self.factor * self.size ** -.5 * min(self._step ** -.5, self._step * self.warmup ** -1.5)
    def step(self):
        self._step += 1
        for p in self.optimizer.param_groups: p["lr"] = self.rate()
        self.optimizer.step()


@torch.no_grad()
def greedy(model, src, n=10):
    model.eval()
    mem, m = model.encode(src)
    ys = torch.full((len(src), 1), BOS)
    for _ in range(n):
        ys = torch.cat([ys, model.decode(ys, mem, m)[:, -1:].argmax(-1)], 1)
    model.train()
    return ys


def train():
    model = Seq2Seq()
    opt = NoamOpt(model.d, .5, 40, torch.optim.Adam(model.parameters(), lr=0, betas=(.9, .98), eps=1e-9))
    val = make_batch(40)
    for it in range(160):
        micro = [make_batch() for _ in range(2)]
        ntok = sum((t[:, 1:] != PAD).sum() for _, t in micro)
        total = 0.
        for src, tgt in micro:
            logits = model(src, tgt[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, V), tgt[:, 1:].reshape(-1), ignore_index=PAD, label_smoothing=.05, reduction="sum") / ntok
            loss.backward()
            total += loss.item()
        opt.step()
        opt.optimizer.zero_grad()
        if it % 40 == 39:
            ys = greedy(model, val[0])
            ref = val[1]
            w = min(ys.size(1), ref.size(1))
            ok = ((ys[:, 1:w] == ref[:, 1:w]) | (ref[:, 1:w] == PAD)).float().mean().item()
            print(it, f"loss {total:.3f} token acc {ok:.3f}")


WATCH = ()
