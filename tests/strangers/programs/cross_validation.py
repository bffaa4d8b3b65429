"""Five folds: a model and an optimizer for each fold; standardised by the training rows of the fold.

fault model_of_the_last_fold: none
fault validates_on_training_rows: DK311|DK321 at here
"""
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(41)
X = torch.randn(200, 7) * torch.tensor([1.0, 5, 10, 0.1, 1, 2, 3]) + 3; Y = (X[:, 0] + 0.3 * X[:, 1] > 4).long()
make = lambda: nn.Sequential(nn.Linear(7, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 2))
shared = make()
def run_fold(k, order):
    held = order[k * 40:(k + 1) * 40]; rest = torch.cat([order[:k * 40], order[(k + 1) * 40:]])
    mu, sd = X[rest].mean(0), X[rest].std(0)
    model = make()  #! model_of_the_last_fold: model = shared
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(2):
        model.train()
        for i in rest[torch.randperm(160)].split(20):
            loss = F.cross_entropy(model((X[i] - mu) / sd), Y[i])
            opt.zero_grad(); loss.backward(); opt.step()
        model.eval()
        test = held  #! validates_on_training_rows: test = i
        with torch.no_grad(): acc = (model((X[test] - mu) / sd).argmax(1) == Y[test]).float().mean().item()
    return acc
def train():
    order = torch.randperm(200)
    for k in range(5): run_fold(k, order)
WATCH = ()
