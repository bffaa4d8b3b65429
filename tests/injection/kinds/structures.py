"""Tables, graphs, and pairs of users and items."""

from __future__ import annotations

import random

from injection.architectures import Part, kind
from injection.datasets import table

ACTIVATIONS = ("ReLU", "GELU", "SiLU", "Tanh")


@kind
def mlp_regression(chance: random.Random) -> Part:
    width, norm = (
        chance.choice((32, 64)),
        chance.choice(("nn.LayerNorm(width)", "nn.BatchNorm1d(width)", "nn.Identity()")),
    )
    model = f"""
class MLP(nn.Module):
    def __init__(self, width={width}):
        super().__init__()
        self.fc1 = nn.Linear(COLUMNS, width)
        self.norm = {norm}
        self.fc2 = nn.Linear(width, width)
        self.activation = nn.{chance.choice(ACTIVATIONS)}()
        self.dropout = nn.Dropout({chance.choice((0.0, 0.1))})
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.activation(self.norm(self.fc1(x)))
        x = x + self.activation(self.fc2(x))
        x = self.dropout(x)
        return self.head(x)


def build_model():
    return MLP()
"""
    loss = f"""
def compute_loss(model, batch):
    inputs, target = batch["inputs"].to(device), batch["target"].to(device)
    prediction = model(inputs).squeeze(-1)
    return F.{chance.choice(("mse_loss", "huber_loss", "smooth_l1_loss"))}(prediction, target)
"""
    return Part(model, table(chance, chance.choice((6, 10))), loss, "regress a table", rate=3e-3)


@kind
def mlp_binary(chance: random.Random) -> Part:
    model = f"""
def build_model():
    width = {chance.choice((32, 64))}
    return nn.Sequential(
        nn.Linear(COLUMNS, width),
        nn.{chance.choice(ACTIVATIONS)}(),
        nn.Dropout(0.1),
        nn.Linear(width, width),
        nn.{chance.choice(ACTIVATIONS)}(),
        nn.Linear(width, 1),
    )
"""
    loss = """
def compute_loss(model, batch):
    inputs, target = batch["inputs"].to(device), batch["target"].to(device)
    logits = model(inputs).squeeze(-1)
    return F.binary_cross_entropy_with_logits(logits, target)
"""
    return Part(model, table(chance, classes=2), loss, "classify a table", rate=3e-3)


@kind
def deep_mlp(chance: random.Random) -> Part:
    model = f"""
class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)
        self.activation = nn.{chance.choice(ACTIVATIONS)}()

    def forward(self, x):
        h = self.activation(self.linear(self.norm(x)))
        return x + h


class Deep(nn.Module):
    def __init__(self, width=32, depth={chance.choice((6, 8))}):
        super().__init__()
        self.embed = nn.Linear(COLUMNS, width)
        self.layers = nn.ModuleList([Layer(width) for _ in range(depth)])
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def build_model():
    return Deep()
"""
    loss = """
def compute_loss(model, batch):
    inputs, target = batch["inputs"].to(device), batch["target"].to(device)
    logits = model(inputs)
    return F.cross_entropy(logits, target)
"""
    return Part(model, table(chance, classes=4), loss, "classify a table")


@kind
def graph_network(chance: random.Random) -> Part:
    data = """
NODES, FEATURES = 7, 5


class Data(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.nodes = torch.randn(count, NODES, FEATURES, generator=generator)
        edges = (torch.rand(count, NODES, NODES, generator=generator) < 0.3).float()
        self.edges = ((edges + edges.transpose(1, 2) + torch.eye(NODES)) > 0).float()
        spread = self.edges @ self.nodes / self.edges.sum(-1, keepdim=True)
        self.target = torch.tanh(spread[..., 0]).mean(-1) * 3

    def __len__(self):
        return len(self.target)

    def __getitem__(self, index):
        return {"nodes": self.nodes[index], "edges": self.edges[index], "target": self.target[index]}
"""
    model = f"""
class GraphLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.own, self.others = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, edges):
        degree = edges.sum(dim=-1, keepdim=True)
        h = self.own(x) + edges @ self.others(x) / degree
        return x + F.{chance.choice(("relu", "gelu", "silu"))}(self.norm(h))


class Graph(nn.Module):
    def __init__(self, width={chance.choice((16, 32))}, depth={chance.choice((2, 3))}):
        super().__init__()
        self.embed = nn.Linear(FEATURES, width)
        self.layers = nn.ModuleList([GraphLayer(width) for _ in range(depth)])
        self.head = nn.Linear(width, 1)

    def forward(self, nodes, edges):
        x = self.embed(nodes)
        for layer in self.layers:
            x = layer(x, edges)
        x = x.mean(dim=1)
        return self.head(x)


def build_model():
    return Graph()
"""
    loss = """
def compute_loss(model, batch):
    nodes, edges, target = (batch[name].to(device) for name in ("nodes", "edges", "target"))
    prediction = model(nodes, edges).squeeze(-1)
    return F.mse_loss(prediction, target)
"""
    return Part(model, data, loss, "regress a graph", rate=2e-3)


@kind
def recommender(chance: random.Random) -> Part:
    data = """
USERS, ITEMS = 20, 30


class Data(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.user = torch.randint(USERS, (count,), generator=generator)
        self.item = torch.randint(ITEMS, (count,), generator=generator)
        taste = torch.Generator().manual_seed(0)
        left, right = torch.randn(USERS, 4, generator=taste), torch.randn(ITEMS, 4, generator=taste)
        self.rating = torch.sigmoid((left[self.user] * right[self.item]).sum(-1)) * 4 + 1

    def __len__(self):
        return len(self.user)

    def __getitem__(self, index):
        return {"user": self.user[index], "item": self.item[index], "rating": self.rating[index]}
"""
    model = f"""
class Recommender(nn.Module):
    def __init__(self, width={chance.choice((8, 16))}):
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, width), nn.Embedding(ITEMS, width)
        self.fc1 = nn.Linear(2 * width, 32)
        self.activation = nn.ReLU()
        self.head = nn.Linear(32, 1)
        self.register_buffer("offset", torch.tensor(3.0))

    def forward(self, user, item):
        x = torch.cat([self.users(user), self.items(item)], dim=-1)
        x = self.activation(self.fc1(x))
        return self.head(x).squeeze(-1) + self.offset


def build_model():
    return Recommender()
"""
    loss = """
def compute_loss(model, batch):
    user, item = batch["user"].to(device), batch["item"].to(device)
    prediction = model(user, item)
    return F.mse_loss(prediction, batch["rating"].to(device))
"""
    return Part(model, data, loss, "regress ratings", rate=3e-3)
