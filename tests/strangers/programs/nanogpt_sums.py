"""nanoGPT style: tied weights, grad accumulation, manual cosine LR, decay/no-decay groups, generate."""
import math, inspect
from dataclasses import dataclass
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(1337)
text = "".join(f"{a}+{b}={a + b};" for a in range(40) for b in range(40))
perm = torch.randperm(1600).tolist()
text = ";".join([text.split(";")[i] for i in perm])
stoi = {c: i for i, c in enumerate(sorted(set(text)))}
data = torch.tensor([stoi[c] for c in text])
n = int(.9 * len(data))
train_data, val_data = data[:n], data[n:]


@dataclass
class GPTConfig:
    block_size: int = 48
    vocab_size: int = len(stoi)
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 64
    dropout: float = 0.1
    bias: bool = False


class LayerNorm(nn.Module):
    def __init__(self, ndim, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1, self.ln_2 = LayerNorm(c.n_embd, c.bias), LayerNorm(c.n_embd, c.bias)
        self.c_attn, self.c_proj = nn.Linear(c.n_embd, 3 * c.n_embd, bias=c.bias), nn.Linear(c.n_embd, c.n_embd, bias=c.bias)
        self.fc, self.proj = nn.Linear(c.n_embd, 4 * c.n_embd, bias=c.bias), nn.Linear(4 * c.n_embd, c.n_embd, bias=c.bias)
        self.h, self.p = c.n_head, c.dropout
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.h, C // self.h).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0, is_causal=True)
        x = x + self.drop(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))
        return x + self.drop(self.proj(F.gelu(self.fc(self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(c.vocab_size, c.n_embd), wpe=nn.Embedding(c.block_size, c.n_embd),
            drop=nn.Dropout(c.dropout), h=nn.ModuleList([Block(c) for _ in range(c.n_layer)]), ln_f=LayerNorm(c.n_embd, c.bias)))
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(lambda m: torch.nn.init.normal_(m.weight, 0., .02) if isinstance(m, (nn.Linear, nn.Embedding)) else None)
        for pn, p in self.named_parameters():
            if pn.endswith("proj.weight"):
                torch.nn.init.normal_(p, 0., .02 / math.sqrt(2 * c.n_layer))

    def forward(self, idx, targets=None):
        pos = torch.arange(idx.size(1), device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for b in self.transformer.h:
            x = b(x)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def configure_optimizers(self, wd, lr, betas):
        ps = {k: p for k, p in self.named_parameters() if p.requires_grad}
        groups = [{"params": [p for p in ps.values() if p.dim() >= 2], "weight_decay": wd},
                  {"params": [p for p in ps.values() if p.dim() < 2], "weight_decay": 0.}]
        kw = dict(fused=True) if "fused" in inspect.signature(torch.optim.AdamW).parameters and torch.cuda.is_available() else {}
        return torch.optim.AdamW(groups, lr=lr, betas=betas, **kw)

    @torch.no_grad()
    def generate(self, idx, k):
        for _ in range(k):
            logits, _ = self(idx[:, -self.config.block_size:])
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits[:, -1], -1), 1)), 1)
        return idx


def get_batch(split, B=8, T=48):
    d = train_data if split == "train" else val_data
    ix = torch.randint(len(d) - T, (B,))
    return torch.stack([d[i:i + T] for i in ix]), torch.stack([d[i + 1:i + 1 + T] for i in ix])


def train():
    @torch.no_grad()
    def estimate_loss():
        out = {}
        model.eval()
        for s in ("train", "val"):
            out[s] = torch.stack([model(*get_batch(s))[1] for _ in range(5)]).mean().item()
        model.train()
        return out

    model = GPT(GPTConfig())
    opt = model.configure_optimizers(.1, 3e-3, (.9, .95))
    accum, max_iters, warmup = 2, 90, 10
    X, Y = get_batch("train")
    for it in range(max_iters + 1):
        lr = 3e-3 * (it + 1) / (warmup + 1) if it < warmup else 3e-4 + .5 * (1 + math.cos(math.pi * (it - warmup) / (max_iters - warmup))) * 2.7e-3
        for g in opt.param_groups:
            g["lr"] = lr
        if it % 30 == 0:
            print(it, estimate_loss())
        for micro in range(accum):
            logits, loss = model(X, Y)
            loss = loss / accum
            X, Y = get_batch("train")
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.)
        opt.step()
        opt.zero_grad(set_to_none=True)
    model.eval()
    itos = {i: c for c, i in stoi.items()}
    print("".join(itos[i] for i in model.generate(torch.zeros(1, 1, dtype=torch.long), 30)[0].tolist()))


WATCH = ()
