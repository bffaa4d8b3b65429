import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Config:
    is_encoder_decoder = False


class CachedAverage(nn.Module):
    """Each position is the mean of those so far."""

    def __init__(self):
        super().__init__()
        self.embedding, self.position = nn.Embedding(32, 8), nn.Embedding(64, 8)
        self.head, self.config = nn.Linear(8, 32), Config()

    def forward(self, input_ids, past_key_values=None, use_cache=False, labels=None):
        start = 0
        places = torch.arange(start, start + input_ids.shape[1])
        x = self.embedding(input_ids) + self.position(places)
        kept = x if past_key_values is None else torch.cat([past_key_values, x], dim=1)
        means = kept.cumsum(1) / torch.arange(1, kept.shape[1] + 1)[:, None]
        output = {"logits": self.head(means[:, -input_ids.shape[1] :])}
        if use_cache:
            output["past_key_values"] = kept
        if labels is not None:
            output["loss"] = nn.functional.cross_entropy(
                output["logits"][:, :-1].transpose(1, 2), labels[:, 1:]
            )
        return output


ids = torch.randint(0, 32, (2, 6))
model = CachedAverage()
batch = {"input_ids": ids, "labels": ids}
report = debugkit.check(model, batch, select="DK315")
print(report)
