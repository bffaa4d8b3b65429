"""Models whose samples do not influence each other, although they share something of the batch."""

import torch
from torch import nn


def _regression(model, batch):
    return model(batch).square().mean()


def batch_norm_and_dropout():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    return {"model": model.train(), "batch": torch.randn(8, 6), "loss_fn": _regression}


def self_attention_over_time():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return {"model": layer, "batch": torch.randn(3, 5, 8), "loss_fn": _regression}


def new_noise_in_each_pass():
    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 6)

        def forward(self, action):
            return self.net(action + torch.randn_like(action))

    return {"model": Flow(), "batch": torch.randn(4, 6), "loss_fn": _regression}


def recurrent_with_tuple_output():
    def loss_fn(model, batch):
        outputs, _ = model(batch[0])
        return (outputs - batch[1]).square().mean()

    return {
        "model": nn.GRU(4, 4, batch_first=True),
        "batch": (torch.randn(3, 6, 4), torch.randn(3, 6, 4)),
        "loss_fn": loss_fn,
    }


def loss_couples_the_batch_but_outputs_do_not():
    def loss_fn(model, batch):
        features = model(batch)
        return (features @ features.T).logsumexp(-1).mean()

    return {"model": nn.Linear(6, 4), "batch": torch.randn(5, 6), "loss_fn": loss_fn}


def one_sample():
    return {
        "model": nn.Linear(6, 4),
        "batch": torch.randn(1, 6),
        "loss_fn": _regression,
        "expect": {"not_examined": "fewer than two"},
    }


def model_that_raises():
    def loss_fn(model, batch):
        raise KeyError("action")

    return {
        "model": nn.Linear(6, 4),
        "batch": torch.randn(3, 6),
        "loss_fn": loss_fn,
        "expect": {"not_examined": "KeyError"},
    }


def features_of_a_table_that_has_as_many_rows_as_the_batch():
    """The second output is a table of five prototypes, not five samples."""

    class Prototypes(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.table = nn.Linear(6, 4), nn.Parameter(torch.randn(5, 4))

        def forward(self, x):
            features = self.encode(x)
            weights = (features @ self.table.T).softmax(-1)
            return {"features": features, "updated": self.table + weights.T.detach() @ features.detach()}

    return {
        "model": Prototypes(),
        "batch": torch.randn(5, 6),
        "loss_fn": lambda model, batch: model(batch)["features"].square().mean(),
    }


def nodes_of_a_graph():
    """The whole graph is one batch: the adjacency matrix has a row and a column for each node."""

    class Convolution(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.head = nn.Linear(6, 8), nn.Linear(8, 2)

        def forward(self, nodes, adjacency):
            return self.head(adjacency @ self.hidden(adjacency @ nodes).relu())

    adjacency = (torch.rand(9, 9) < 0.5).float() + torch.eye(9)
    return {
        "model": Convolution(),
        "batch": {"nodes": torch.randn(9, 6), "adjacency": adjacency / adjacency.sum(1, keepdim=True)},
        "loss_fn": lambda model, batch: model(batch["nodes"], batch["adjacency"]).square().mean(),
        "expect": {"not_examined": "The samples are the nodes of a graph: `adjacency` has a row and a column for each"},
    }


class _Messages(nn.Module):
    """Each node adds what its neighbours send."""

    def __init__(self):
        super().__init__()
        self.encode, self.head = nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, nodes, edges):
        sent = self.encode(nodes).relu()
        return self.head(sent + torch.zeros_like(sent).index_add_(0, edges[1], sent[edges[0]]))


_RELATED = {"not_examined": "The samples are the nodes of a graph: given indices, or a given matrix, relate their rows"}


def nodes_with_edges_in_the_batch():
    return {
        "model": _Messages(),
        "batch": {"nodes": torch.randn(9, 6), "edges": torch.randint(0, 9, (2, 30))},
        "loss_fn": lambda model, batch: model(batch["nodes"], batch["edges"]).square().mean(),
        "expect": _RELATED,
    }


def nodes_whose_edges_the_loss_function_holds():
    edges = torch.randint(0, 9, (2, 30))
    return {
        "model": _Messages(),
        "batch": {"nodes": torch.randn(9, 6)},
        "loss_fn": lambda model, batch: model(batch["nodes"], edges).square().mean(),
        "expect": _RELATED,
    }


def nodes_whose_mean_is_scattered_over_expanded_indices():
    class Means(nn.Module):
        def __init__(self, edges):
            super().__init__()
            self.encode = nn.Linear(6, 8)
            self.register_buffer("edges", edges)

        def forward(self, nodes):
            sent = self.encode(nodes)
            target = self.edges[1].unsqueeze(-1).expand(-1, 8)
            source = sent.index_select(0, self.edges[0])
            return torch.zeros_like(sent).scatter_reduce(0, target, source, "mean", include_self=False)

    return {
        "model": Means(torch.randint(0, 9, (2, 30))),
        "batch": torch.randn(9, 6),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": _RELATED,
    }


def list_of_sequences_of_several_lengths():
    """The first dimension of each tensor is time, not the batch: two sequences are as long by chance."""

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.rnn, self.head = nn.Embedding(20, 8), nn.GRU(8, 8), nn.Linear(8, 3)

        def forward(self, ids):
            return self.head(self.rnn(self.embedding(ids))[0])

    return {
        "model": Tagger(),
        "batch": [torch.arange(length) for length in (4, 6, 6, 3, 7, 5)],
        "loss_fn": lambda model, batch: torch.stack([model(ids).square().mean() for ids in batch]).mean(),
        "expect": {"not_examined": ""},
    }
