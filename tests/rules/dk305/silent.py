"""Models whose samples do not influence each other, although they share something of the batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


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


def _shuffled(*samples, batch_size=8):
    return DataLoader(TensorDataset(*samples), batch_size=batch_size, shuffle=True)


def _frames():
    return _shuffled(torch.randn(40, 5, 6))


def _first(model, batch):
    return model(batch[0]).square().mean()


class Sequence(nn.Module):
    def __init__(self, longest=50):
        super().__init__()
        self.embed, self.head = nn.Linear(6, 8), nn.Linear(8, 2)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        angles = torch.arange(longest)[:, None] / 10000 ** (torch.arange(0, 8, 2) / 8)
        self.register_buffer("pe", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))
        self.table = nn.Embedding(longest, 8)

    def forward(self, frames):
        x = self.embed(frames)
        x = x + self.pe[: x.size(1)] + self.table(torch.arange(x.size(1)))
        return self.head(self.encoder(x).mean(1))


def positions_of_the_time_dimension():
    return {"model": Sequence(), "dataloader": _frames(), "loss_fn": _first}


def positions_of_the_time_dimension_with_as_many_steps_as_samples():
    return {"model": Sequence(), "dataloader": _shuffled(torch.randn(40, 8, 6)), "loss_fn": _first}


def time_first_inside_the_model_with_a_hidden_length_of_the_batch_size():
    """The decoder's queries are as many as the samples; they are the first dimension inside the model."""

    class Chunks(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Linear(6, 8), nn.Linear(8, 2)
            self.queries = nn.Parameter(torch.randn(12, 1, 8))
            self.decoder = nn.TransformerDecoderLayer(8, 2, 16)

        def forward(self, frames):
            memory = self.embed(frames).transpose(0, 1)
            queries = self.queries[:8].expand(-1, memory.size(1), -1)
            return self.head(self.decoder(queries, memory)).transpose(0, 1)

    return {"model": Chunks(), "dataloader": _frames(), "loss_fn": _first}


def chunk_first_outputs_as_many_as_the_samples():
    class Chunks(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Linear(6, 8), nn.Linear(8, 2)
            self.queries = nn.Parameter(torch.randn(8, 1, 8))

        def forward(self, frames):
            return self.head((self.queries + self.embed(frames.mean(1))).tanh())

    return {"model": Chunks(), "dataloader": _frames(), "loss_fn": _first}


def carried_states_of_each_stream():
    """Row i of a batch continues row i of the batch before; the last batches are smaller."""

    class Streams(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.GRUCell(6, 8), nn.Linear(8, 2)
            self.register_buffer("last", torch.randn(16, 8))

        def forward(self, x):
            new = self.cell(x, self.last[: len(x)])
            self.last = torch.cat([new.detach(), self.last[len(x) :]])
            return self.head(new)

    return {"model": Streams(), "dataloader": _shuffled(torch.randn(40, 6)), "loss_fn": _first}


def noise_of_each_sample():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.times, self.net = nn.Embedding(100, 6), nn.Linear(6, 6)

        def forward(self, x):
            time = (torch.arange(len(x)) + torch.rand(len(x))) / len(x)
            return self.net(x + self.times((time * 100).long()) + torch.randn_like(x))

    return {"model": Noisy(), "dataloader": _shuffled(torch.randn(40, 6)), "loss_fn": _first}


def times_of_the_loss_function_by_row():
    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.times, self.net = nn.Embedding(8, 6), nn.Linear(6, 6)

        def forward(self, x, time):
            return self.net(x + self.times(time))

    return {
        "model": Denoiser(),
        "dataloader": _shuffled(torch.randn(40, 6)),
        "loss_fn": lambda model, batch: model(batch[0], torch.arange(len(batch[0])).flip(0)).square().mean(),
    }


def every_other_sample_without_its_condition():
    class Guided(nn.Module):
        def __init__(self):
            super().__init__()
            self.empty, self.net = nn.Parameter(torch.randn(6)), nn.Linear(6, 6)

        def forward(self, x):
            return self.net(torch.where((torch.arange(len(x)) % 2 == 0)[:, None], self.empty, x))

    return {"model": Guided(), "dataloader": _shuffled(torch.randn(40, 6)), "loss_fn": _first}


def two_domains_in_the_halves_of_the_batch():
    class Domains(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(6, 2), nn.Linear(6, 2)

        def forward(self, x):
            return torch.cat([self.one(x[:4]), self.other(x[4:])])

    return {"model": Domains(), "dataloader": _shuffled(torch.randn(40, 6)), "loss_fn": _first}


def domain_of_each_half_embedded():
    class Domains(nn.Module):
        def __init__(self):
            super().__init__()
            self.domain, self.net = nn.Embedding(8, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.net(x + self.domain(torch.arange(len(x)) // 4))

    return {"model": Domains(), "dataloader": _shuffled(torch.randn(40, 6)), "loss_fn": _first}


def last_step_chosen_by_row_numbers():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 2)

        def forward(self, frames, lengths):
            hidden = self.rnn(frames)[0]
            return self.head(hidden[torch.arange(len(frames)), lengths - 1])

    return {
        "model": Last(),
        "dataloader": _shuffled(torch.randn(40, 5, 6), torch.randint(1, 6, (40,))),
        "loss_fn": lambda model, batch: model(*batch).square().mean(),
    }


def weights_with_as_many_rows_as_the_batch():
    """A table of prototypes and layers of the program with eight units, for eight samples."""

    class Units(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.table = nn.Parameter(torch.randn(8, 6)), nn.Parameter(torch.zeros(8, 8))
            self.head = nn.Linear(8, 8)

        def forward(self, x):
            hidden = nn.functional.linear(x, self.weight).relu()
            return {"logits": self.head(hidden @ self.table + hidden), "table": self.table.tanh()}

    return {
        "model": Units(),
        "dataloader": _shuffled(torch.randn(40, 6)),
        "loss_fn": lambda model, batch: model(batch[0])["logits"].square().mean(),
    }


def one_token_expanded_to_the_batch():
    class Token(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.head = nn.Parameter(torch.randn(1, 1, 6)), nn.Linear(6, 2)
            self.encoder = nn.TransformerEncoderLayer(6, 2, 16, batch_first=True)

        def forward(self, x):
            return self.head(self.encoder(torch.cat([self.token.expand(len(x), -1, -1), x], 1))[:, 0])

    return {"model": Token(), "dataloader": _frames(), "loss_fn": _first}


def networks_of_an_ensemble_in_the_first_dimension():
    """The batch has the samples of each of four networks."""

    class Ensemble(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(4, 6, 2)), nn.Parameter(torch.zeros(4, 1, 2))

        def forward(self, x):
            return torch.baddbmm(self.bias, x, self.weight)

    return {"model": Ensemble(), "batch": torch.randn(4, 8, 6), "loss_fn": _regression}


def code_of_each_sample_of_the_whole_data_set():
    """All samples are one batch, and each has its own code."""

    class Codes(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes, self.net = nn.Parameter(torch.randn(8, 6)), nn.Linear(6, 2)

        def forward(self, x):
            return self.net(x + self.codes)

    loader = DataLoader(TensorDataset(torch.randn(8, 6)), batch_size=8)
    return {"model": Codes(), "dataloader": loader, "loss_fn": _first}


def consecutive_frames_of_a_video():
    """A loader without shuffling gives the frames in their order: as information only, at most."""

    class Frames(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes, self.net = nn.Parameter(torch.zeros(8, 6)), nn.Linear(6, 2)

        def forward(self, x):
            return self.net(x + self.codes)

    loader = DataLoader(TensorDataset(torch.randn(40, 6)), batch_size=8)
    return {"model": Frames(), "dataloader": loader, "loss_fn": _first}


def sequences_sorted_by_their_lengths():
    """The model raises if the samples are in another order."""

    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 2)

        def forward(self, frames, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(frames, lengths, batch_first=True)
            return self.head(self.rnn(packed)[1][-1])

    return {
        "model": Packed(),
        "batch": (torch.randn(4, 5, 6), torch.tensor([5, 4, 4, 2])),
        "loss_fn": lambda model, batch: model(*batch).square().mean(),
    }


def table_returned_beside_the_results():
    """Eight prototypes are returned as they are, for eight samples."""

    class Prototypes(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Parameter(torch.randn(8, 4)), nn.Linear(6, 4)

        def forward(self, x):
            return {"features": self.head(x), "prototypes": self.table.tanh()}

    return {
        "model": Prototypes(),
        "dataloader": _shuffled(torch.randn(40, 6)),
        "loss_fn": lambda model, batch: model(batch[0])["features"].square().mean(),
    }


def time_first_with_as_many_steps_as_samples():
    """The loader stacks the samples in the second dimension, and the encoding is that of time."""

    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.positions = nn.Linear(6, 2), nn.Parameter(torch.randn(50, 1, 6))

        def forward(self, x):  # (T, B, D)
            return self.head(x + self.positions[: x.size(0)])

    def stacked(samples):
        return torch.stack(samples, 1)

    loader = DataLoader(list(torch.randn(40, 8, 6)), batch_size=8, shuffle=True, collate_fn=stacked)
    return {"model": Steps(), "dataloader": loader, "loss_fn": _regression}


def values_by_row_in_evaluation_alone():
    """The evaluation uses the same draws each time."""

    class Latent(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 2)
            self.register_buffer("draws", torch.randn(64, 6))

        def forward(self, x):
            return self.net(x + (torch.randn_like(x) if self.training else self.draws[: len(x)]))

    return {"model": Latent(), "dataloader": _shuffled(torch.randn(40, 6)), "loss_fn": _first}


def perturbation_that_is_kept_from_batch_to_batch():
    """Free adversarial training ascends on one perturbation per row of the batch."""

    class Perturbed(nn.Module):
        def __init__(self):
            super().__init__()
            self.delta, self.net = nn.Parameter(torch.randn(8, 6)), nn.Linear(6, 2)

        def forward(self, x):
            return self.net(x + self.delta)

    return {"model": Perturbed(), "dataloader": _shuffled(torch.randn(40, 6)), "loss_fn": _first}


def buffer_that_the_loop_writes():
    """The loop stores the last actions of each environment under a name that says so."""

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(12, 2)
            self.register_buffer("previous", torch.randn(16, 6))

        def forward(self, x):
            return self.net(torch.cat([x, self.previous[: len(x)]], 1))

    return {"model": Policy(), "dataloader": _shuffled(torch.randn(40, 6)), "loss_fn": _first}


def slice_of_a_perturbation_that_is_kept():
    class Perturbed(nn.Module):
        def __init__(self):
            super().__init__()
            self.delta, self.net = nn.Parameter(torch.randn(16, 6)), nn.Linear(6, 2)

        def forward(self, x):
            return self.net(x + self.delta[: len(x)])

    return {"model": Perturbed(), "dataloader": _shuffled(torch.randn(40, 6)), "loss_fn": _first}
