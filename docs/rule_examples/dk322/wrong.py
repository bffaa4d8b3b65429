import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    """An action from an image, cut into patches of 8 x 8 pixels."""

    def __init__(self):
        super().__init__()
        self.patch_embedding = nn.Linear(3 * 8 * 8, 32)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = nn.Linear(32, 7)

    def forward(self, image):
        windows = image.unfold(2, 8, 8).unfold(3, 8, 8)  # (B, 3, rows, columns, 8, 8)
        rows = windows.reshape(len(image), -1, 3 * 8 * 8)
        return self.head(self.encoder(self.patch_embedding(rows)).mean(dim=1))


def loss_fn(model, batch):
    return F.mse_loss(model(batch["image"]), batch["action"])


batch = {"image": torch.randn(4, 3, 32, 32), "action": torch.randn(4, 7)}
print(debugkit.check(Policy(), batch, loss_fn, select="DK322"))
