"""Models whose result for the text depends on the padding before or after it."""

import torch
from torch import nn

_WIDTH, _VOCABULARY = 16, 32


def _batch(left=False):
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]])
    ids = torch.randint(3, _VOCABULARY, mask.shape) * mask
    return (
        {"input_ids": ids.flip(1), "attention_mask": mask.flip(1)}
        if left
        else {"input_ids": ids, "attention_mask": mask}
    )


class Encoder(nn.Module):
    """Bidirectional attention without a padding mask."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(_VOCABULARY, _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH)
        self.attention = nn.MultiheadAttention(_WIDTH, 2, batch_first=True)
        self.head = nn.Linear(_WIDTH, 3)

    def forward(self, input_ids, attention_mask):
        x = self.norm(self.embedding(input_ids))
        return {"features": self.head(x + self.attention(x, x, x, need_weights=False)[0])}


class MeanOverEverything(nn.Module):
    """Returns only the loss, and pools over all positions, padding included."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(_VOCABULARY, _WIDTH), nn.Linear(_WIDTH, 3)

    def forward(self, input_ids, attention_mask):
        return {"loss": self.head(self.embedding(input_ids).mean(1)).square().mean()}


def attention_without_the_mask():
    return {
        "model": Encoder(),
        "batch": _batch(),
        "loss_fn": lambda model, batch: model(**batch)["features"].square().mean(),
        "expect": {"module": "attention", "severity": "error", "message": "other content in the padding"},
    }


def pooled_over_the_padding():
    return {"model": MeanOverEverything(), "batch": _batch(), "expect": {"module": "", "message": "other content"}}


def positions_counted_from_the_padding():
    """A GPT-2 that is padded on the left and gets no positions counts them from the first column."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=_VOCABULARY, n_positions=32, n_embd=_WIDTH, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2
    )
    batch = _batch(left=True)
    batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return {
        "model": GPT2LMHeadModel(config),
        "batch": batch,
        "expect": {"module": "", "message": "4 more positions of padding"},
    }


def last_position_of_a_row_padded_on_the_right():
    class LastPosition(Encoder):
        def forward(self, input_ids, attention_mask):
            x = self.norm(self.embedding(input_ids))
            hidden = self.attention(x, x, x, key_padding_mask=attention_mask == 0, need_weights=False)[0]
            return {"action": self.head(x + hidden)[:, -1]}

    return {
        "model": LastPosition(),
        "batch": _batch(),
        "loss_fn": lambda model, batch: model(**batch)["action"].square().mean(),
        "expect": {"message": "other content"},
    }


def mask_of_another_name_that_is_not_read():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(_VOCABULARY, _WIDTH), nn.Parameter(torch.randn(6, _WIDTH))
            self.head = nn.Linear(_WIDTH, 3)

        def forward(self, lang_tokens, lang_pad):
            return {"loss": self.head((self.words(lang_tokens) + self.places).mean(1)).square().mean()}

    pad = torch.arange(6)[None] >= torch.tensor([6, 4, 2])[:, None]
    batch = {"lang_tokens": torch.randint(1, _VOCABULARY, (3, 6)).masked_fill(pad, 0), "lang_pad": pad}
    return {"model": Words(), "batch": batch, "expect": {"module": "", "message": "other content"}}


class _Masked(Encoder):
    """Attends where the mask is 1."""

    def forward(self, input_ids, attention_mask):
        x = self.norm(self.embedding(input_ids))
        hidden = self.attention(x, x, x, key_padding_mask=attention_mask == 0, need_weights=False)[0]
        return {"features": self.head(x + hidden.nan_to_num())}


def mask_that_is_one_where_there_is_padding():
    """A row without padding is masked as a whole."""
    batch = _batch()
    batch["attention_mask"] = 1 - batch["attention_mask"]
    return {
        "model": _Masked(),
        "batch": batch,
        "loss_fn": lambda model, batch: model(**batch)["features"].square().mean(),
        "expect": {"severity": "error", "message": "`attention_mask` is 1 for the padding, and 0 for the content"},
    }


def mask_of_ones_over_texts_that_are_padded_to_the_longest():
    batch = _batch()
    batch["attention_mask"] = torch.ones_like(batch["attention_mask"])
    return {
        "model": _Masked(),
        "batch": batch,
        "loss_fn": lambda model, batch: model(**batch)["features"].square().mean(),
        "expect": {"severity": "warning", "message": "`attention_mask` is 1 everywhere, although"},
    }
