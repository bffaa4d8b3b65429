"""Full-batch GCN (Kipf): sparse propagation with index_add_, the same graph in every step, early stopping restores the best weights."""
import copy, torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(42)
N, C, D = 300, 4, 32
y = torch.randint(0, C, (N,))
same = y[:, None] == y[None]
adj = (torch.rand(N, N) < torch.where(same, .05, .006)).triu(1)
edge = adj.nonzero().t()
edge = torch.cat([edge, edge.flip(0), torch.arange(N).expand(2, -1)], 1)
x = torch.zeros(N, D)
x[torch.arange(N), y * 8 + torch.randint(0, 8, (N,))] = 1.
x += (torch.rand(N, D) < .15).float()
x /= x.sum(1, keepdim=True).clamp(min=1)
order = torch.randperm(N)
masks = {k: torch.zeros(N, dtype=torch.bool).index_fill_(0, i, True) for k, i in zip(("train", "val", "test"), order.split([60, 90, 150]))}


class GCNConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(i, o)), nn.Parameter(torch.zeros(o))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, h, edge_index):
        src, dst = edge_index
        deg = torch.zeros(h.size(0)).scatter_add_(0, dst, torch.ones(dst.numel())).rsqrt_()
        msg = (h @ self.weight)[src] * (deg[src] * deg[dst])[:, None]
        return torch.zeros(h.size(0), self.bias.numel()).index_add_(0, dst, msg) + self.bias


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(D, 16), GCNConv(16, C)

    def forward(self, x, edge_index):
        x = F.dropout(x, .5, self.training)
        x = F.relu(self.conv1(x, edge_index))
        x = F.dropout(x, .5, self.training)
        return self.conv2(x, edge_index)


def train():
    model = GCN()
    optimizer = torch.optim.Adam([dict(params=model.conv1.parameters(), weight_decay=5e-4), dict(params=model.conv2.parameters(), weight_decay=0)], lr=.02)

    def fit():
        model.train()
        optimizer.zero_grad()
        out = model(x, edge)
        loss = F.cross_entropy(out[masks["train"]], y[masks["train"]])
        loss.backward()
        optimizer.step()
        return float(loss)

    @torch.no_grad()
    def test():
        model.eval()
        pred = model(x, edge).argmax(-1)
        return {k: int((pred[m] == y[m]).sum()) / int(m.sum()) for k, m in masks.items()}

    best, best_state, patience = 0., None, 0
    for epoch in range(1, 201):
        loss = fit()
        acc = test()
        if acc["val"] > best:
            best, best_state, patience = acc["val"], copy.deepcopy(model.state_dict()), 0
        else:
            patience += 1
        if epoch % 20 == 1:
            print(f"epoch {epoch:03d} loss {loss:.3f} {acc}")
        if patience >= 60:
            break
    model.load_state_dict(best_state)
    print("best", test())


WATCH = ()
