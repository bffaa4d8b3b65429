"""Models whose result for a sample depends on how it is computed."""

import torch
from torch import nn


class Config:
    is_encoder_decoder = False


class CachedAverage(nn.Module):
    """Each position is the mean of those so far. With a cache, the new position ignores the number of cached ones."""

    def __init__(self, forgets=True):
        super().__init__()
        self.embedding, self.position, self.head = nn.Embedding(32, 8), nn.Embedding(64, 8), nn.Linear(8, 32)
        self.forgets, self.config = forgets, Config()

    def forward(self, input_ids, past_key_values=None, use_cache=False, labels=None):
        start = 0 if past_key_values is None or self.forgets else past_key_values.shape[1]
        places = torch.arange(start, start + input_ids.shape[1])
        x = self.embedding(input_ids) + self.position(places)
        kept = x if past_key_values is None else torch.cat([past_key_values, x], dim=1)
        means = kept.cumsum(1) / torch.arange(1, kept.shape[1] + 1)[:, None]
        output = {"logits": self.head(means[:, -input_ids.shape[1] :])}
        if use_cache:
            output["past_key_values"] = kept
        if labels is not None:
            output["loss"] = nn.functional.cross_entropy(output["logits"][:, :-1].transpose(1, 2), labels[:, 1:])
        return output


def positions_start_again_with_the_cache():
    ids = torch.randint(0, 32, (2, 6))
    return {
        "model": CachedAverage(),
        "batch": {"input_ids": ids, "labels": ids},
        "expect": {"module": "", "severity": "error", "message": "With a cache"},
    }


def row_alone_reads_another_position():
    """Reads the third position from the right, which can be padding."""

    class FixedPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(32, 8), nn.Linear(8, 3)

        def forward(self, input_ids, attention_mask):
            return {"loss": self.head(self.embedding(input_ids)[:, -3]).square().mean()}

    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    return {
        "model": FixedPlace(),
        "batch": {"input_ids": torch.randint(3, 32, mask.shape) * mask, "attention_mask": mask},
        "expect": {"count": 1, "message": "A row computed without padding differs"},
    }
