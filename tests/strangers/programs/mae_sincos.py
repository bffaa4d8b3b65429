"""MAE: random masking by argsort, mask token, fixed sin-cos positions, loss on masked patches with per-patch normalised targets."""
import math, numpy as np, torch
from torch import nn
from functools import partial

torch.manual_seed(30)
IMG, P, C = 16, 4, 3


def images(n):
    t = torch.linspace(0, 2 * math.pi, IMG)
    f, ph = torch.rand(n, 3, 2) * 2 + .5, torch.rand(n, 3, 1, 1) * 6.28
    return torch.sin(f[..., :1, None] * t[:, None] + f[..., 1:, None] * t + ph)


def sincos(n, d):
    g = np.stack(np.meshgrid(np.arange(n), np.arange(n)), 0).reshape(2, -1)
    om = 1 / 100 ** (np.arange(d // 4) / (d / 4.))
    return torch.tensor(np.concatenate([f(np.einsum("m,d->md", p, om)) for p in g for f in (np.sin, np.cos)], 1), dtype=torch.float32)


class Block(nn.Module):
    def __init__(self, d, h, mlp_ratio=2., norm_layer=nn.LayerNorm):
        super().__init__()
        self.norm1, self.norm2 = norm_layer(d), norm_layer(d)
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, int(d * mlp_ratio)), nn.GELU(), nn.Linear(int(d * mlp_ratio), d))
    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class MAE(nn.Module):
    def __init__(self, d=64, dd=48, ln=partial(nn.LayerNorm, eps=1e-6)):
        super().__init__()
        n = (IMG // P) ** 2
        self.patch_embed = nn.Conv2d(C, d, P, P)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, d))
        self.pos_embed = nn.Parameter(torch.cat([torch.zeros(1, d), sincos(IMG // P, d)])[None], requires_grad=False)
        self.blocks = nn.ModuleList([Block(d, 4, norm_layer=ln) for _ in range(2)])
        self.norm = ln(d)
        self.decoder_embed = nn.Linear(d, dd)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, dd))
        self.decoder_pos_embed = nn.Parameter(torch.cat([torch.zeros(1, dd), sincos(IMG // P, dd)])[None], requires_grad=False)
        self.decoder_blocks = nn.ModuleList([Block(dd, 4, norm_layer=ln) for _ in range(1)])
        self.decoder_norm, self.decoder_pred = ln(dd), nn.Linear(dd, P * P * C)
        nn.init.normal_(self.cls_token, std=.02); nn.init.normal_(self.mask_token, std=.02)

    def patchify(self, x):
        h = IMG // P
        return torch.einsum("nchpwq->nhwpqc", x.reshape(len(x), C, h, P, h, P)).reshape(len(x), h * h, P * P * C)

    def encode(self, x, ratio):
        x = self.patch_embed(x).flatten(2).transpose(1, 2) + self.pos_embed[:, 1:]
        N, L, D = x.shape
        keep = int(L * (1 - ratio))
        shuf = torch.argsort(torch.rand(N, L), dim=1)
        restore = torch.argsort(shuf, dim=1)
        x = torch.gather(x, 1, shuf[:, :keep, None].expand(-1, -1, D))
        mask = torch.ones(N, L)
        mask[:, :keep] = 0
        mask = torch.gather(mask, 1, restore)
        x = torch.cat([(self.cls_token + self.pos_embed[:, :1]).expand(N, -1, -1), x], 1)
        for b in self.blocks: x = b(x)
        return self.norm(x), mask, restore

    def decode(self, x, restore):
        x = self.decoder_embed(x)
        m = self.mask_token.repeat(len(x), restore.shape[1] + 1 - x.shape[1], 1)
        x_ = torch.gather(torch.cat([x[:, 1:], m], 1), 1, restore[..., None].repeat(1, 1, x.shape[2]))
        x = torch.cat([x[:, :1], x_], 1) + self.decoder_pos_embed
        for b in self.decoder_blocks: x = b(x)
        return self.decoder_pred(self.decoder_norm(x))[:, 1:]

    def forward(self, imgs, mask_ratio=.75):
        z, mask, restore = self.encode(imgs, mask_ratio)
        pred, target = self.decode(z, restore), self.patchify(imgs)
        target = (target - target.mean(-1, keepdim=True)) / (target.var(-1, keepdim=True) + 1e-6) ** .5
        return (((pred - target) ** 2).mean(-1) * mask).sum() / mask.sum(), pred, mask


def train():
    data, model = images(2048), MAE()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(.9, .95), weight_decay=.05)
    for epoch in range(4):
        tot = 0.
        for it, idx in enumerate(torch.randperm(len(data)).view(-1, 64)):
            for g in opt.param_groups:
                e = epoch + it / 32
                g["lr"] = 3e-3 * min(1., (e + .02) / .5) * (.5 * (1 + math.cos(math.pi * e / 4)) if e > .5 else 1)
            loss, _, _ = model(data[idx], mask_ratio=.6)
            opt.zero_grad(); loss.backward(); opt.step()
            tot += loss.item() / 32
        print(epoch, tot)


WATCH = ()
