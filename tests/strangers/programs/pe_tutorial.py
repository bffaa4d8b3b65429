"""Gesture recognition from hand-joint tracks with nn.TransformerEncoder and the sinusoidal encoding of the tutorial.

fault encoding_of_the_other_axis: DK305 at here
"""
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 200):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(1, max_len, d_model)
        pe[0, :, 0::2] = torch.sin(position * div_term)
        pe[0, :, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        x = x + self.pe[:, :x.size(1)]  #! encoding_of_the_other_axis: x = x + self.pe.transpose(0, 1)[:x.size(0)]
        return self.dropout(x)


class Gestures(nn.Module):
    def __init__(self, joints=10, d_model=48, classes=6):
        super().__init__()
        self.embed = nn.Linear(joints, d_model)
        self.pos = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(d_model, 4, 96, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.fc = nn.Linear(d_model, classes)

    def forward(self, x):
        h = self.encoder(self.pos(self.embed(x) * 2))
        return self.fc(h.mean(dim=1))


def tracks(n, frames=30, joints=10, classes=6):
    """Gestures differ in the direction and the tempo in which a wave runs over the joints."""
    y = torch.randint(classes, (n,))
    speed = torch.tensor([1., -1., 2., -2., 0.5, -0.5])[y].view(-1, 1, 1)
    t = torch.linspace(0, 1, frames).view(1, -1, 1)
    j = torch.arange(joints).view(1, 1, -1) / joints
    x = torch.exp(-((torch.remainder(speed * t + torch.rand(n, 1, 1), 1) - j) ** 2) * 30)
    x = x + 0.15 * torch.randn(n, frames, joints)
    return (x - x.mean()) / x.std(), y


torch.manual_seed(77)
train_set, val_set = random_split(TensorDataset(*tracks(1440)), [1200, 240])
train_dl, val_dl = DataLoader(train_set, batch_size=40, shuffle=True), DataLoader(val_set, batch_size=60)
model = Gestures()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(1, 8):
    model.train()
    loss_sum, n = 0.0, 0
    for inputs, targets in train_dl:
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        loss_sum += loss.item() * len(inputs)
        n += len(inputs)
    model.eval()
    correct = 0
    with torch.no_grad():
        for inputs, targets in val_dl:
            correct += (model(inputs).argmax(1) == targets).sum().item()
    print(f"| epoch {epoch} | train loss {loss_sum / n:.3f} | val acc {correct / len(val_set):.3f} |")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
