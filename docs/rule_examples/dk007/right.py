import torch
from torch import nn

import debugkit

torch.manual_seed(0)
IMAGE = 49  # the id of the placeholder


class Policy(nn.Module):
    """Image features replace the placeholders in the text."""

    def __init__(self):
        super().__init__()
        self.words, self.patches = nn.Embedding(50, 8), nn.Linear(6, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, input_ids, pixels):
        places = (input_ids == IMAGE)[..., None]
        features = self.patches(pixels).flatten(0, 1)
        hidden = self.words(input_ids).masked_scatter(places, features)
        return {"loss": self.head(hidden).mean()}


input_ids = torch.randint(0, 40, (2, 10))
input_ids[:, :4] = IMAGE  # four patches per image
model = Policy()
batch = {"input_ids": input_ids, "pixels": torch.randn(2, 4, 6)}
report = debugkit.check(model, batch, select="DK007")
print(report)
