"""Losses in which the end counts, and texts that have none."""

import torch
from torch import nn
from torch.nn import functional as F

PAD, END, START = 0, 1, 2
NO_TARGETS = "No cross-entropy was seen whose targets are the next tokens of the batch."


class Writer(nn.Module):
    """Next-token logits (B, T, V); the recurrent network only sees what is before."""

    def __init__(self, tokens=20, **changes):
        super().__init__()
        self.words = nn.Embedding(tokens, 16, **changes)
        self.mix = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, tokens)

    def forward(self, ids):
        return self.head(self.mix(self.words(ids))[0])


def _texts(lengths=(5, 7, 4, 9, 6, 8), end=(END,), pad=PAD, width=0, prompts=None):
    rows = [[START, *torch.randint(3, 20, (length,)).tolist(), *end] for length in lengths]
    if prompts:
        rows = [torch.randint(3, 20, (size,)).tolist() + row for size, row in zip(prompts, rows, strict=True)]
    width = max(width, *map(len, rows))
    ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return ids, mask


def _program(ids, mask, labels, model=None, shift=True, **expect):
    batch = {"ids": ids, "labels": labels} | ({} if mask is None else {"attention_mask": mask})

    def loss_fn(model, batch):
        logits, labels = model(batch["ids"]), batch["labels"]
        if shift:
            logits, labels = logits[:, :-1], labels[:, 1:]
        return F.cross_entropy(logits.transpose(1, 2), labels)

    return {"model": model or Writer(), "batch": batch, "loss_fn": loss_fn, "expect": expect}


def _ignored(ids, mask):
    return ids.masked_fill(mask == 0, -100)


def the_end_counts():
    ids, mask = _texts()
    return _program(ids, mask, _ignored(ids, mask))


def the_end_counts_and_pads():
    ids, mask = _texts(pad=END)
    return _program(ids, mask, _ignored(ids, mask))


def the_padding_counts_too():
    ids, mask = _texts(pad=END)
    return _program(ids, mask, ids)


def the_end_counts_in_one_row():
    ids, mask = _texts(pad=END)
    labels = ids.masked_fill(ids == END, -100)
    labels[0, int(mask[0].sum()) - 1] = END
    return _program(ids, mask, labels)


def prompts_without_targets():
    ids, mask = _texts(prompts=(4, 2, 3, 5, 1, 6))
    labels = _ignored(ids, mask)
    for row, size in zip(labels, (4, 2, 3, 5, 1, 6), strict=True):
        row[: size + 1] = -100
    return _program(ids, mask, labels)


def texts_without_an_end_padded_to_the_longest():
    """As the tokenizer of GPT-2 makes them, with the end as padding."""
    ids, mask = _texts(end=(), pad=END)
    return _program(ids, mask, _ignored(ids, mask))


def texts_without_an_end_padded_to_a_limit():
    ids, mask = _texts(end=(), pad=END, width=24)
    return _program(ids, mask, _ignored(ids, mask))


def texts_without_an_end_padded_to_a_multiple():
    """The longest has one padding by chance."""
    ids, mask = _texts((5, 7, 4, 14, 6, 8), end=(), width=16)
    return _program(ids, None, _ignored(ids, mask))


def texts_without_an_end_in_rows_of_one_length():
    """The longest is one shorter by chance; the padding is token 0, as usual."""
    ids, mask = _texts(end=(), width=11)
    return _program(ids, None, _ignored(ids, mask))


def padding_named_by_the_embedding():
    ids, mask = _texts(end=(), width=11, pad=3)
    return _program(ids, None, _ignored(ids, mask), model=Writer(padding_idx=3))


def turns_that_end_before_a_line_break():
    ids, mask = _texts(end=(END, 3), prompts=(4, 2, 3, 5, 1, 6))
    ids[ids == 3] = 4
    labels = _ignored(ids, mask)
    for row, kept in zip(ids, mask, strict=True):
        row[int(kept.sum()) - 1] = 3
    for row, kept in zip(labels, mask, strict=True):
        row[int(kept.sum()) - 1] = -100
    return _program(ids, mask, labels)


def action_chunks_of_one_length():
    """Prompts of any length, then four action tokens; the end is not learnt, because four are always read."""
    ids, mask = _texts((4,) * 6, prompts=(4, 2, 3, 5, 1, 6))
    place = torch.arange(ids.shape[1])
    last = mask.sum(1, keepdim=True) - 1
    labels = ids.masked_fill((place >= last) | (place < last - 4), -100)
    return _program(ids, mask, labels)


def one_word_as_the_answer():
    ids, mask = _texts()
    place, last = torch.arange(ids.shape[1]), mask.sum(1, keepdim=True) - 1
    return _program(ids, mask, ids.masked_fill(place != last - 1, -100))


def packed_rows():
    ids = torch.randint(3, 20, (6, 24))
    ids[:, ::7] = END
    return _program(ids, None, ids)


def truncated():
    ids, mask = _texts(pad=END)
    return _program(ids[:, :8], mask[:, :8], ids.masked_fill(ids == END, -100)[:, :8])


def two_rows():
    ids, mask = _texts((5, 7), pad=END)
    return _program(ids, mask, ids.masked_fill(ids == END, -100))


def masked_tokens():
    whole, mask = _texts()
    chosen = (torch.rand(whole.shape) < 0.4) & (mask == 1) & (whole != END)
    ids = whole.masked_fill(chosen, 3)
    return _program(ids, mask, whole.masked_fill(~chosen, -100), shift=False, not_examined=NO_TARGETS)


def tokens_that_are_reconstructed():
    ids, _ = _texts(pad=END)
    return _program(ids, None, ids.masked_fill(ids == END, -100), shift=False, not_examined=NO_TARGETS)


def inputs_without_the_end():
    """Inputs and targets are the same text, one place apart."""
    ids, mask = _texts()
    ids, labels = ids[:, :-1], _ignored(ids, mask)[:, 1:]
    return _program(ids, mask[:, :-1], labels, shift=False, not_examined=NO_TARGETS)


def classes_of_texts():
    class Classes(Writer):
        def forward(self, ids):
            return super().forward(ids)[:, -1]

    ids, _ = _texts()
    batch = {"ids": ids, "labels": torch.tensor([3, 4, 5, 6, 7, 8])}

    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["ids"]), batch["labels"])

    return {"model": Classes(), "batch": batch, "loss_fn": loss_fn, "expect": {"not_examined": NO_TARGETS}}


def encoder_and_decoder():
    class Both(Writer):
        def forward(self, ids, written):
            _, state = self.mix(self.words(ids))
            return self.head(self.mix(self.words(written), state)[0])

    ids, mask = _texts()
    target, kept = _texts((3, 4, 6, 2, 5, 7))
    batch = {"input_ids": ids, "attention_mask": mask, "labels": _ignored(target, kept)}

    def loss_fn(model, batch):
        labels = batch["labels"]
        written = F.pad(labels, (1, -1), value=START).clamp(min=0)
        return F.cross_entropy(model(batch["input_ids"], written).transpose(1, 2), labels)

    return {"model": Both(), "batch": batch, "loss_fn": loss_fn, "expect": {"not_examined": NO_TARGETS}}


def a_metric_without_the_end():
    """The loss counts it, and a perplexity that is only printed does not."""
    ids, mask = _texts(pad=END)
    printed = []

    def loss_fn(model, batch):
        logits, targets = model(batch["ids"])[:, :-1].transpose(1, 2), batch["ids"][:, 1:]
        printed.append(F.cross_entropy(logits, targets, ignore_index=END).exp())
        return F.cross_entropy(logits, targets.masked_fill(batch["attention_mask"][:, 1:] == 0, -100))

    return {"model": Writer(), "batch": {"ids": ids, "attention_mask": mask}, "loss_fn": loss_fn}
