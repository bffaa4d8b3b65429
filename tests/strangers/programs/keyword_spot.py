"""Keyword spotting on chirps of variable length: log spectrograms cached once, SpecAugment on the fly, packed GRU.

fault augments_cache: none
fault labels_unsorted: none
fault augment_at_eval: none
fault padded_last_state: DK303
"""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

FFT, HOP = 64, 32
KEYWORDS = {"rise": (0.04, 0.20), "fall": (0.20, 0.04), "high": (0.18, 0.18), "low": (0.06, 0.06)}


def utter(label, g):
    n = int(torch.randint(500, 1300, (1,), generator=g))
    f0, f1 = list(KEYWORDS.values())[label]
    freq = torch.linspace(f0, f1, n) * (1 + 0.1 * torch.randn(1, generator=g))
    wave = torch.sin(2 * torch.pi * freq.cumsum(0))
    return wave + 0.4 * torch.randn(n, generator=g)


class Keywords(Dataset):
    def __init__(self, n, seed, augment):
        g = torch.Generator().manual_seed(seed)
        self.augment = augment
        self.labels = torch.randint(0, 4, (n,), generator=g).tolist()
        window = torch.hann_window(FFT)
        self.specs = []
        for y in self.labels:
            s = torch.stft(utter(y, g), FFT, HOP, window=window, return_complex=True).abs()
            self.specs.append(torch.log1p(s).T.contiguous())

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        spec = self.specs[i]
        if self.augment:
            spec = self.mask(spec.clone())  #! augments_cache: spec = self.mask(spec)
        return spec, self.labels[i]

    @staticmethod
    def mask(spec):
        """SpecAugment: zero one random band of frequencies and one of frames, in place."""
        for dim, most in ((1, 6), (0, 4)):
            width = int(torch.randint(1, most + 1, ()))
            start = int(torch.randint(0, spec.size(dim) - width, ()))
            spec.narrow(dim, start, width).zero_()
        return spec


def collate(items):
    specs, labels = zip(*items)
    lengths = torch.tensor([len(s) for s in specs])
    labels = torch.tensor(labels)
    lengths, order = lengths.sort(descending=True)
    batch = pad_sequence([specs[i] for i in order.tolist()], batch_first=True)
    return batch, lengths, labels[order]  #! labels_unsorted: return batch, lengths, labels


class Spotter(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.inp = nn.Sequential(nn.Linear(FFT // 2 + 1, hidden), nn.LayerNorm(hidden), nn.ReLU())
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, len(KEYWORDS))

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.inp(x), lengths, batch_first=True)
        _, last = self.gru(packed)  #! padded_last_state: _, last = self.gru(self.inp(x))
        return self.out(last[-1])


def accuracy(model, loader):
    was = model.training
    model.eval()
    good = 0
    with torch.no_grad():
        for x, n, y in loader:
            good += model(x, n).argmax(1).eq(y).sum().item()
    model.train(was)
    return good / len(loader.dataset)


def train():
    torch.manual_seed(31)
    train_dl = DataLoader(Keywords(256, seed=1, augment=True), 16, shuffle=True, collate_fn=collate)
    dev_dl = DataLoader(Keywords(96, seed=2, augment=False), 16, collate_fn=collate)  #! augment_at_eval: dev_dl = DataLoader(Keywords(96, seed=2, augment=True), 16, collate_fn=collate)
    model = Spotter()
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.8)
    losses, accs = [], []
    for epoch in range(7):
        for x, n, y in train_dl:
            loss = nn.functional.cross_entropy(model(x, n), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            losses.append(loss.item())
        sched.step()
        accs.append(accuracy(model, dev_dl))
    return losses, accs


WATCH = ()
