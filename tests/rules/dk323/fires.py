"""Losses that never ask for the token that ends every text."""

import torch
from torch import nn
from torch.nn import functional as F

PAD = END = 1
START = 2


class Writer(nn.Module):
    """Next-token logits (B, T, V); the recurrent network only sees what is before."""

    def __init__(self, tokens=20):
        super().__init__()
        self.words = nn.Embedding(tokens, 16)
        self.mix = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, tokens)

    def forward(self, ids):
        return self.head(self.mix(self.words(ids))[0])


def _texts(lengths=(5, 7, 4, 9, 6, 8), end=(END,), pad=PAD, width=0):
    """Texts of these lengths between `START` and `end`, filled up with `pad`; and the mask of their lengths."""
    rows = [[START, *torch.randint(3, 20, (length,)).tolist(), *end] for length in lengths]
    width = max(width, *map(len, rows))
    ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return ids, mask


def _program(loss_fn, batch, model=None, **expect):
    expect = {"severity": "warning", "message": "token 1 behind their last target", **expect}
    return {"model": model or Writer(), "batch": batch, "loss_fn": loss_fn, "expect": expect}


def mask_of_what_is_not_padding():
    ids, _ = _texts()

    def loss_fn(model, batch):
        labels = batch["ids"].masked_fill(batch["ids"] == PAD, -100)
        return F.cross_entropy(model(batch["ids"])[:, :-1].transpose(1, 2), labels[:, 1:])  # DK323

    return _program(loss_fn, {"ids": ids, "mask": (ids != PAD).long()}, message="All 6 rows of `ids`")


def padding_ignored_by_its_number():
    ids, mask = _texts(width=16)

    def loss_fn(model, batch):
        logits = model(batch["ids"])[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), batch["ids"][:, 1:].flatten(), ignore_index=PAD)  # DK323

    return _program(loss_fn, {"ids": ids, "attention_mask": mask})


def labels_of_the_collator():
    """As DataCollatorForLanguageModeling makes them: labels that are the padding token become -100."""
    ids, mask = _texts(width=16)

    def loss_fn(model, batch):
        labels = F.pad(batch["labels"], (0, 1), value=-100)[:, 1:]
        return F.cross_entropy(model(batch["input_ids"]).flatten(0, 1), labels.flatten())  # DK323

    labels = ids.masked_fill(ids == PAD, -100)
    return _program(loss_fn, {"input_ids": ids, "attention_mask": mask, "labels": labels})


def terms_masked_afterwards():
    ids, _ = _texts()

    def loss_fn(model, batch):
        logits = model(batch["ids"])[:, :-1]
        each = F.cross_entropy(logits.transpose(1, 2), batch["ids"][:, 1:], reduction="none")  # DK323
        counts = batch["ids"][:, 1:] != PAD
        return (each * counts).sum() / counts.sum()

    return _program(loss_fn, {"ids": ids})


def log_probabilities_with_a_weight_for_each_class():
    ids, _ = _texts()
    weight = torch.ones(20)
    weight[PAD] = 0

    def loss_fn(model, batch):
        scores = model(batch["ids"])[:, :-1].log_softmax(-1)
        return F.nll_loss(scores.flatten(0, 1), batch["ids"][:, 1:].flatten(), weight)  # DK323

    return _program(loss_fn, {"ids": ids})


def padded_on_the_left():
    ids, mask = _texts()
    ids = torch.stack([row.roll(int((kept == 0).sum())) for row, kept in zip(ids, mask, strict=True)])

    def loss_fn(model, batch):
        labels = batch["ids"].masked_fill(batch["ids"] == PAD, -100)
        return F.cross_entropy(model(batch["ids"])[:, :-1].transpose(1, 2), labels[:, 1:])  # DK323

    return _program(loss_fn, {"ids": ids, "attention_mask": mask.flip(1)})


def behind_patches():
    """The logits include those of a prefix, whose targets are ignored."""
    ids, mask = _texts()

    class WithPrefix(Writer):
        def forward(self, ids):
            prefix = torch.zeros(len(ids), 4, 16)
            return self.head(self.mix(torch.cat([prefix, self.words(ids)], dim=1))[0])

    def loss_fn(model, batch):
        labels = batch["ids"].masked_fill(batch["ids"] == PAD, -100)
        labels = F.pad(labels, (4, 0), value=-100)
        return F.cross_entropy(model(batch["ids"])[:, :-1].transpose(1, 2), labels[:, 1:])  # DK323

    return _program(loss_fn, {"ids": ids, "attention_mask": mask}, model=WithPrefix())
