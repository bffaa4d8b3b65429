"""Attention masks that hide the tokens. The line that a finding must name ends in `# DK326`."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification

PAD, VOCABULARY = 0, 20


def _ids(lengths=(9, 4, 6, 9), left=False):
    torch.manual_seed(0)
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in zip(ids, lengths, strict=True):
        row[-length if left else 0 : None if left else length] = torch.randint(1, VOCABULARY, (length,))
    return ids


def _loss(model, batch):
    return F.cross_entropy(model(batch["ids"]), batch["label"])


def _program(model, ids=None, **expect):
    ids = _ids() if ids is None else ids
    batch = {"ids": ids, "label": torch.arange(len(ids)) % 2}
    return {"model": model, "batch": batch, "loss_fn": _loss, "expect": {"severity": "error", **expect}}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 2)


def mask_of_a_transformer_encoder():
    class Inverted(Encoder):
        def forward(self, ids):
            x = self.layers(self.embed(ids), src_key_padding_mask=ids != PAD)  # DK326
            return self.head(x.nan_to_num().mean(1))

    return _program(Inverted(), module="layers.layers.0.self_attn", fix="ignored")


def mask_of_the_other_function():
    """`~mask`, as `nn.MultiheadAttention` wants it."""

    class Inverted(Encoder):
        def forward(self, ids):
            x = self.embed(ids)[:, None]
            x = F.scaled_dot_product_attention(x, x, x, (ids == PAD)[:, None, None])  # DK326
            return self.head(x[:, 0].nan_to_num().mean(1))

    return _program(Inverted(), fix="take part")


def scores_filled_where_there_are_tokens():
    class Inverted(Encoder):
        def forward(self, ids):
            x = self.embed(ids)
            scores = x @ x.transpose(1, 2) / math.sqrt(16)
            scores = scores.masked_fill((ids != PAD)[:, None], -1e9)  # DK326
            return self.head((scores.softmax(-1) @ x).mean(1))

    return _program(Inverted(), ids=_ids(left=True), message="8 padded positions")


def pooled_over_the_padding():
    class Inverted(Encoder):
        def forward(self, ids):
            x = self.embed(ids)
            scores = x.sum(-1).masked_fill(ids != PAD, -1e9)  # DK326
            return self.head((scores.softmax(-1)[..., None] * x).sum(1))

    return _program(Inverted())


def attention_mask_of_a_bert():
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    ids = _ids((8, 4, 6, 7))
    batch = {"input_ids": ids, "attention_mask": (ids == PAD).long(), "labels": torch.arange(4) % 2}
    return {
        "model": BertForSequenceClassification(config),
        "batch": batch,
        "expect": {"severity": "error", "module": "bert.encoder.layer.0.attention.self"},
    }


class Multimodal(Encoder):
    """Some image tokens before the text and the state after it."""

    def forward(self, ids):
        text = self.embed(ids)
        image, state = (text.new_ones(len(ids), count, 16) for count in (4, 1))
        x = self.layers(torch.cat([image, text, state], 1), src_key_padding_mask=self.mask(ids))  # DK326
        return self.head(x.mean(1))

    def mask(self, ids):
        ignored = ids != PAD
        return torch.cat([ignored.new_zeros(len(ids), 4), ignored, ignored.new_zeros(len(ids), 1)], 1)


def mask_of_the_text_between_images_and_a_state():
    return _program(Multimodal(), message="attends to 5 other keys and the padding: its mask hides all 28 tokens")


def padding_that_is_not_the_most_frequent_last_token():
    """Most texts are of full length and end in the same token."""
    ids = _ids((9, 9, 9, 9, 6, 5))
    ids[:4, -1] = 7
    ids[:4, :-1][ids[:4, :-1] == 7] = 8

    class Inverted(Encoder):
        def forward(self, ids):
            x = self.layers(self.embed(ids), src_key_padding_mask=ids != PAD)  # DK326
            return self.head(x.nan_to_num().mean(1))

    return _program(Inverted(), ids)
