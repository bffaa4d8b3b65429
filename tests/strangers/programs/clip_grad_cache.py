"""CLIP with GradCache-like accumulation: features of all micro-batches first, then a second pass; logit scale clamped in place; dict batches with padded text."""
import math, contextlib, torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(21)
SHAPES, COL = 4, 6
MASK = torch.stack([torch.ones(8, 8), torch.eye(8), torch.ones(8, 8).tril(), (torch.arange(8) % 2)[None].expand(8, 8).float()])
RGB = torch.rand(COL, 3) * 2 - 1


class Pairs(Dataset):
    def __init__(self, n): self.s, self.c, self.l = torch.randint(0, SHAPES, (n,)), torch.randint(0, COL, (n,)), torch.randint(0, 3, (n,))
    def __len__(self): return len(self.s)
    def __getitem__(self, i):
        img = MASK[self.s[i]][None] * RGB[self.c[i]][:, None, None] + .1 * torch.randn(3, 8, 8)
        filler = [11, 12][:int(self.l[i])]
        return img, filler + [1 + int(self.c[i]), 7 + int(self.s[i]), 13]


def collate(b):
    L = max(len(t) for _, t in b)
    ids = torch.tensor([t + [0] * (L - len(t)) for _, t in b])
    return {"pixel_values": torch.stack([i for i, _ in b]), "input_ids": ids, "attention_mask": (ids != 0).long()}


class Text(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.tok, self.pos = nn.Embedding(14, d, padding_idx=0), nn.Embedding(6, d)
        self.layer = nn.TransformerEncoderLayer(d, 4, 96, 0., batch_first=True, norm_first=True)
        self.ln = nn.LayerNorm(d)
    def forward(self, input_ids, attention_mask):
        x = self.tok(input_ids) + self.pos(torch.arange(input_ids.shape[1]))
        x = self.ln(self.layer(x, src_key_padding_mask=attention_mask == 0))
        return x[torch.arange(len(x)), attention_mask.sum(1) - 1]            # end-of-text token


class CLIP(nn.Module):
    def __init__(self, d=48, e=24):
        super().__init__()
        self.visual = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.GELU(), nn.Conv2d(24, d, 3, 2, 1), nn.GELU(), nn.Flatten(), nn.Linear(4 * d, d))
        self.text = Text(d)
        self.visual_projection, self.text_projection = nn.Linear(d, e, bias=False), nn.Linear(d, e, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / .07)))
    def forward(self, pixel_values, input_ids, attention_mask):
        i = self.visual_projection(self.visual(pixel_values)); t = self.text_projection(self.text(input_ids, attention_mask))
        return F.normalize(i, dim=-1), F.normalize(t, dim=-1)


def clip_loss(i, t, scale):
    logits = scale.exp() * i @ t.T
    y = torch.arange(len(i))
    return (F.cross_entropy(logits, y) + F.cross_entropy(logits.T, y)) / 2


def train():
    loader = DataLoader(Pairs(768), 12, shuffle=True, collate_fn=collate, drop_last=True)
    model = CLIP()
    opt = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=.01)
    ACC = 2
    for epoch in range(4):
        cache, tot = [], []
        for step, batch in enumerate(loader):
            with torch.no_grad():
                cache.append((batch, *model(**batch)))
            if (step + 1) % ACC:
                continue
            for j, (b, _, _) in enumerate(cache):
                i, t = model(**b)
                I = torch.cat([c[1] if m != j else i for m, c in enumerate(cache)])
                Tx = torch.cat([c[2] if m != j else t for m, c in enumerate(cache)])
                loss = clip_loss(I, Tx, model.logit_scale)
                loss.backward()
            opt.step()
            opt.zero_grad()
            cache.clear()
            with torch.no_grad():
                model.logit_scale.clamp_(0, math.log(100))
            tot.append(loss.item())
        print(epoch, f"{sum(tot) / len(tot):.3f}", "scale", model.logit_scale.exp().item())


WATCH = ()
