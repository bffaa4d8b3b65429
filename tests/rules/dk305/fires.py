"""Models whose samples influence each other."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AttendsOverBatch(nn.Module):
    """The softmax runs over dimension 0, the batch."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(6, 1)
        self.pool = Pool()
        self.head = nn.Linear(6, 3)

    def forward(self, frames):  # (B, T, D)
        return self.head(self.pool(frames, self.score(frames)))


class Pool(nn.Module):
    def forward(self, frames, score):
        return (frames * score.softmax(dim=0)).sum(1)  # DK305


class ReadsQueueOfFirst(nn.Module):
    """Every sample gets the context of the first one, as with an action queue sliced on the batch axis."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, frames):
        return {"action": self.head(frames.mean(1)) + self.head(frames[:1, 0])}  # DK305


def softmax_over_the_batch():
    return {
        "model": AttendsOverBatch(),
        "batch": torch.randn(4, 5, 6),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"module": "pool", "severity": "error", "message": "3 other samples"},
    }


def everyone_reads_sample_zero():
    return {
        "model": ReadsQueueOfFirst(),
        "batch": {"frames": torch.randn(2, 5, 6)},
        "loss_fn": lambda model, batch: model(batch["frames"])["action"].square().mean(),
        "expect": {"module": "", "severity": "error", "message": "1 other sample "},
    }


def similarity_of_each_with_each_is_only_information():
    class TwoTowers(nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.text = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, image, text):
            return self.image(image) @ self.text(text).T

    def loss_fn(model, batch):
        logits = model(batch["image"], batch["text"])
        return nn.functional.cross_entropy(logits, torch.arange(len(logits)))

    return {
        "model": TwoTowers(),
        "batch": {"image": torch.randn(4, 6), "text": torch.randn(4, 6)},
        "loss_fn": loss_fn,
        "expect": {"severity": "info"},
    }


def seen_in_inference_alone():
    class Policy(nn.Module):
        """In training mode it returns only the loss, as many policies do."""

        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 3)

        def act(self, state):
            return self.head(state - state.mean(0))  # DK305

        def forward(self, state, action):
            return {"loss": (self.act(state) - action).square().mean()}

        def predict(self, batch):
            return self.act(batch["state"])

    batch = {"state": torch.randn(4, 6), "action": torch.randn(4, 3)}
    return {"model": Policy(), "batch": batch, "expect": {"severity": "error"}}


class Routed(nn.Module):
    """Each expert takes at most two rows, in the order of the batch."""

    def __init__(self):
        super().__init__()
        self.router, self.head = nn.Linear(6, 2), nn.Linear(6, 3)
        self.experts = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        with torch.no_grad():
            self.router.weight[:, 0] = torch.tensor([10.0, -10.0])

    def forward(self, x):
        chosen, out = self.router(x).argmax(-1), x.clone()
        for index, expert in enumerate(self.experts):
            mine = (chosen == index).nonzero()[:2, 0]
            out = out.index_add(0, mine, expert(x[mine]))
        return self.head(out)


def _rows_for_both_experts():
    rows = torch.randn(8, 6)
    rows[:, 0] = torch.tensor([1.0, -1.0] * 4)
    return rows


def experts_with_a_capacity():
    return {
        "model": Routed(),
        "batch": _rows_for_both_experts(),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"severity": "info", "message": "compete"},
    }


def experts_with_a_capacity_and_a_mean_over_the_batch():
    class Leaks(Routed):
        def forward(self, x):
            return super().forward(x - x.mean(0))  # DK305

    return {
        "model": Leaks(),
        "batch": _rows_for_both_experts(),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"severity": "error"},
    }


def samples_mixed_before_the_model():
    def loss_fn(model, batch):
        return model(0.7 * batch + 0.3 * batch[torch.randperm(len(batch))]).square().mean()

    return {
        "model": nn.Linear(6, 3),
        "batch": torch.randn(8, 6),
        "loss_fn": loss_fn,
        "expect": {"severity": "info", "message": "as mixup does"},
    }


def samples_normalised_over_the_batch_before_the_model():
    return {
        "model": nn.Linear(6, 3),
        "batch": torch.randn(8, 6),
        "loss_fn": lambda model, batch: model(batch - batch.mean(0)).square().mean(),  # DK305
        "expect": {"severity": "error"},
    }


def distances_of_each_sample_to_each():
    class Distances(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Linear(6, 3)

        def forward(self, x):
            return (-torch.cdist(self.encode(x), self.encode(x))).softmax(1)

    return {
        "model": Distances(),
        "batch": torch.randn(4, 6),
        "loss_fn": lambda model, batch: model(batch).diagonal().log().mean(),
        "expect": {"severity": "info"},
    }


class ViewInsteadOfPermute(nn.Module):
    """(T, B, D) is viewed as (B, T, D), which gives each sample the frames of others."""

    def __init__(self):
        super().__init__()
        self.encode, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, frames):
        steps = self.encode(frames.transpose(0, 1))
        rows = steps.contiguous().view(frames.shape)  # DK305
        return self.head(rows.mean(1))


def view_instead_of_permute():
    return {
        "model": ViewInsteadOfPermute(),
        "batch": torch.randn(4, 5, 6),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"severity": "error"},
    }


def softmax_over_the_batch_beside_labels_that_choose_a_column():
    """Indices of the batch that choose a column, and an order of all rows, relate no samples."""

    class Scores(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 4)
            self.register_buffer("order", torch.arange(5).flip(0))

        def forward(self, state, action):
            scores = self.head(state).softmax(0)[self.order]  # DK305
            return scores.gather(1, action[:, None]), scores

    return {
        "model": Scores(),
        "batch": {"state": torch.randn(5, 6), "action": torch.randint(0, 4, (5,))},
        "loss_fn": lambda model, batch: -model(batch["state"], batch["action"])[0].log().mean(),
        "expect": {"severity": "warning"},
    }


def _shuffled(batch_size, *samples):
    return DataLoader(TensorDataset(*samples), batch_size=batch_size, shuffle=True)


def _frames_and_classes(batch_size=8):
    return _shuffled(batch_size, torch.randn(40, 5, 6), torch.randint(0, 3, (40,)))


def _classified(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


class Encoding(nn.Module):
    """The sinusoidal encoding for (T, B, D), used with (B, T, D)."""

    def __init__(self, width, longest=50):
        super().__init__()
        angles = torch.arange(longest)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
        self.register_buffer("pe", torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, None])

    def forward(self, x):
        return x + self.pe[: x.size(0)]  # DK305


class Classifier(nn.Module):
    def __init__(self, positions, width=8):
        super().__init__()
        self.embed, self.positions = nn.Linear(6, width), positions
        self.encoder = nn.TransformerEncoderLayer(width, 2, 16, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, frames):
        return self.head(self.encoder(self.positions(self.embed(frames))).mean(1))


def encoding_of_the_batch_dimension():
    return {
        "model": Classifier(Encoding(8)),
        "dataloader": _frames_and_classes(),
        "loss_fn": _classified,
        "expect": {"module": "positions", "severity": "error", "message": "depends on its row in the batch"},
    }


def encoding_of_the_batch_dimension_without_a_loader():
    """Whether the first dimension is that of samples is known only from a data loader."""
    return {
        "model": Classifier(Encoding(8)),
        "batch": (torch.randn(8, 5, 6), torch.randint(0, 3, (8,))),
        "loss_fn": _classified,
        "expect": {"module": "positions", "severity": "info", "message": "depends on its row in the batch"},
    }


def embedding_of_row_numbers():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(64, 8)

        def forward(self, x):
            numbers = torch.arange(x.size(0), device=x.device)  # DK305
            return x + self.table(numbers).unsqueeze(1)

    return {
        "model": Classifier(Positions()),
        "dataloader": _frames_and_classes(),
        "loss_fn": _classified,
        "expect": {"module": "positions", "severity": "error", "message": "counted along the 8 samples"},
    }


def sines_of_row_numbers():
    class Positions(nn.Module):
        def forward(self, x):
            numbers = torch.arange(len(x)).view(-1, 1, 1)  # DK305
            return x + (numbers / 100 ** (torch.arange(8) / 8)).sin()

    return {
        "model": Classifier(Positions()),
        "dataloader": _frames_and_classes(),
        "loss_fn": _classified,
        "expect": {"module": "positions", "severity": "error"},
    }


def slice_of_a_trained_table():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(64, 1, 8) * 0.02)

        def forward(self, x):
            return x + self.table[: x.shape[0]]  # DK305

    return {
        "model": Classifier(Positions()),
        "dataloader": _frames_and_classes(),
        "loss_fn": _classified,
        "expect": {"module": "positions", "severity": "error", "message": "`positions.table`"},
    }


class ClassToken(nn.Module):
    """A class token for each sample of the batch, as large as the batches of the loader."""

    def __init__(self, token):
        super().__init__()
        self.token = nn.Parameter(token)

    def forward(self, x):
        return torch.cat([self.token, x], 1)  # DK305


def class_token_with_a_row_per_sample():
    return {
        "model": Classifier(ClassToken(torch.randn(8, 1, 8))),
        "dataloader": _frames_and_classes(),
        "loss_fn": _classified,
        "expect": {"module": "positions", "severity": "error", "message": "`positions.token` has one row for each"},
    }


def class_token_with_equal_rows_before_training():
    return {
        "model": Classifier(ClassToken(torch.zeros(8, 1, 8))),
        "dataloader": _frames_and_classes(),
        "loss_fn": _classified,
        "expect": {"module": "positions", "severity": "error", "message": "`positions.token` has one row for each"},
    }


def encoding_that_is_used_for_source_and_target():
    """A slice and row numbers, each used for both sequences."""

    class Translates(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.encoding, self.head = nn.Linear(6, 8), Encoding(8), nn.Linear(8, 3)
            self.rows = nn.Embedding(64, 8)
            self.decoder = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)

        def placed(self, x):
            numbers = torch.arange(len(x))  # DK305
            return self.encoding(self.embed(x)) + self.rows(numbers)[:, None]

        def forward(self, source, target):
            return self.head(self.decoder(self.placed(target), self.placed(source)))

    return {
        "model": Translates(),
        "dataloader": _shuffled(8, torch.randn(40, 5, 6), torch.randn(40, 4, 6)),
        "loss_fn": lambda model, batch: model(*batch).square().mean(),
        "expect": {"severity": "error", "message": "depends on its row in the batch"},
    }
