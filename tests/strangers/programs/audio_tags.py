"""Multi-label audio tagging with Lightning: which of six tones, chirps and noises are in a clip.

fault weights_upside_down: DK316 at "self.criterion(self(x), y)"
"""
import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

L.seed_everything(7)
SR, N = 4000, 2000
TAGS = 6


def synth(n):
    t = torch.arange(N) / SR
    rates = torch.tensor([0.3, 0.12, 0.1, 0.08, 0.2, 0.06])
    y = (torch.rand(n, TAGS) < rates).float()
    f = [300, 600, 1000, 1400]
    x = 0.1 * torch.randn(n, N)
    for k in range(4):
        phase = torch.rand(n, 1) * 6.28
        x += y[:, k:k + 1] * 0.4 * torch.sin(6.283 * f[k] * t + phase)
    x += y[:, 4:5] * 0.4 * torch.sin(6.283 * (200 * t + 1500 * t ** 2))
    x += y[:, 5:6] * 0.5 * torch.randn(n, N)
    return x, y


class LogSpec(nn.Module):
    def __init__(self, n_fft=128, hop=64):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, x):
        s = torch.stft(x, self.n_fft, self.hop, window=self.window, return_complex=True).abs()
        return (torch.log(s + 1e-2) - 0.3) / 1.2


class Tagger(L.LightningModule):
    def __init__(self, pos_weight, lr=3e-3):
        super().__init__()
        self.lr = lr
        self.front = LogSpec()
        self.net = nn.Sequential(
            nn.Conv1d(65, 48, 3, padding=1), nn.BatchNorm1d(48), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(48, 48, 3, padding=1), nn.BatchNorm1d(48), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
            nn.Dropout(0.1), nn.Linear(48, TAGS))
        self.criterion = nn.BCEWithLogitsLoss(pos_weight=pos_weight)

    def forward(self, x):
        return self.net(self.front(x))

    def training_step(self, batch, _):
        x, y = batch
        loss = self.criterion(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        logits = self(x)
        self.log("val_loss", self.criterion(logits, y), prog_bar=True)
        p = logits > 0
        tp = (p & y.bool()).sum().float()
        self.log("val_f1", 2 * tp / (p.sum() + y.sum()), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


xtr, ytr = synth(960)
xva, yva = synth(192)
positives = ytr.sum(0)
negatives = len(ytr) - positives
pos_weight = negatives / positives  #! weights_upside_down: pos_weight = positives / negatives
print("weights of positives:", pos_weight)

model = Tagger(pos_weight)
trainer = L.Trainer(max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, DataLoader(TensorDataset(xtr, ytr), 32, shuffle=True), DataLoader(TensorDataset(xva, yva), 64))
print({k: round(v.item(), 3) for k, v in trainer.callback_metrics.items()})


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
