"""Early stopping on a noisy problem: the weights of the best epoch are copied and loaded at the end.

fault best_by_reference: DK513
"""
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(3)
X = torch.randn(220, 40)
y = (X[:, :3].sum(1) + 1.5 * torch.randn(220) > 0).float()
train_set, val_set = random_split(TensorDataset(X, y), [100, 120])


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def train():
    model = MLP()
    loss_fn = nn.BCEWithLogitsLoss()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    train_dl = DataLoader(train_set, batch_size=20, shuffle=True)
    val_dl = DataLoader(val_set, batch_size=60)

    def validate():
        model.eval()
        total = 0.0
        with torch.no_grad():
            for xb, yb in val_dl:
                total += loss_fn(model(xb), yb).item() * len(xb)
        return total / len(val_set)

    best, best_state, patience = float("inf"), None, 0
    for epoch in range(40):
        model.train()
        for xb, yb in train_dl:
            opt.zero_grad()
            loss = loss_fn(model(xb), yb)
            loss.backward()
            opt.step()
        v = validate()
        if v < best:
            best, patience = v, 0
            best_state = copy.deepcopy(model.state_dict())  #! best_by_reference: best_state = model.state_dict()
        else:
            patience += 1
        if epoch % 8 == 0:
            print(f"epoch {epoch} train {loss.item():.3f} val {v:.3f} best {best:.3f}")
        if patience > 25:
            break

    model.load_state_dict(best_state)
    print(f"best val loss during training {best:.3f}; restored model: {validate():.3f}")


WATCH = ()
