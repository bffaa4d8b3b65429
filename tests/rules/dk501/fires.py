"""Loops that forget to reset gradients."""

import torch
from torch import nn


def _policy():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    return model, torch.optim.AdamW(model.parameters())


def no_zero_grad():
    model, optimizer = _policy()

    def loop(model, optimizer):
        for _ in range(6):
            model(torch.randn(4, 3)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()  # DK501

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "AdamW made"}}


def accumulation_without_reset():
    model, optimizer = _policy()

    def loop(model, optimizer):
        for _ in range(5):
            for _ in range(4):
                (model(torch.randn(4, 3)).square().mean() / 4).backward()
            optimizer.step()  # DK501

    return {"model": model, "optimizer": optimizer, "loop": loop}


def one_branch_of_two():
    """Gradients are not reset in the rounds with an auxiliary loss."""
    model, optimizer = _policy()

    def loop(model, optimizer):
        for step in range(9):
            if step % 3 == 0:
                optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()  # DK501

    return {"model": model, "optimizer": optimizer, "loop": loop}


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator, self.discriminator = nn.Linear(2, 3), nn.Linear(3, 1)

    def forward(self, noise):
        return self.discriminator(self.generator(noise))


def discriminator_of_a_gan():
    """Only the discriminator's gradients are not reset, and the finding names its optimizer."""
    model = Pair()
    generator = torch.optim.SGD(model.generator.parameters(), lr=0.01)
    discriminator = torch.optim.Adam(model.discriminator.parameters(), lr=0.01)

    def loop(model, optimizers):
        for _ in range(6):
            real, noise = torch.randn(4, 3), torch.randn(4, 2)
            fake = model.generator(noise).detach()
            (model.discriminator(fake).mean() - model.discriminator(real).mean()).backward()
            discriminator.step()  # DK501
            generator.zero_grad()
            (-model(noise).mean()).backward()
            generator.step()

    return {
        "model": model,
        "optimizer": [generator, discriminator],
        "loop": loop,
        "expect": {"message": "Adam (optimizer 1)"},
    }
