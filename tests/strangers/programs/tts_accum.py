"""Duration and pitch predictor of a small non-autoregressive TTS front end; micro-batches are accumulated.

fault reset_in_every_micro_batch: DK512 at here
"""
import dataclasses

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence


@dataclasses.dataclass
class Config:
    vocab: int = 30
    dim: int = 48
    micro: int = 8
    accumulate: int = 4
    updates: int = 80
    lr: float = 2e-3
    seed: int = 4


class Variance(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c.vocab, c.dim, padding_idx=0)
        self.conv1 = nn.Conv1d(c.dim, c.dim, 3, padding=1)
        self.conv2 = nn.Conv1d(c.dim, c.dim, 3, padding=1)
        self.n1, self.n2 = nn.LayerNorm(c.dim), nn.LayerNorm(c.dim)
        self.duration, self.pitch = nn.Linear(c.dim, 1), nn.Linear(c.dim, 1)

    def forward(self, phones):
        keep = (phones != 0).unsqueeze(-1)
        h = self.embed(phones) * keep
        h = self.n1(torch.relu(self.conv1(h.transpose(1, 2)).transpose(1, 2))) * keep
        h = self.n2(torch.relu(self.conv2(h.transpose(1, 2)).transpose(1, 2))) * keep
        return self.duration(h).squeeze(-1), self.pitch(h).squeeze(-1)


class Corpus:
    def __init__(self, c):
        self.g = torch.Generator().manual_seed(c.seed)
        self.c = c
        self.base = torch.rand(c.vocab, generator=self.g)
        self.tone = torch.randn(c.vocab, generator=self.g)

    def micro_batch(self):
        rows, dur, pit = [], [], []
        for _ in range(self.c.micro):
            n = int(torch.randint(6, 18, (), generator=self.g))
            p = torch.randint(1, self.c.vocab, (n,), generator=self.g)
            nxt = torch.cat([p[1:], p[-1:]])
            rows.append(p)
            dur.append(self.base[p] + 0.5 * self.base[nxt] + 0.05 * torch.randn(n, generator=self.g))
            pit.append(self.tone[p] * 0.7 + 0.05 * torch.randn(n, generator=self.g))
        pad = lambda xs: pad_sequence(xs, batch_first=True)
        return pad(rows), pad(dur), pad(pit)


class Trainer:
    def __init__(self, config):
        torch.manual_seed(config.seed)
        self.c = config
        self.model = Variance(config)
        self.data = Corpus(config)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)

    def loss(self, batch):
        phones, dur, pit = batch
        d, p = self.model(phones)
        mask = phones != 0
        return ((d - dur) ** 2)[mask].mean() + ((p - pit) ** 2)[mask].mean()

    def fit(self):
        running = 0.0
        for update in range(self.c.updates):
            self.optimizer.zero_grad()  #! reset_in_every_micro_batch: pass
            for _ in range(self.c.accumulate):
                loss = self.loss(self.data.micro_batch()) / self.c.accumulate  #! reset_in_every_micro_batch: self.optimizer.zero_grad(); loss = self.loss(self.data.micro_batch()) / self.c.accumulate
                loss.backward()
                running += loss.item()
            self.optimizer.step()
            if (update + 1) % 20 == 0:
                print(f"update {update + 1}: {running / 20:.4f}")
                running = 0.0


if __name__ == "__main__":
    Trainer(Config()).fit()


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
