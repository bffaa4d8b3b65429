"""Runs in the child beside the learner's module."""

from typing import Any

import torch


def gradients(learner: Any, *, seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    head = learner.policy.Head()
    x = torch.randn(6, 4)
    loss = learner.policy.gripper_loss(head(x), x.sum(dim=1, keepdim=True))
    loss.backward()
    return {
        "weight": head.linear.weight.grad,
        "parameters": [name for name, _ in head.named_parameters()],
        "loss": loss,
    }


def fitted(learner: Any, *, seed: int, steps: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    x = torch.randn(32, 4)
    return {"losses": learner.policy.train(x, x.sum(dim=1, keepdim=True), steps)}


def subject(learner: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    model = learner.policy.Head()
    batch = (torch.randn(6, 4), torch.randn(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss_fn(model: Any, batch: Any) -> torch.Tensor:
        return learner.policy.gripper_loss(model(batch[0]), batch[1])

    def loop() -> None:
        for _ in range(2):
            optimizer.zero_grad()
            loss_fn(model, batch).backward()
            optimizer.step()

    return {"model": model, "batch": batch, "loss_fn": loss_fn, "optimizer": optimizer, "loop": loop}


def symptom(learner: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(32, 4)
    print(f"loss after 50 steps: {learner.policy.train(x, x.sum(dim=1, keepdim=True), 50)[-1]:.3f}")  # noqa: T201
