"""ACT-like chunking transformer with a CVAE style encoder, trained on synthetic reaching demos and rolled out with temporal ensembling.

fault pad_loss: DK309
fault no_unnorm: none
fault chunk_lag: DK403
fault kl_sign: none
"""
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    seed: int = 1
    n_train: int = 48
    n_val: int = 6
    ep_len: int = 24
    chunk: int = 8
    d_model: int = 64
    n_heads: int = 4
    ff: int = 128
    latent: int = 8
    dropout: float = 0.1
    batch: int = 32
    epochs: int = 3
    lr: float = 1.5e-3
    lr_backbone: float = 5e-4
    kl_weight: float = 0.5
    ensemble_m: float = 0.01


def render(goal_cm):
    """A 24x24 camera picture with a bright blob where the goal is (workspace: 50 x 50 cm)."""
    g = torch.linspace(0, 50, 24)
    yy, xx = torch.meshgrid(g, g, indexing="ij")
    return torch.exp(-((xx - goal_cm[0]) ** 2 + (yy - goal_cm[1]) ** 2) / (2 * 4.0 ** 2))[None]


def step_env(pos, target):
    delta = target - pos
    dist = delta.norm().clamp_min(1e-6)
    return pos + delta * (3.0 / dist).clamp(max=1.0)  # 3 cm per tick at most


def record_episode(cfg, rng):
    pos = torch.tensor(rng.uniform(5, 45, 2), dtype=torch.float32)
    goal = torch.tensor(rng.uniform(5, 45, 2), dtype=torch.float32)
    qpos, actions = [], []
    for _ in range(cfg.ep_len - int(rng.integers(0, 6))):
        delta = goal - pos
        a = pos + delta * (3.0 / delta.norm().clamp_min(1e-6)).clamp(max=1.0)
        qpos.append(pos)
        actions.append(a)
        pos = step_env(pos, a)
    return {"image": render(goal), "qpos": torch.stack(qpos), "action": torch.stack(actions), "goal": goal}


class EpisodicDataset(Dataset):
    def __init__(self, episodes, stats, cfg):
        self.episodes, self.stats, self.cfg = episodes, stats, cfg
        self.index = [(e, t) for e, ep in enumerate(episodes) for t in range(len(ep["qpos"]))]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        e, t = self.index[i]
        ep, s, k = self.episodes[e], self.stats, self.cfg.chunk
        chunk = ep["action"][t:t + k]  #! chunk_lag: chunk = ep["action"][min(t + 4, len(ep["action"]) - 1):][:k]
        chunk = (chunk - s["a_mean"]) / s["a_std"]
        action = torch.zeros(k, 2)
        action[: len(chunk)] = chunk
        is_pad = torch.arange(k) >= len(chunk)
        return {"image": ep["image"], "qpos": (ep["qpos"][t] - s["q_mean"]) / s["q_std"], "action": action, "is_pad": is_pad}


def sinusoid(n, d):
    pos, i = torch.arange(n)[:, None], torch.arange(0, d, 2)[None]
    ang = pos / 10000 ** (i / d)
    return torch.stack([ang.sin(), ang.cos()], -1).reshape(n, d)


class ACT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        d = c.d_model
        self.backbone = nn.Sequential(nn.Conv2d(1, 16, 5, 2, 2), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.GroupNorm(4, 32), nn.ReLU(), nn.Conv2d(32, d, 3, 2, 1))
        layer = lambda: nn.TransformerEncoderLayer(d, c.n_heads, c.ff, c.dropout, batch_first=True)
        self.cls = nn.Parameter(torch.randn(1, 1, d) * 0.02)
        self.act_in, self.qpos_style = nn.Linear(2, d), nn.Linear(2, d)
        self.style = nn.TransformerEncoder(layer(), 1, enable_nested_tensor=False)
        self.to_latent, self.latent_out = nn.Linear(d, 2 * c.latent), nn.Linear(c.latent, d)
        self.qpos_in = nn.Linear(2, d)
        self.encoder = nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, c.n_heads, c.ff, c.dropout, batch_first=True), 1)
        self.query = nn.Parameter(torch.randn(1, c.chunk, d) * 0.02)
        self.head = nn.Linear(d, 2)
        self.register_buffer("pos_style", sinusoid(c.chunk + 2, d)[None])
        self.img_pos = nn.Parameter(torch.randn(1, 9 + 2, d) * 0.02)

    def forward(self, image, qpos, action=None, is_pad=None):
        b = len(qpos)
        mu = logvar = None
        if action is not None:
            x = torch.cat([self.cls.expand(b, -1, -1), self.qpos_style(qpos)[:, None], self.act_in(action)], 1) + self.pos_style
            mask = torch.cat([is_pad.new_zeros(b, 2), is_pad], 1)
            mu, logvar = self.to_latent(self.style(x, src_key_padding_mask=mask)[:, 0]).chunk(2, -1)
            z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        else:
            z = qpos.new_zeros(b, self.c.latent)
        feat = self.backbone(image).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.latent_out(z)[:, None], self.qpos_in(qpos)[:, None], feat], 1) + self.img_pos
        return self.head(self.decoder(self.query.expand(b, -1, -1), self.encoder(tokens))), mu, logvar


def compute_loss(model, batch, c):
    pred, mu, logvar = model(batch["image"], batch["qpos"], batch["action"], batch["is_pad"])
    valid = (~batch["is_pad"])[..., None].expand_as(pred)  #! pad_loss: valid = torch.ones_like(pred, dtype=torch.bool)
    l1 = (F.l1_loss(pred, batch["action"], reduction="none") * valid).sum() / valid.sum()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(-1).mean()  #! kl_sign: kl = 0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(-1).mean()
    return l1 + c.kl_weight * kl, l1.item()


@torch.no_grad()
def rollout(model, episodes, s, c):
    model.eval()
    errors = []
    for ep in episodes:
        pos = ep["qpos"][0]
        table = torch.full((c.ep_len, c.ep_len + c.chunk, 2), float("nan"))
        for t in range(c.ep_len):
            chunk = model(ep["image"][None], ((pos - s["q_mean"]) / s["q_std"])[None])[0][0]
            table[t, t:t + c.chunk] = chunk
            past = table[:, t]
            past = past[~past.isnan().any(-1)]
            w = torch.exp(-c.ensemble_m * torch.arange(len(past)))
            a = (past * (w / w.sum())[:, None]).sum(0)
            pos = step_env(pos, a * s["a_std"] + s["a_mean"])  #! no_unnorm: pos = step_env(pos, a)
        errors.append((pos - ep["goal"]).norm().item())
    model.train()
    return float(np.mean(errors))


def train():
    c = Config()
    torch.manual_seed(c.seed)
    rng = np.random.default_rng(c.seed)
    train_eps = [record_episode(c, rng) for _ in range(c.n_train)]
    val_eps = [record_episode(c, rng) for _ in range(c.n_val)]
    q, a = torch.cat([e["qpos"] for e in train_eps]), torch.cat([e["action"] for e in train_eps])
    stats = {"q_mean": q.mean(0), "q_std": q.std(0).clamp_min(1e-2), "a_mean": a.mean(0), "a_std": a.std(0).clamp_min(1e-2)}
    loader = DataLoader(EpisodicDataset(train_eps, stats, c), batch_size=c.batch, shuffle=True, drop_last=True)
    model = ACT(c)
    backbone = [p for n, p in model.named_parameters() if n.startswith("backbone")]
    rest = [p for n, p in model.named_parameters() if not n.startswith("backbone")]
    opt = torch.optim.AdamW([{"params": rest}, {"params": backbone, "lr": c.lr_backbone}], lr=c.lr, weight_decay=1e-4)
    total = c.epochs * len(loader)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: min(1, (i + 1) / 10) * 0.5 * (1 + math.cos(math.pi * i / total)))
    for epoch in range(c.epochs):
        for i, batch in enumerate(loader):
            loss, l1 = compute_loss(model, batch, c)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            sched.step()
            if i == 0 or (epoch == c.epochs - 1 and i == len(loader) - 1):
                print(f"epoch {epoch} loss {loss.item():.3f} l1 {l1:.3f}")
        if epoch % 2 == 0:
            print(f"epoch {epoch} closed-loop goal error {rollout(model, val_eps, stats, c):.2f} cm")


WATCH = ()
