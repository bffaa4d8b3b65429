"""Tutorial: keyword spotting on log-mel spectrograms with quantisation-aware training (8-level weights, straight-through estimator).

fault no_ste: DK105|DK107
fault nll_no_log: DK316
fault sorted_loader: DK318
fault no_eval: DK510
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SR, CLIP = 4000, 2000  # half a second at 4 kHz
WORDS = ["up", "down", "stay", "beep"]


# --- Step 1: synthesise "words". Rising, falling, steady tone, and on-off beeps, with random pitch and noise.
def synth(word, n):
    t = torch.arange(CLIP) / SR
    f0 = 400 + 200 * torch.rand(n, 1)
    if word == "up":
        f = f0 * (1 + 1.2 * t / t[-1])
    elif word == "down":
        f = f0 * (2.2 - 1.2 * t / t[-1])
    else:
        f = f0 * 1.5 * torch.ones_like(t)
    wave = torch.sin(2 * math.pi * torch.cumsum(f / SR, 1))
    if word == "beep":
        wave = wave * ((t * 8 + torch.rand(n, 1)) % 1 < 0.5)
    return wave * (0.3 + torch.rand(n, 1)) + 0.12 * torch.randn(n, CLIP)


# --- Step 2: the log-mel front end.
def mel_matrix(n_mels, n_fft):
    to_mel = lambda f: 2595 * math.log10(1 + f / 700)
    mels = torch.linspace(to_mel(60), to_mel(SR / 2), n_mels + 2)
    hz = 700 * (10 ** (mels / 2595) - 1)
    bins = torch.linspace(0, SR / 2, n_fft // 2 + 1)
    lo, mid, hi = hz[:-2, None], hz[1:-1, None], hz[2:, None]
    return torch.minimum((bins - lo) / (mid - lo), (hi - bins) / (hi - mid)).clamp(min=0)


def log_mel(wave, n_fft=256, hop=80, n_mels=20):
    spec = torch.stft(wave, n_fft, hop, window=torch.hann_window(n_fft), return_complex=True).abs() ** 2
    return (mel_matrix(n_mels, n_fft) @ spec + 1e-5).log()


# --- Step 3: fake quantisation. round() has no useful gradient; the backward passes it straight through.
class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


def fake_quant(w, levels=7):
    scale = w.detach().abs().amax(dim=tuple(range(1, w.ndim)), keepdim=True).clamp(min=1e-8) / levels
    return RoundSTE.apply(w / scale) * scale  #! no_ste: return torch.round(w / scale) * scale


class QConv1d(nn.Conv1d):
    def forward(self, x):
        return F.conv1d(x, fake_quant(self.weight), self.bias, self.stride, self.padding)


class QLinear(nn.Linear):
    def forward(self, x):
        return F.linear(x, fake_quant(self.weight), self.bias)


class SpecAugment(nn.Module):
    """Blank one random band and one random stretch of time per batch, only in training."""

    def forward(self, x):
        if not self.training:
            return x
        x = x.clone()
        f, t = torch.randint(0, x.shape[1] - 3, (1,)).item(), torch.randint(0, x.shape[2] - 4, (1,)).item()
        x[:, f:f + 3] = 0
        x[:, :, t:t + 4] = 0
        return x


class KeywordNet(nn.Module):
    def __init__(self, n_mels=20, ch=32):
        super().__init__()
        self.aug = SpecAugment()
        self.body = nn.Sequential(
            QConv1d(n_mels, ch, 5, padding=2), nn.BatchNorm1d(ch), nn.ReLU(),
            QConv1d(ch, ch, 5, stride=2, padding=2), nn.BatchNorm1d(ch), nn.ReLU(),
            nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Dropout(0.2))
        self.out = QLinear(4 * ch, len(WORDS))

    def forward(self, x):
        z = self.out(self.body(self.aug(x)))
        return F.log_softmax(z, dim=-1)  #! nll_no_log: return F.softmax(z, dim=-1)


# --- Step 4: train.
def make_split(per_word):
    waves = torch.cat([synth(w, per_word) for w in WORDS])
    labels = torch.arange(len(WORDS)).repeat_interleave(per_word)
    return log_mel(waves), labels


@torch.no_grad()
def evaluate(net, loader):
    net.eval()  #! no_eval: pass
    good = sum((net(x).argmax(1) == y).sum().item() for x, y in loader)
    return good / len(loader.dataset)


def train():
    torch.manual_seed(3)
    x_tr, y_tr = make_split(160)
    x_va, y_va = make_split(40)
    mean, std = x_tr.mean((0, 2), keepdim=True), x_tr.std((0, 2), keepdim=True)
    x_tr, x_va = (x_tr - mean) / std, (x_va - mean) / std
    loader = DataLoader(TensorDataset(x_tr, y_tr), batch_size=32, shuffle=True)  #! sorted_loader: loader = DataLoader(TensorDataset(x_tr, y_tr), batch_size=32)
    val_loader = DataLoader(TensorDataset(x_va, y_va), batch_size=32)
    net = KeywordNet()
    loss_fn = nn.NLLLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(6):
        net.train()
        losses = []
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_fn(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}  loss {sum(losses) / len(losses):.4f}  val accuracy {evaluate(net, val_loader):.3f}")


WATCH = ()
