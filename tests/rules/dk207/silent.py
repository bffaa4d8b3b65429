"""Healthy runs whose losses rise, change sign, start at zero, or are bad for one step."""

import torch
from torch import nn


def _policy():
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))


def _program(loss_of, model=None, steps=24, lr=1e-3):
    model = model or _policy()

    def loop(model, optimizer):
        for step in range(steps):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            if torch.isfinite(loss):
                optimizer.step()

    return {"model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=lr), "loop": loop}


def a_falling_loss():
    return _program(lambda model, _: (model(torch.randn(16, 3)) - 1).square().mean())


def one_terrible_batch():
    return _program(lambda model, step: (model(torch.randn(16, 3)) - (1e3 if step in (9, 10) else 1.0)).square().mean())


def a_batch_that_the_loop_skips():
    return _program(
        lambda model, step: (model(torch.randn(16, 3)) * (float("nan") if step in (8, 9, 10, 11) else 1.0)).mean().abs()
    )


def critic_of_a_wasserstein_gan():
    """It starts near 0 and may take any value, also below 0."""

    def loss_of(model, step):
        return (model(torch.randn(16, 3)) - model(torch.randn(16, 3) + 10.0)).mean() * step

    return _program(loss_of, lr=1e-2)


def policy_gradient():
    def loss_of(model, _):
        logits = model(torch.randn(16, 3)).log_softmax(-1)
        return -(logits[:, 0] * torch.randn(16) * 100).mean()

    return _program(loss_of)


def student_that_starts_as_its_teacher():
    """Distillation with noise: the loss is exactly 0 at first, then as large as the noise."""
    student, teacher = _policy(), _policy()
    teacher.load_state_dict(student.state_dict())

    def loss_of(model, step):
        state = torch.randn(16, 3)
        noisy = state + 0.3 * (step > 0) * torch.randn(16, 3)
        return (model(noisy) - teacher(state).detach()).square().mean()

    return _program(loss_of, student)


def accumulation_and_two_losses():
    model = _policy()

    def loop(model, optimizer):
        for _ in range(12):
            optimizer.zero_grad()
            for _ in range(3):
                loss = (model(torch.randn(16, 3)) - 1).square().mean() / 3
                loss.backward(retain_graph=True)
                (loss * 100).backward()
            optimizer.step()

    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=1e-5), "loop": loop}


def annealed_weight_of_a_loss():
    """A KL term that is annealed from a hundredth to one: the loss rises tenfold."""
    return _program(lambda model, step: (model(torch.randn(16, 3)) - 1).square().mean() * min(1.0, 0.1 + step / 20))
