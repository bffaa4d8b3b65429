"""Company-style knowledge distillation of a small CNN from a wider frozen teacher, with a temperature KL term and a hint (FitNets) layer.

fault kl_probs: DK316
fault regressor_left_out: DK101
fault teacher_trains: DK112
fault hook_hoards: DK601|DK602
"""
import logging
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s | %(message)s")
LOG = logging.getLogger("distill")


@dataclass(frozen=True)
class Settings:
    n_classes: int = 6
    n_train: int = 640
    n_val: int = 160
    batch: int = 64
    teacher_epochs: int = 4
    student_epochs: int = 6
    temperature: float = 3.0
    w_kd: float = 0.6
    w_hint: float = 0.3
    seed: int = 7


class TextureSource:
    """Oriented gratings; class = orientation, with random phase, frequency and contrast, plus noise."""

    def __init__(self, cfg: Settings):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(cfg.seed)

    def _draw(self, n: int):
        r = lambda *s: torch.rand(*s, generator=self.gen)
        y = torch.randint(self.cfg.n_classes, (n,), generator=self.gen)
        ang = y * torch.pi / self.cfg.n_classes + (r(n) - 0.5) * 0.25
        gx, gy = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="xy")
        proj = ang.cos().view(-1, 1, 1) * gx + ang.sin().view(-1, 1, 1) * gy
        wave = torch.sin(proj * (0.7 + 0.5 * r(n, 1, 1)) + 6.28 * r(n, 1, 1)) * (0.5 + r(n, 1, 1))
        x = wave + 0.8 * torch.randn(n, 16, 16, generator=self.gen)
        return x.unsqueeze(1), y

    def datasets(self):
        (xt, yt), (xv, yv) = self._draw(self.cfg.n_train), self._draw(self.cfg.n_val)
        mu, sd = xt.mean(), xt.std()
        return TensorDataset((xt - mu) / sd, yt), TensorDataset((xv - mu) / sd, yv)


class ConvNet(nn.Module):
    def __init__(self, width: int, n_classes: int, p_drop: float = 0.0):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2))
        self.mid = nn.Sequential(nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU())
        self.head = nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Dropout(p_drop), nn.Linear(2 * width, n_classes))

    def forward(self, x):
        return self.head(self.mid(self.stem(x)))


class FeatureTap:
    """Remembers the latest output of a module."""

    def __init__(self, module: nn.Module):
        self.kept = []
        module.register_forward_hook(self._hook)

    def _hook(self, module, args, out):
        self.kept = [out]  #! hook_hoards: self.kept.append(out)

    @property
    def value(self):
        return self.kept[-1]


class Distiller:
    def __init__(self, cfg: Settings):
        self.cfg = cfg
        train_set, val_set = TextureSource(cfg).datasets()
        self.train_dl = DataLoader(train_set, cfg.batch, shuffle=True, drop_last=True)
        self.val_dl = DataLoader(val_set, 96)
        self.teacher = ConvNet(24, cfg.n_classes, p_drop=0.3)
        self.student = ConvNet(6, cfg.n_classes)
        self.regressor = nn.Conv2d(12, 48, 1)

    def fit_teacher(self):
        opt = torch.optim.Adam(self.teacher.parameters(), lr=3e-3)
        for _ in range(self.cfg.teacher_epochs):
            self.teacher.train()
            for x, y in self.train_dl:
                opt.zero_grad()
                F.cross_entropy(self.teacher(x), y).backward()
                opt.step()
        self.teacher.requires_grad_(False)
        self.teacher.eval()  #! teacher_trains: self.teacher.train()

    def kd_loss(self, s_logits, t_logits):
        t = self.cfg.temperature
        log_q = F.log_softmax(s_logits / t, dim=1)  #! kl_probs: log_q = F.softmax(s_logits / t, dim=1)
        return F.kl_div(log_q, F.softmax(t_logits / t, dim=1), reduction="batchmean") * t * t

    def fit_student(self):
        cfg = self.cfg
        s_tap, t_tap = FeatureTap(self.student.mid), FeatureTap(self.teacher.mid)
        groups = [{"params": self.student.parameters()},
                  {"params": self.regressor.parameters(), "weight_decay": 1e-4}]  #! regressor_left_out: ]
        opt = torch.optim.Adam(groups, lr=3e-3)
        first = last = None
        for epoch in range(cfg.student_epochs):
            self.student.train()
            total = 0.0
            for x, y in self.train_dl:
                with torch.no_grad():
                    t_logits = self.teacher(x)
                s_logits = self.student(x)
                hint = F.mse_loss(self.regressor(s_tap.value), t_tap.value)
                ce = F.cross_entropy(s_logits, y)
                loss = (1 - cfg.w_kd) * ce + cfg.w_kd * self.kd_loss(s_logits, t_logits) + cfg.w_hint * hint
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            last = total / len(self.train_dl)
            first = last if first is None else first
            LOG.info("epoch %d loss %.4f student acc %.3f", epoch, last, self.accuracy(self.student))
        return first, last

    @torch.inference_mode()
    def accuracy(self, net):
        was_training = net.training
        net.eval()
        hits = sum((net(x).argmax(1) == y).sum().item() for x, y in self.val_dl)
        net.train(was_training)
        return hits / len(self.val_dl.dataset)


def train():
    cfg = Settings()
    torch.manual_seed(cfg.seed)
    d = Distiller(cfg)
    d.fit_teacher()
    LOG.info("teacher acc %.3f", d.accuracy(d.teacher))
    first, last = d.fit_student()
    print(f"student loss {first:.4f} -> {last:.4f}; val acc {d.accuracy(d.student):.3f}")


WATCH = ()
