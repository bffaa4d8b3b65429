"""Accelerate: eight micro-batches for a step inside of accumulate(), plain SGD.

fault divided_twice: DK507
"""
import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def train():
    ACCUM = 8
    accelerator = Accelerator(gradient_accumulation_steps=ACCUM, cpu=True)

    x = torch.randn(2048, 20)
    w = torch.randn(20, 5)
    y = (x @ w).argmax(1)
    train_dl = DataLoader(TensorDataset(x[:1792], y[:1792]), batch_size=8, shuffle=True)
    eval_dl = DataLoader(TensorDataset(x[1792:], y[1792:]), batch_size=64)

    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    model, optimizer, train_dl, eval_dl = accelerator.prepare(model, optimizer, train_dl, eval_dl)
    loss_fn = nn.CrossEntropyLoss()

    for epoch in range(4):
        model.train()
        running = 0.0
        for xb, yb in train_dl:
            with accelerator.accumulate(model):
                loss = loss_fn(model(xb), yb)
                running += loss.item()  #! divided_twice: running += loss.item(); loss = loss / ACCUM
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        correct = 0
        with torch.no_grad():
            for xb, yb in eval_dl:
                correct += (model(xb).argmax(1) == yb).sum().item()
        accelerator.print(f"epoch {epoch} loss {running / len(train_dl):.3f} acc {correct / 256:.3f}")


WATCH = ()
