"""Language models that use later tokens."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, batch_first=True)
        self.mask = mask

    def forward(self, x):
        y = self.norm(x)
        return x + self.attention(y, y, y, attn_mask=self.mask(x.shape[1]), need_weights=False)[0]


class Decoder(nn.Module):
    """Shifts its labels as Hugging Face's models do, unless that is switched off."""

    def __init__(self, mask, shifts=True):
        super().__init__()
        self.embedding, self.block, self.head = nn.Embedding(32, 16), Block(mask), nn.Linear(16, 32)
        self.shifts = shifts

    def forward(self, input_ids, labels):
        logits = self.head(self.block(self.embedding(input_ids)))
        ahead, targets = (logits[:, :-1], labels[:, 1:]) if self.shifts else (logits, labels)
        return {"loss": F.cross_entropy(ahead.transpose(1, 2), targets), "logits": logits}


def _off_by_one(length):
    return torch.ones(length, length, dtype=torch.bool).triu(2)  # should be triu(1)


def no_causal_mask():
    ids = torch.randint(0, 32, (3, 8))
    return {
        "model": Decoder(lambda _: None),
        "batch": {"input_ids": ids, "labels": ids.clone()},
        "expect": {"module": "block.attention", "severity": "error"},
    }


def mask_off_by_one_with_labels_shifted_in_the_data():
    text = torch.randint(0, 32, (3, 9))
    return {
        "model": Decoder(_off_by_one, shifts=False),
        "batch": {"input_ids": text[:, :-1], "labels": text[:, 1:].clone()},
        "expect": {"module": "block.attention"},
    }


def only_the_answer_is_learnt():
    ids = torch.randint(0, 32, (3, 8))
    labels = ids.clone()
    labels[:, :4] = -100
    return {"model": Decoder(_off_by_one), "batch": {"input_ids": ids, "labels": labels}}


def convolution_that_pads_on_both_sides():
    class Convolution(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(32, 16), nn.Linear(16, 32)
            self.mix = nn.Conv1d(16, 16, 3, padding=1)

        def forward(self, input_ids, labels):
            logits = self.head(self.mix(self.embedding(input_ids).transpose(1, 2)).transpose(1, 2))
            return {"loss": F.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:]), "logits": logits}

    ids = torch.randint(0, 32, (2, 8))
    # The convolution's own output is (B, D, L), so the first module that can be compared is the head behind it.
    return {
        "model": Convolution(),
        "batch": {"input_ids": ids, "labels": ids.clone()},
        "expect": {"module": "head", "severity": "error"},
    }
