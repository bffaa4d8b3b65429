"""A language model whose feed-forward layers are experts with a capacity: tokens of all samples compete for places.

fault aux_reaches_nothing: DK121 at here
fault experts_in_a_list: DK101|DK106 at here|parameter:blocks.0.ff.experts.0.0.weight
fault lr_overflow: DK207|DK201|DK206 at "optim.SGD("
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(6)
V, D, E = 40, 32, 4

class Experts(nn.Module):
    def __init__(self, capacity=1.25):
        super().__init__()
        self.router = nn.Linear(D, E, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(D, 64), nn.GELU(), nn.Linear(64, D)) for _ in range(E))  #! experts_in_a_list: self.experts = [nn.Sequential(nn.Linear(D, 64), nn.GELU(), nn.Linear(64, D)) for _ in range(E)]
        self.capacity = capacity
        self.aux = 0.0
    def forward(self, x):
        flat = x.reshape(-1, D)
        probs = self.router(flat).softmax(-1)
        gate, which = probs.max(-1)
        places = int(self.capacity * len(flat) / E)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            mine = (which == e).nonzero().flatten()[:places]
            if len(mine):
                out[mine] = gate[mine, None] * expert(flat[mine])
        share = F.one_hot(which, E).float().mean(0)
        self.aux = E * (share * probs.mean(0)).sum()  #! aux_reaches_nothing: self.aux = E * (share * probs.mean(0).detach()).sum()
        return out.view_as(x)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn = nn.MultiheadAttention(D, 4, batch_first=True)
        self.ff = Experts()
    def forward(self, x, mask):
        h = self.n1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.ff(self.n2(x))

class SwitchLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(V, D)
        self.pos = nn.Parameter(torch.randn(1, 64, D) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, V, bias=False)
    def forward(self, ids):
        T = ids.shape[1]
        mask = torch.triu(torch.full((T, T), float("-inf"), device=ids.device), 1)
        x = self.tok(ids) + self.pos[:, :T]
        for b in self.blocks:
            x = b(x, mask)
        return self.head(self.norm(x))

model = SwitchLM()
optim = torch.optim.AdamW(model.parameters(), lr=1e-3)  #! lr_overflow: optim = torch.optim.SGD(model.parameters(), lr=300.0)

def loss_fn(m, ids):
    logits = m(ids[:, :-1])
    ce = F.cross_entropy(logits.reshape(-1, V), ids[:, 1:].reshape(-1))
    return ce + 0.01 * sum(b.ff.aux for b in m.blocks)

def batch():
    start = torch.randint(0, V, (8, 1)); stride = torch.randint(1, 4, (8, 1))
    return (start + stride * torch.arange(17)) % V

def train():
    for _ in range(40):
        loss = loss_fn(model, batch())
        optim.zero_grad(set_to_none=True); loss.backward(); optim.step()

CHECK = lambda: dict(model=model, batch=batch(), loss_fn=loss_fn, optimizer=optim)
WATCH = (model, optim)
