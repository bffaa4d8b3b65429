"""Images with augmentation from a numpy generator held by the dataset, seeded once; a class-weighted loss module with a buffer.

fault reseeded_each_epoch: DK705 at here
fault sorted_not_shuffled: DK318 at here
fault validate_on_train_mode: DK510 at "def evaluate"|module:1
fault unseeded: DK701 at here
fault frozen_head: DK117|DK113 at here|module:5
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(22)

class Shapes(Dataset):
    def __init__(self, n, augment, seed):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.arange(n) * 4 // n
        self.x = torch.randn(n, 1, 12, 12, generator=g) * 0.4
        for i in range(n):
            self.x[i, 0, 3 * int(self.y[i]):3 * int(self.y[i]) + 3] += 1.5
        self.augment, self.rng = augment, np.random.default_rng(seed)  #! unseeded: self.augment, self.rng = augment, np.random.default_rng()
    def __len__(self): return len(self.x)
    def __getitem__(self, i):
        x = self.x[i]
        if self.augment:
            x = x + float(self.rng.normal(0, 0.1))
            if self.rng.random() < 0.5:
                x = x.flip(-1)
        return x, self.y[i]

net = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(288, 4))
pass  #! frozen_head: net[5].requires_grad_(False)
criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.1, 0.9, 1.0]))
optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.05, momentum=0.9)
train_loader = DataLoader(Shapes(160, True, 1), batch_size=16, shuffle=True)  #! sorted_not_shuffled: train_loader = DataLoader(Shapes(160, True, 1), batch_size=16)
val_loader = DataLoader(Shapes(64, False, 2), batch_size=16)

def evaluate():
    net.eval()  #! validate_on_train_mode: pass
    right = 0
    with torch.inference_mode():
        for x, y in val_loader:
            right += (net(x).argmax(1) == y).sum().item()
    net.train()  #! validate_on_train_mode: pass
    return right / 64

def train():
    for epoch in range(4):
        pass  #! reseeded_each_epoch: torch.manual_seed(0); np.random.seed(0)
        for x, y in train_loader:
            loss = criterion(net(x), y)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        evaluate()

CHECK = lambda: dict(model=net, batch=next(iter(train_loader)), loss_fn=lambda m, b: criterion(m(b[0]), b[1]), optimizer=optimizer, dataloader={"train": train_loader, "validation": val_loader})
WATCH = (net, optimizer)
