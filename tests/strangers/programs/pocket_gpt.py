"""Character-level GPT written from scratch (nanoGPT manner): weight-decay groups, hand-made warm-up + cosine, micro-batch accumulation, estimate_loss in eval mode.

fault no_causal: DK304
fault zero_each_micro: DK512
fault acc_not_divided: DK507
fault cosine_negative: none
"""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F

# ---- hyperparameters -------------------------------------------------------
max_iters = 80
eval_interval = 40
eval_iters = 4
batch_size = 12
grad_accum = 3
max_lr, min_lr = 5e-3, 5e-4
warmup_iters = 8
grad_clip = 1.0
# -----------------------------------------------------------------------------


@dataclass
class GPTConfig:
    vocab_size: int = 0
    block_size: int = 32
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 48
    dropout: float = 0.05


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.ln_1, self.ln_2 = nn.LayerNorm(c.n_embd), nn.LayerNorm(c.n_embd)
        self.c_attn = nn.Linear(c.n_embd, 3 * c.n_embd, bias=False)
        self.c_proj = nn.Linear(c.n_embd, c.n_embd, bias=False)
        self.mlp = nn.Sequential(nn.Linear(c.n_embd, 4 * c.n_embd), nn.GELU(), nn.Linear(4 * c.n_embd, c.n_embd))
        self.drop = nn.Dropout(c.dropout)

    def attend(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.c.n_head, C // self.c.n_head).transpose(1, 2) for t in (q, k, v))
        p = self.c.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)  #! no_causal: y = F.scaled_dot_product_attention(q, k, v, dropout_p=p)
        return self.drop(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.drop(self.mlp(self.ln_2(x)))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte = nn.Embedding(c.vocab_size, c.n_embd)
        self.wpe = nn.Embedding(c.block_size, c.n_embd)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.n_layer))
        self.ln_f = nn.LayerNorm(c.n_embd)
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.apply(self._init)
        for n, p in self.named_parameters():
            if n.endswith("c_proj.weight"):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * c.n_layer))
        self.lm_head.weight = self.wte.weight  # tied

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
            if getattr(m, "bias", None) is not None:
                nn.init.zeros_(m.bias)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for b in self.blocks:
            x = b(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    def configure_optimizer(self, lr):
        params = [p for p in self.parameters() if p.requires_grad]
        return torch.optim.AdamW([
            {"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
        ], lr=lr, betas=(0.9, 0.95))


def make_corpus(n, g):
    who, verb, what = "anna ben the_cat our_dog".split(), "sees likes finds eats".split(), "bread milk a_ball snow".split()
    pick = lambda xs: xs[torch.randint(len(xs), (1,), generator=g).item()]
    return " ".join(f"{pick(who)} {pick(verb)} {pick(what)}." for _ in range(n))


def get_lr(it):
    if it < warmup_iters:
        return max_lr * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    coeff = 0.5 * (1.0 + math.cos(math.pi * ratio))  #! cosine_negative: coeff = math.cos(math.pi * ratio)
    return min_lr + coeff * (max_lr - min_lr)


def train():
    torch.manual_seed(1337)
    text = make_corpus(900, torch.Generator().manual_seed(3))
    chars = sorted(set(text))
    stoi = {ch: i for i, ch in enumerate(chars)}
    data = torch.tensor([stoi[ch] for ch in text], dtype=torch.long)
    cut = int(0.9 * len(data))
    splits = {"train": data[:cut], "val": data[cut:]}
    cfg = GPTConfig(vocab_size=len(chars))

    def get_batch(split):
        d = splits[split]
        ix = torch.randint(len(d) - cfg.block_size - 1, (batch_size,))
        x = torch.stack([d[i: i + cfg.block_size] for i in ix])
        y = torch.stack([d[i + 1: i + 1 + cfg.block_size] for i in ix])
        return x, y

    model = GPT(cfg)
    optimizer = model.configure_optimizer(max_lr)

    @torch.no_grad()
    def estimate_loss():
        out = {}
        model.eval()
        for split in splits:
            out[split] = sum(model(*get_batch(split))[1].item() for _ in range(eval_iters)) / eval_iters
        model.train()
        return out

    first = estimate_loss()
    print(f"step 0: train {first['train']:.4f} val {first['val']:.4f}")
    for it in range(max_iters):
        lr = get_lr(it)
        for group in optimizer.param_groups:
            group["lr"] = lr
        for micro in range(grad_accum):
            x, y = get_batch("train")  #! zero_each_micro: x, y = get_batch("train"); optimizer.zero_grad(set_to_none=True)
            _, loss = model(x, y)
            (loss / grad_accum).backward()  #! acc_not_divided: loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (it + 1) % eval_interval == 0:
            est = estimate_loss()
            print(f"step {it + 1}: train {est['train']:.4f} val {est['val']:.4f} lr {lr:.2e}")


WATCH = ()
