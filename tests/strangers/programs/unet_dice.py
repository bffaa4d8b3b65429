"""Two-level U-Net that segments discs and bars with cross-entropy plus soft Dice, configured by a dataclass.

fault hard_dice: DK105|DK119|DK121
fault skip_lost: none
fault flip_image_only: none
fault val_is_train: DK311|DK321
"""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset


@dataclass
class Config:
    size: int = 24
    classes: int = 3
    width: int = 8
    n_train: int = 160
    n_val: int = 40
    batch: int = 16
    epochs: int = 6
    lr: float = 4e-3
    dice_weight: float = 0.5


class Shapes(Dataset):
    """Images with one disc (class 1) and one bar (class 2); the ground is class 0."""

    def __init__(self, cfg):
        g = torch.Generator().manual_seed(0)
        n, s = cfg.n_train + cfg.n_val, cfg.size
        yy, xx = torch.meshgrid(torch.arange(s), torch.arange(s), indexing="ij")
        self.images, self.masks = [], []
        for _ in range(n):
            cx, cy, bx, by = torch.randint(5, s - 5, (4,), generator=g).tolist()
            mask = torch.zeros(s, s, dtype=torch.long)
            mask[(xx - bx).abs().le(4) & (yy - by).abs().le(1)] = 2
            mask[(xx - cx) ** 2 + (yy - cy) ** 2 <= 12] = 1
            level = torch.tensor([0.0, 0.9, 1.4])[mask]
            self.images.append((level + 0.35 * torch.randn(s, s, generator=g)).unsqueeze(0))
            self.masks.append(mask)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return {"image": self.images[i], "mask": self.masks[i]}


def double_conv(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.SiLU(),
                         nn.Conv2d(cout, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.width
        self.enc1, self.enc2, self.mid = double_conv(1, w), double_conv(w, 2 * w), double_conv(2 * w, 4 * w)
        self.up2, self.dec2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, stride=2), double_conv(4 * w, 2 * w)
        self.up1, self.dec1 = nn.ConvTranspose2d(2 * w, w, 2, stride=2), double_conv(2 * w, w)
        self.out = nn.Conv2d(w, cfg.classes, 1)

    def forward(self, x):
        s1 = self.enc1(x)
        s2 = self.enc2(F.max_pool2d(s1, 2))
        x = self.up2(self.mid(F.max_pool2d(s2, 2)))
        x = self.dec2(torch.cat([x, s2], dim=1))
        x = self.up1(x)
        x = self.dec1(torch.cat([x, s1], dim=1))  #! skip_lost: x = self.dec1(torch.cat([x, x], dim=1))
        return self.out(x)


def dice_loss(logits, target, eps=1.0):
    n = logits.shape[1]
    probs = logits.softmax(dim=1)  #! hard_dice: probs = F.one_hot(logits.argmax(dim=1), n).permute(0, 3, 1, 2).float()
    onehot = F.one_hot(target, n).permute(0, 3, 1, 2).float()
    inter = (probs * onehot).sum(dim=(0, 2, 3))
    total = probs.sum(dim=(0, 2, 3)) + onehot.sum(dim=(0, 2, 3))
    return 1 - ((2 * inter + eps) / (total + eps))[1:].mean()


@torch.inference_mode()
def mean_iou(model, loader, classes):
    model.eval()
    inter, union = torch.zeros(classes), torch.zeros(classes)
    for batch in loader:
        pred = model(batch["image"]).argmax(1)
        for c in range(classes):
            p, t = pred == c, batch["mask"] == c
            inter[c] += (p & t).sum()
            union[c] += (p | t).sum()
    return (inter / union.clamp(min=1)).mean().item()


def train(cfg=Config()):
    torch.manual_seed(3)
    data = Shapes(cfg)
    train_set = Subset(data, range(cfg.n_train))
    val_set = Subset(data, range(cfg.n_train, len(data)))  #! val_is_train: val_set = Subset(data, range(cfg.n_val))
    train_loader = DataLoader(train_set, cfg.batch, shuffle=True)
    val_loader = DataLoader(val_set, cfg.batch)
    model = UNet(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-3)
    history = {"loss": [], "iou": []}
    for _ in range(cfg.epochs):
        model.train()
        for batch in train_loader:
            image, mask = batch["image"], batch["mask"]
            if torch.rand(()) < 0.5:
                image = image.flip(-1)
                mask = mask.flip(-1)  #! flip_image_only: pass
            logits = model(image)
            loss = F.cross_entropy(logits, mask) + cfg.dice_weight * dice_loss(logits, mask)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            history["loss"].append(loss.item())
        history["iou"].append(mean_iou(model, val_loader, cfg.classes))
    return history


WATCH = ()
