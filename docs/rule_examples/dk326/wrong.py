import torch
from torch import nn

import debugkit


class Instruction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16, padding_idx=0)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        content = ids != 0
        x = self.layer(self.embed(ids), src_key_padding_mask=content)
        return self.head((x * content[..., None]).sum(1) / content.sum(1, keepdim=True))


def loss_fn(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return (model(batch["ids"]) - batch["action"]).square().mean()


torch.manual_seed(0)
ids = torch.randint(1, 20, (4, 8))
for row, length in enumerate((7, 4, 6, 3)):
    ids[row, length:] = 0
batch = {"ids": ids, "action": torch.randn(4, 3)}
print(debugkit.check(Instruction(), batch, loss_fn, select="DK326"))
