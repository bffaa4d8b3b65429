"""An LSTM over padded reviews; the output at the last word of each row is classified.

fault last_is_padding: DK303|DK315
"""
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(2)


class Reviews(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(n)
        self.items = []
        for _ in range(n):
            ln = int(torch.randint(3, 60, (1,), generator=g))
            seq = torch.randint(1, 30, (ln,), generator=g)
            self.items.append((seq, int(seq[-2:].sum() > 30)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    seqs, ys = zip(*batch)
    lengths = torch.tensor([len(s) for s in seqs])
    return pad_sequence(seqs, batch_first=True), lengths, torch.tensor(ys)


class SentimentLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 24, padding_idx=0)
        self.lstm = nn.LSTM(24, 48, batch_first=True)
        self.fc = nn.Linear(48, 2)

    def forward(self, x, lengths):
        out, _ = self.lstm(self.emb(x))
        last = out[torch.arange(len(x)), lengths - 1]  #! last_is_padding: last = out[:, -1]
        return self.fc(last)


def train():
    train_dl = DataLoader(Reviews(1500), batch_size=32, shuffle=True, collate_fn=collate)
    val_dl = DataLoader(Reviews(300), batch_size=32, collate_fn=collate)
    model = SentimentLSTM()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    ce = nn.CrossEntropyLoss()
    for ep in range(7):
        model.train()
        for x, ln, y in train_dl:
            opt.zero_grad()
            loss = ce(model(x, ln), y)
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            acc = sum((model(x, ln).argmax(1) == y).float().sum() for x, ln, y in val_dl) / 300
        print(f"epoch {ep}: loss {loss.item():.3f} val acc {acc:.3f}")


WATCH = ()
