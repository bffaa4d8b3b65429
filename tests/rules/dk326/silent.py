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


class _Attention(nn.Module):
    def __init__(self, weights, merge=None, width=16, heads=4):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.LazyLinear(width)
        self.mix = nn.Conv2d(heads, 1, 1)
        self.heads, self.weights, self.merge = heads, weights, merge

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = self.weights(q @ k.transpose(-2, -1) / 2) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, d) if self.merge is None else self.merge(self, y)).mean(1)


def _attending(model):
    batch = torch.randn(3, 5, 16)
    model(batch)
    expect = {"not_examined": "No attention received a mask"}  # only the softmax was examined
    loss_fn = lambda model, batch: model(batch).square().mean()  # noqa: E731
    return {"model": model, "batch": batch, "loss_fn": loss_fn, "expect": expect}


def softmax_over_the_keys():
    return _attending(_Attention(lambda scores: F.dropout(scores.softmax(-1), 0.1)))


def slots_compete_for_the_keys():
    def weights(scores):
        weights = scores.softmax(dim=-2) + 1e-8
        return weights / weights.sum(-1, keepdim=True)

    return _attending(_Attention(weights))


def heads_compete_and_are_scaled_for_each_key():
    def weights(scores):
        weights = scores.softmax(dim=1)
        return weights / weights.sum(-1, keepdim=True)

    return _attending(_Attention(weights))


def heads_that_are_summed_afterwards():
    return _attending(_Attention(lambda scores: scores.softmax(1), lambda _, y: y.sum(1)))


def heads_that_are_summed_after_a_transpose():
    return _attending(_Attention(lambda scores: scores.softmax(1), lambda _, y: (y.transpose(1, 2) * 2).mean(2)))


def heads_that_a_convolution_mixes():
    return _attending(_Attention(lambda scores: scores.softmax(1), lambda m, y: m.mix(y)[:, 0]))


def weights_over_keys_and_heads():
    return _attending(_Attention(lambda scores: scores.softmax(1) * scores.softmax(-1)))


def one_head():
    return _attending(_Attention(lambda scores: scores.softmax(1), heads=1))


def linear_attention():
    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x):
            q, k, v = self.qkv(x).view(3, 5, 3, 4, 4).permute(2, 0, 3, 1, 4)
            context = k.softmax(-2).transpose(-2, -1) @ v
            return self.out((q.softmax(-1) @ context).transpose(1, 2).flatten(2))

    return _attending(Linear())


def mixture_of_experts():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys, self.experts = nn.Parameter(torch.randn(4, 16, 6)), nn.Parameter(torch.randn(4, 6, 16))

        def forward(self, x):  # (E, N, D): each token has a weight for each expert, and one hidden unit of it
            flat = x.flatten(0, 1).expand(4, 15, 16)
            weights = torch.bmm(flat, self.keys).softmax(0)
            return torch.bmm(weights, self.experts).sum(0)

    return _attending(Experts())


def routing_between_capsules():
    class Capsules(nn.Module):
        def forward(self, x):
            votes = x[:, None].expand(3, 4, 5, 16)  # (B, out, in, D)
            logits = votes @ votes.mean(2)[..., None]
            weights = logits.softmax(1)
            return (weights.transpose(2, 3) @ votes)[:, :, 0]

    return _attending(nn.Sequential(nn.Linear(16, 16), Capsules()))
