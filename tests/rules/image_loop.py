"""A loop over images that a data set rearranges, for the fixtures of several files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def loop_over_images(
    view: Callable[[Tensor], Tensor], sizes: tuple[int, ...] = (12, 10, 3), channels: int = 3, ahead: int = 1
) -> dict[str, Any]:
    """Images are read in the loop, `ahead` batches before the step that uses them."""
    first: nn.Module = nn.Conv2d(channels, 8, 3) if channels else nn.Linear(3, 8)
    model = nn.Sequential(first, nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    images = torch.rand(16, *sizes)

    class Images(torch.utils.data.Dataset[Tensor]):
        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, index: int) -> Tensor:
            image = view(images[index]) * 2 - 1
            return image.flip(-1) if index % 2 and channels else image

    model(torch.stack([view(image) for image in images[:2]]))

    def loop(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        waiting: list[Tensor] = []
        for _ in range(2):
            for batch in torch.utils.data.DataLoader(Images(), batch_size=4, shuffle=True):
                waiting.append(batch)
                if len(waiting) > ahead:
                    optimizer.zero_grad()
                    model(waiting.pop(0)).square().mean().backward()
                    optimizer.step()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return {"model": model, "optimizer": optimizer, "loop": loop}
