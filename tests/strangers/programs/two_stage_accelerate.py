"""Two stages with Accelerate: an encoder learns inverse dynamics from pairs of frames, then it is frozen and a goal-reaching head is tuned on few demos.

fault prefix_mismatch: DK118|DK114
fault bn_drifts: DK112
fault wrong_part: DK117
fault wrong_pair: none
"""
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

SIZE, N_PRE, N_DEMO, N_VAL = 20, 960, 320, 128


def draw(xy):
    """xy in [0, 1]^2, one gripper blob per 20x20 picture."""
    g = torch.linspace(0, 1, SIZE)
    dx = (g[None, None, :] - xy[:, 0, None, None]) ** 2
    dy = (g[None, :, None] - xy[:, 1, None, None]) ** 2
    return torch.exp(-(dx + dy) / 0.02)[:, None] + 0.05 * torch.randn(len(xy), 1, SIZE, SIZE)


def play_pairs(n):
    xy = torch.rand(n, 2)
    action = (torch.rand(n, 2) - 0.5) * 0.5
    nxt = (xy + action).clamp(0, 1)
    motion = nxt - xy  # at the border the motion is cut, and so is the label
    return draw(xy), draw(nxt), motion  #! wrong_pair: return draw(xy), draw(nxt.flip(0)), motion


def demos(n):
    """The demonstrator moves to the mirrored place; action = whole way, in [-1, 1]."""
    xy = torch.rand(n, 2)
    return draw(xy), 1 - 2 * xy


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        def block(i, o):
            return [nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
        self.net = nn.Sequential(*block(1, 12), *block(12, 24), *block(24, 24), nn.Flatten(), nn.Linear(24 * 9, dim))

    def forward(self, x):
        return self.net((x - 0.06) / 0.2)


class InverseDynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, a, b):
        za, zb = self.encoder(torch.cat([a, b])).chunk(2)
        return self.head(torch.cat([za, zb], -1))


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 2))

    def freeze(self):
        for p in self.encoder.parameters():  #! wrong_part: for p in list(self.parameters())[:-2]:
            p.requires_grad_(False)
        return self

    def train(self, mode=True):
        super().train(mode)
        self.encoder.eval()  #! bn_drifts: self.encoder.train(mode)
        return self

    def forward(self, x):
        return self.head(self.encoder(x))


def pretrain(accelerator, path):
    first, second, action = play_pairs(N_PRE)
    loader = DataLoader(TensorDataset(first, second, action), batch_size=48, shuffle=True, drop_last=True)
    model = InverseDynamics()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    scale = action.std()
    for epoch in range(5):
        for i, (a, b, act) in enumerate(loader):
            with accelerator.accumulate(model):
                loss = F.mse_loss(model(a, b), act / scale)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 5.0)
                opt.step()
                opt.zero_grad()
            if i == 0 or (epoch == 4 and i == len(loader) - 1):
                accelerator.print(f"inverse dynamics epoch {epoch} loss {loss.item():.4f}")
    accelerator.save({"model": accelerator.unwrap_model(model).state_dict()}, path)
    accelerator.free_memory()


def load_encoder(policy, path):
    state = torch.load(path, weights_only=True)["model"]
    sub = {k.removeprefix("encoder."): v for k, v in state.items() if k.startswith("encoder.")}  #! prefix_mismatch: sub = {k: v for k, v in state.items() if k.startswith("encoder.")}
    policy.encoder.load_state_dict(sub, strict=False)


@torch.no_grad()
def validate(policy, loader):
    policy.eval()
    err = torch.cat([(policy(x) - y).abs() for x, y in loader]).mean().item()
    policy.train()
    return err


def finetune(accelerator, path):
    policy = Policy().freeze()
    load_encoder(policy, path)
    train_dl = DataLoader(TensorDataset(*demos(N_DEMO)), batch_size=32, shuffle=True)
    val_dl = DataLoader(TensorDataset(*demos(N_VAL)), batch_size=64)
    opt = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], lr=4e-3)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=40)
    policy, opt, train_dl, val_dl, sched = accelerator.prepare(policy, opt, train_dl, val_dl, sched)
    policy.train()
    for epoch in range(8):
        total = 0.0
        for x, y in train_dl:
            with accelerator.accumulate(policy):
                loss = F.smooth_l1_loss(policy(x), y)
                accelerator.backward(loss)
                opt.step()
                sched.step()
                opt.zero_grad()
            total += loss.item()
        if epoch % 2 == 1 or epoch == 0:
            accelerator.print(f"policy epoch {epoch} loss {total / len(train_dl):.4f} val mae {validate(policy, val_dl):.3f}")


def train():
    set_seed(11)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "stage1.pt")
        pretrain(accelerator, path)
        finetune(accelerator, path)


WATCH = ()
