"""Character language model with causal attention, tied weights, gradient accumulation and sampling through a KV cache.

fault not_causal: DK304
fault tie_is_copy: none
fault zero_every_micro: DK512
fault cache_position: none
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS = "the cat sat on a mat and saw one red hen near the old barn".split()
CTX, D, H, LAYERS, MICRO, ACCUM = 32, 48, 4, 2, 8, 2


def corpus(n=900):
    g = torch.Generator().manual_seed(2)
    text, i = [], 0
    for _ in range(n):
        i = (i + int(torch.randint(1, 3, (1,), generator=g))) % len(WORDS)
        text.append(WORDS[i])
    text = " ".join(text)
    chars = sorted(set(text))
    return torch.tensor([chars.index(c) for c in text]), chars


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(D), nn.RMSNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
        self.mlp = nn.Sequential(nn.Linear(D, 3 * D), nn.GELU(), nn.Linear(3 * D, D))

    def forward(self, x, cache=None):
        B, T, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        if cache is not None:
            if cache:
                k, v = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)
            cache["k"], cache["v"] = k, v
        a = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)  #! not_causal: a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(B, T, D))
        return x + self.mlp(self.n2(x))


class LM(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, D), nn.Embedding(CTX, D)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(D), nn.Linear(D, vocab, bias=False)
        nn.init.normal_(self.tok.weight, std=0.05)
        nn.init.normal_(self.pos.weight, std=0.05)
        self.head.weight = self.tok.weight  #! tie_is_copy: self.head.weight = nn.Parameter(self.tok.weight.clone())

    def forward(self, idx, caches=None, start=0):
        where = torch.arange(start, start + idx.size(1))
        x = self.tok(idx) + self.pos(where)
        for i, layer in enumerate(self.layers):
            x = layer(x, None if caches is None else caches[i])
        return self.head(self.norm(x))


@torch.no_grad()
def generate(model, prompt, n):
    """Sample up to the context length: the prompt is read at once, then one token at a time with cached keys and values."""
    model.eval()
    caches, out = [{} for _ in range(LAYERS)], prompt
    logits = model(prompt, caches)
    for _ in range(n):
        nxt = torch.multinomial((logits[:, -1] / 0.8).softmax(-1), 1)
        logits = model(nxt, caches, start=out.size(1))  #! cache_position: logits = model(nxt, caches)
        out = torch.cat([out, nxt], 1)
    return out


def train():
    torch.manual_seed(0)
    data, chars = corpus()
    split = int(0.9 * len(data))
    tr, va = data[:split], data[split:]
    model = LM(len(chars))
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.01)
    losses = []
    for step in range(60):
        total = 0.0
        opt.zero_grad()
        for _ in range(ACCUM):
            at = torch.randint(len(tr) - CTX, (MICRO,))
            x = torch.stack([tr[i:i + CTX] for i in at])
            y = torch.stack([tr[i + 1:i + CTX + 1] for i in at])
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / ACCUM
            loss.backward()  #! zero_every_micro: opt.zero_grad(); loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        losses.append(total)
    model.eval()
    with torch.no_grad():
        n = (len(va) - 1) // CTX * CTX
        val = F.cross_entropy(model(va[:n].view(-1, CTX)).flatten(0, 1), va[1:n + 1]).item()
    text = "".join(chars[i] for i in generate(model, va[None, :8], 23)[0].tolist())
    return losses, val, text


WATCH = ()
