"""Hand-written LoRA on the attention projections of a tiny Llama: pretraining on one rule, adapters for another, merge.

fault both_zero: DK107|DK115
fault freeze_missing: none
fault pad_labels: DK309
fault merge_scale: none
"""
import math
import tempfile
from pathlib import Path

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB, PAD, BOS, N = 24, 0, 1, 10


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r: int = 4, alpha: int = 16, p: float = 0.05):
        super().__init__()
        self.base, self.scale, self.drop = base, alpha / r, nn.Dropout(p)
        self.A = nn.Parameter(torch.empty(r, base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))  #! both_zero: nn.init.zeros_(self.A)

    def forward(self, x):
        return self.base(x) + self.scale * (self.drop(x) @ self.A.t() @ self.B.t())

    @torch.no_grad()
    def merged(self):
        self.base.weight += self.scale * self.B @ self.A  #! merge_scale: self.base.weight += self.B @ self.A
        return self.base


def inject(model, names=("q_proj", "v_proj", "o_proj")):
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in names and isinstance(child, nn.Linear):
                setattr(parent, name, LoRALinear(child))
    return model


def merge(model):
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LoRALinear):
                setattr(parent, name, child.merged())
    return model


def batch(step, n, g):
    """Counting sequences x, x+step, x+2 step, ... of random length, right padded."""
    start = torch.randint(0, 22, (n, 1), generator=g)
    ids = torch.cat([torch.full((n, 1), BOS), (start + step * torch.arange(N)) % 22 + 2], 1)
    real = torch.arange(N + 1)[None] < torch.randint(5, N + 2, (n, 1), generator=g)
    ids = ids.masked_fill(~real, PAD)
    labels = ids.masked_fill(~real, -100)  #! pad_labels: labels = ids.clone()
    return dict(input_ids=ids, attention_mask=real.long(), labels=labels)


def fit(model, params, step, n_steps, lr, g):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    model.train()
    curve = []
    for i in range(n_steps):
        for group in opt.param_groups:
            group["lr"] = lr * min(1.0, (i + 1) / 5) * (1 - 0.9 * i / n_steps)
        out = model(**batch(step, 32, g))
        out.loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        curve.append(out.loss.item())
    return curve


def train():
    torch.manual_seed(71)
    g = torch.Generator().manual_seed(72)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=PAD))
    fit(model, model.parameters(), 1, 50, 5e-3, g)

    model.requires_grad_(False)  #! freeze_missing: pass
    inject(model)
    trainable = [p for p in model.parameters() if p.requires_grad]
    curve = fit(model, trainable, 3, 80, 1e-2, g)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "adapter.pt"
        torch.save({k: v for k, v in model.state_dict().items() if k.endswith((".A", ".B"))}, path)
        missing, unexpected = model.load_state_dict(torch.load(path), strict=False)
        assert not unexpected and not any(k.endswith((".A", ".B")) for k in missing)
    model.eval()
    probe = batch(3, 64, g)
    with torch.no_grad():
        before = model(**probe).loss.item()
        after = merge(model)(**probe).loss.item()
    train.score = before, after
    return curve


WATCH = ()
