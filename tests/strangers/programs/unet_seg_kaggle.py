"""Kaggle-notebook style U-Net for three-class cell segmentation with dice + cross-entropy and a void label (255).

fault view_channels: DK324
fault dice_dim: none
fault void_as_bg: none
fault onecycle_epoch: DK503
"""
# %% [imports & config]
import random
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader


class CFG:
    seed = 42
    size = 32
    n_img = 120
    n_val = 24
    n_cls = 3
    bs = 12
    epochs = 7
    max_lr = 4e-3
    void = 255


def seed_everything(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)


# %% [fake data: discs (class 1) and boxes (class 2), with a void ring around each object]
def make_image(rng, s=CFG.size):
    img = rng.normal((90, 110, 70), 14, size=(s, s, 3))
    msk = np.zeros((s, s), np.uint8)
    yy, xx = np.mgrid[:s, :s]
    for _ in range(rng.integers(1, 4)):
        c, cy, cx, r = rng.integers(1, 3), rng.integers(6, s - 6), rng.integers(6, s - 6), rng.integers(4, 8)
        d = np.hypot(yy - cy, xx - cx) if c == 1 else np.maximum(abs(yy - cy), abs(xx - cx))
        inside, ring = d <= r, (d > r) & (d <= r + 1.2)
        tint = np.array((150, 100, 90) if c == 1 else (90, 100, 160))
        img[inside] = tint + rng.normal(0, 22, size=(inside.sum(), 3))
        msk[inside] = c
        msk[ring] = CFG.void
    return img.clip(0, 255).astype(np.uint8), msk


class CellDS(Dataset):
    def __init__(self, imgs, msks, mean, std, aug):
        self.imgs, self.msks, self.aug = imgs, msks, aug
        self.mean, self.std = (torch.tensor(a, dtype=torch.float32).view(3, 1, 1) for a in (mean, std))

    def __len__(self):
        return len(self.imgs)

    def __getitem__(self, i):
        x = torch.from_numpy(self.imgs[i]).float() / 255
        y = torch.from_numpy(self.msks[i]).long()
        x = x.permute(2, 0, 1)  #! view_channels: x = x.view(3, CFG.size, CFG.size)
        x = (x - self.mean) / self.std
        if self.aug and random.random() < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        if self.aug and random.random() < 0.5:
            x, y = x.flip(-2), y.flip(-2)
        y = y.contiguous()  #! void_as_bg: y = torch.where(y == CFG.void, torch.zeros_like(y), y)
        return {"image": x.contiguous(), "mask": y}


# %% [model]
def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))


class UNet(nn.Module):
    def __init__(self, chs=(12, 24, 48), n_cls=CFG.n_cls):
        super().__init__()
        self.down = nn.ModuleList(block(i, o) for i, o in zip((3,) + chs[:-1], chs))
        self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2) for i, o in zip(chs[:0:-1], chs[-2::-1]))
        self.dec = nn.ModuleList(block(2 * o, o) for o in chs[-2::-1])
        self.head = nn.Conv2d(chs[0], n_cls, 1)

    def forward(self, x):
        skips = []
        for k, d in enumerate(self.down):
            x = d(x if k == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for u, d in zip(self.up, self.dec):
            x = d(torch.cat([u(x), skips.pop()], 1))
        return self.head(x)


# %% [loss & metric]
def dice_loss(logits, y, eps=1.0):
    keep = (y != CFG.void).unsqueeze(1).float()
    prob = logits.softmax(1) * keep  #! dice_dim: prob = logits.softmax(-1) * keep
    hot = F.one_hot(y.masked_fill(y == CFG.void, 0), CFG.n_cls).permute(0, 3, 1, 2).float() * keep
    inter, tot = (prob * hot).sum((0, 2, 3)), (prob + hot).sum((0, 2, 3))
    return 1 - ((2 * inter + eps) / (tot + eps)).mean()


def criterion(logits, y):
    return 0.5 * F.cross_entropy(logits, y, ignore_index=CFG.void) + 0.5 * dice_loss(logits, y)


@torch.no_grad()
def valid_miou(net, dl):
    net.eval()
    inter, union = torch.zeros(CFG.n_cls), torch.zeros(CFG.n_cls)
    for b in dl:
        p, y = net(b["image"]).argmax(1), b["mask"]
        ok = y != CFG.void
        for c in range(CFG.n_cls):
            inter[c] += ((p == c) & (y == c) & ok).sum()
            union[c] += (((p == c) | (y == c)) & ok).sum()
    return (inter / union.clamp(min=1)).mean().item()


# %% [run]
def train():
    seed_everything(CFG.seed)
    rng = np.random.default_rng(CFG.seed)
    imgs, msks = map(np.stack, zip(*[make_image(rng) for _ in range(CFG.n_img)]))
    order = rng.permutation(CFG.n_img)
    va, tr = order[:CFG.n_val], order[CFG.n_val:]
    mean, std = imgs[tr].mean((0, 1, 2)) / 255, imgs[tr].std((0, 1, 2)) / 255
    tr_dl = DataLoader(CellDS(imgs[tr], msks[tr], mean, std, True), CFG.bs, shuffle=True, drop_last=True)
    va_dl = DataLoader(CellDS(imgs[va], msks[va], mean, std, False), CFG.bs)
    net = UNet()
    opt = torch.optim.AdamW(net.parameters(), lr=CFG.max_lr / 25, weight_decay=1e-2)
    sch = torch.optim.lr_scheduler.OneCycleLR(opt, CFG.max_lr, total_steps=CFG.epochs * len(tr_dl), pct_start=0.2)
    for ep in range(CFG.epochs):
        net.train()
        run = 0.0
        for b in tr_dl:
            loss = criterion(net(b["image"]), b["mask"])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sch.step()  #! onecycle_epoch: pass
            run += loss.item() / len(tr_dl)
        miou = valid_miou(net, va_dl)  #! onecycle_epoch: miou = valid_miou(net, va_dl); sch.step()
        if ep in (0, CFG.epochs - 1):
            print(f"ep {ep} loss {run:.4f} val mIoU {miou:.3f} lr {opt.param_groups[0]['lr']:.2e}")


WATCH = ()
