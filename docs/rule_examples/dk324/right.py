import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    """A convolution makes tokens of an image, and an encoder relates them."""

    def __init__(self):
        super().__init__()
        self.tokenizer = nn.Conv2d(3, 32, 8, stride=8)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = nn.Linear(32, 7)

    def forward(self, image):
        x = self.tokenizer(image)  # (B, 32, rows, columns)
        tokens = x.flatten(2).transpose(1, 2)
        return self.head(self.encoder(tokens).mean(dim=1))


def loss_fn(model, batch):
    return F.mse_loss(model(batch["image"]), batch["action"])


batch = {"image": torch.randn(4, 3, 64, 48), "action": torch.randn(4, 7)}
print(debugkit.check(Policy(), batch, loss_fn, select="DK324"))
