"""Attention masks that hide the padding, or something else."""

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


def _program(model, ids=None, **more):
    ids = _ids() if ids is None else ids
    return {"model": model, "batch": {"ids": ids, "label": torch.arange(len(ids)) % 2}, "loss_fn": _loss, **more}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 2)

    def forward(self, ids):
        x = self.layers(self.embed(ids), src_key_padding_mask=ids == PAD)
        return self.head(x.mean(1))


def mask_of_a_transformer_encoder():
    return _program(Encoder())


def padding_on_the_left():
    return _program(Encoder(), _ids(left=True))


def mask_of_scaled_dot_product_attention():
    class Correct(Encoder):
        def forward(self, ids):
            x = self.embed(ids)[:, None]
            return self.head(F.scaled_dot_product_attention(x, x, x, (ids != PAD)[:, None, None])[:, 0].mean(1))

    return _program(Correct())


def attention_mask_of_a_bert():
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    ids = _ids((8, 4, 6, 7))
    batch = {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": torch.arange(4) % 2}
    return {"model": BertForSequenceClassification(config), "batch": batch}


def values_of_the_padding_filled_for_a_maximum():
    """The mask is True for the padding, and the scores are those of a pooling."""

    class Pooled(Encoder):
        def forward(self, ids):
            scores = self.embed(ids).sum(-1).masked_fill(ids == PAD, -1e9)
            return self.head((scores.softmax(-1)[..., None] * self.embed(ids)).sum(1))

    return _program(Pooled())


def the_last_token_of_texts_that_end_in_zero():
    """Attention of a pointer that may see the special token at the end only: each text ends in one, of equal length."""

    class Pointer(Encoder):
        def forward(self, ids):
            x = self.embed(ids)[:, None]
            return self.head(F.scaled_dot_product_attention(x, x, x, (ids == PAD)[:, None, None])[:, 0].mean(1))

    ids = torch.cat([_ids((8, 8, 8, 8)), torch.zeros(4, 1, dtype=torch.long)], 1)
    return _program(Pointer(), ids, expect={"not_examined": "No attention received a mask"})


def no_padding_at_all():
    return _program(Encoder(), _ids((6, 6, 6)), expect={"not_examined": "No attention received a mask"})


def mask_of_a_text_between_images_and_a_state():
    class Multimodal(Encoder):
        def forward(self, ids):
            text = self.embed(ids)
            image, state = (text.new_ones(len(ids), count, 16) for count in (4, 1))
            ignored = ids == PAD
            mask = torch.cat([ignored.new_zeros(len(ids), 4), ignored, ignored.new_zeros(len(ids), 1)], 1)
            return self.head(self.layers(torch.cat([image, text, state], 1), src_key_padding_mask=mask).mean(1))

    return _program(Multimodal())
