"""Batches in which there is something to learn, even if little."""

import torch
from torch import nn


def _classes(labels):
    return {
        "model": nn.Linear(4, 5),
        "batch": {"x": torch.randn(len(labels), 4), "labels": labels},
        "loss_fn": lambda model, batch: nn.functional.cross_entropy(model(batch["x"]), batch["labels"]),
    }


def small_batch_of_one_class():
    return _classes(torch.ones(4, dtype=torch.long))


def one_sample():
    return _classes(torch.tensor([3]))


def one_row_without_targets():
    ids = torch.randint(3, 60, (3, 8))
    labels = ids.clone()
    labels[1], labels[:, :5] = -100, -100

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(64, 8), nn.Linear(8, 64)

        def forward(self, input_ids, labels):
            logits = self.head(self.embedding(input_ids))
            return {"loss": nn.functional.cross_entropy(logits.transpose(1, 2), labels)}

    return {"model": Model(), "batch": {"input_ids": ids, "labels": labels}}


def gripper_that_never_closes_beside_moving_joints():
    action = torch.randn(8, 3)
    action[:, 2] = -1
    return {
        "model": nn.Linear(4, 3),
        "batch": {"x": torch.randn(8, 4), "action": action},
        "loss_fn": lambda model, batch: (model(batch["x"]) - batch["action"]).abs().mean(),
    }


def no_targets_known_by_name():
    return {
        "model": nn.Linear(4, 3),
        "batch": torch.randn(8, 4),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"not_examined": "neither labels nor a target action"},
    }


class _Rows(torch.utils.data.Dataset):
    def __init__(self, labels):
        self.x, self.labels = torch.randn(len(labels), 4), labels

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.labels[index]}


def _loaded(labels, loss_fn=None, shuffle=True, model=None):
    return {
        "model": model or nn.Linear(4, 5),
        "dataloader": torch.utils.data.DataLoader(_Rows(labels), batch_size=4, shuffle=shuffle),
        "loss_fn": loss_fn or (lambda model, batch: nn.functional.cross_entropy(model(batch["x"]), batch["labels"])),
    }


def rare_class_that_the_first_batches_do_not_have():
    labels = torch.zeros(200, dtype=torch.long)
    labels[-1] = 1
    return _loaded(labels)


def long_data_in_the_order_of_its_classes():
    """DK318 is about the order; what comes behind the first 512 samples is not known here."""
    return _loaded((torch.arange(1200) >= 600).long(), shuffle=False)


def reconstruction_of_one_class():
    """The loss does not read the label, which says that all samples are normal."""
    model = nn.Linear(4, 4)
    loss = lambda model, batch: (model(batch["x"]) - batch["x"]).square().mean()  # noqa: E731
    return _loaded(torch.zeros(40, dtype=torch.long), loss, model=model)


def generator_of_one_class_that_reads_the_label():
    class Conditional(nn.Module):
        def __init__(self):
            super().__init__()
            self.classes, self.body = nn.Embedding(5, 4), nn.Linear(4, 4)

        def forward(self, x, labels):
            return self.body(x + self.classes(labels))

    loss = lambda model, batch: (model(0 * batch["x"], batch["labels"]) - batch["x"]).square().mean()  # noqa: E731
    return _loaded(torch.full((40,), 2), loss, model=Conditional())


def residual_that_should_be_zero_everywhere():
    loss = lambda model, batch: (model(batch["x"]).sum(1) - batch["labels"]).square().mean()  # noqa: E731
    return _loaded(torch.zeros(40), loss) | {"expect": {"not_examined": "neither labels nor a target action"}}


class _Pairs(torch.utils.data.Dataset):
    def __init__(self, labels):
        self.x, self.labels = torch.randn(len(labels), 4), labels

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.labels[index]


def _of_pairs(labels, loss_fn):
    loader = torch.utils.data.DataLoader(_Pairs(labels), batch_size=8, shuffle=True)
    none = {"not_examined": "neither labels nor a target action"}
    return {"model": nn.Linear(4, 1), "dataloader": loader, "loss_fn": loss_fn, "expect": none}


def rare_positives_of_a_binary_loss():
    labels = torch.zeros(200, 1)
    labels[-1] = 1
    loss = lambda model, batch: nn.functional.binary_cross_entropy_with_logits(model(batch[0]), batch[1])  # noqa: E731
    return _of_pairs(labels, loss)


def links_that_exist_beside_sampled_ones_that_do_not():
    """All links of the data exist; the loss draws others."""

    def loss(model, batch):
        binary = nn.functional.binary_cross_entropy_with_logits
        others = model(torch.randn(16, 4))
        return binary(model(batch[0]), batch[1]) + binary(others, torch.zeros_like(others))

    return _of_pairs(torch.ones(64, 1), loss)


def pairs_whose_residual_should_be_zero():
    return _of_pairs(torch.zeros(64, 1), lambda model, batch: (model(batch[0]) - batch[1]).square().mean())
