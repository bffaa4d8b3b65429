"""A translation transformer written from nn.Transformer: the model makes its own padding masks from the ids (0 is padding).

fault mask_inverted: DK326|DK303|DK315|DK201 at here
fault padding_counted: DK309|DK323 at here
fault target_not_shifted: DK325 at here|"return F.cross_entropy"
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(9)
V, D, PAD, BOS = 30, 32, 0, 1

class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.src = nn.Embedding(V, D, padding_idx=PAD)
        self.tgt = nn.Embedding(V, D, padding_idx=PAD)
        self.pos = nn.Embedding(32, D)
        self.core = nn.Transformer(D, 4, 1, 1, 64, dropout=0.1, batch_first=True)
        self.out = nn.Linear(D, V)
    def embed(self, table, ids):
        return table(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
    def forward(self, source, target):
        pad = source == PAD  #! mask_inverted: pad = source != PAD
        T = target.shape[1]
        causal = torch.triu(torch.ones(T, T, dtype=torch.bool, device=target.device), 1)
        h = self.core(self.embed(self.src, source), self.embed(self.tgt, target), tgt_mask=causal,
                      src_key_padding_mask=pad, memory_key_padding_mask=pad, tgt_key_padding_mask=target == PAD)
        return self.out(h)

def make(n=16):
    g = torch.Generator().manual_seed(int(torch.randint(0, 10**6, (1,))))
    src = torch.zeros(n, 10, dtype=torch.long); tgt = torch.zeros(n, 11, dtype=torch.long)
    for i in range(n):
        L = int(torch.randint(3, 10, (1,), generator=g)) + (1 if i == 0 else 0)
        s = torch.randint(2, V, (L,), generator=g)
        src[i, :L] = s; tgt[i, 0] = BOS; tgt[i, 1:L + 1] = s.flip(0)
    return src, tgt

model = Translator()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

def loss_fn(m, batch):
    src, tgt = batch
    logits = m(src, tgt[:, :-1])
    labels = tgt[:, 1:]  #! target_not_shifted: labels = tgt[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD)  #! padding_counted: return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

def train():
    for _ in range(25):
        loss = loss_fn(model, make())
        optimizer.zero_grad(); loss.backward(); optimizer.step()

CHECK = lambda: dict(model=model, batch=make(), loss_fn=loss_fn, optimizer=optimizer)
WATCH = (model, optimizer)
