"""A transformer encoder in (batch, time, features) order says whether the first token appears again.

fault batch_first_missing: DK305 at here|module:encoder.layers.0.self_attn
"""
import math
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
VOCAB, T = 20, 12


def build_split(n):
    tok = torch.randint(2, VOCAB, (n, T))
    # the class: does the first token appear again later?
    label = (tok[:, 1:] == tok[:, :1]).any(dim=1).long()
    return TensorDataset(tok, label)


class SequenceClassifier(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, d)
        self.pos = nn.Parameter(torch.randn(1, T, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 96, dropout=0.0, batch_first=True)  #! batch_first_missing: layer = nn.TransformerEncoderLayer(d, 4, 96, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.cls = nn.Linear(d, 2)

    def forward(self, tokens):
        h = self.embed(tokens) * math.sqrt(48) * 0.2 + self.pos
        h = self.encoder(h)
        return self.cls(h[:, 0])


def accuracy(model, loader):
    model.eval()
    good = sum((model(t).argmax(-1) == y).sum().item() for t, y in loader)
    model.train()
    return good / len(loader.dataset)


def train():
    train = DataLoader(build_split(3000), batch_size=64, shuffle=True)
    test = DataLoader(build_split(400), batch_size=64)
    model = SequenceClassifier()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(7):
        running = 0
        for tokens, y in train:
            optimizer.zero_grad()
            loss = criterion(model(tokens), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running += loss.item()
        with torch.no_grad():
            print(epoch, round(running / len(train), 4), "test acc", round(accuracy(model, test), 3))


WATCH = ()
