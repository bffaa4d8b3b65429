"""Healthy ways to reset gradients."""

import torch
from torch import nn


def _policy(optimizer=torch.optim.AdamW, **options):
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    return model, optimizer(model.parameters(), **options)


def _train(reset, steps=6, micro=1):
    def loop(model, optimizer):
        for _ in range(steps):
            reset(model, optimizer)
            for _ in range(micro):
                model(torch.randn(4, 3)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()

    return loop


def _program(reset, micro=1):
    model, optimizer = _policy()
    return {"model": model, "optimizer": optimizer, "loop": _train(reset, micro=micro)}


def zero_grad_to_none():
    return _program(lambda model, optimizer: optimizer.zero_grad())


def zero_grad_to_zero():
    return _program(lambda model, optimizer: optimizer.zero_grad(set_to_none=False))


def model_zero_grad():
    return _program(lambda model, optimizer: model.zero_grad())


def accumulation():
    return _program(lambda model, optimizer: optimizer.zero_grad(), micro=5)


def accumulation_to_zero():
    return _program(lambda model, optimizer: optimizer.zero_grad(set_to_none=False), micro=5)


def by_hand_to_none():
    def reset(model, optimizer):
        for parameter in model.parameters():
            parameter.grad = None

    return _program(reset)


def by_hand_in_place():
    def reset(model, optimizer):
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()

    return _program(reset)


def gan():
    """The generator's backward leaves gradients in the discriminator; they are reset before its own backward."""
    model = nn.ModuleDict({"generator": nn.Linear(2, 3), "discriminator": nn.Linear(3, 1)})
    generator = torch.optim.Adam(model["generator"].parameters(), lr=0.01)
    discriminator = torch.optim.Adam(model["discriminator"].parameters(), lr=0.01)

    def loop(model, optimizers):
        for _ in range(10):
            real, noise = torch.randn(4, 3), torch.randn(4, 2)
            fake = model["generator"](noise)
            discriminator.zero_grad()
            (model["discriminator"](fake.detach()).mean() - model["discriminator"](real).mean()).backward()
            discriminator.step()
            generator.zero_grad()
            (-model["discriminator"](fake).mean()).backward()
            generator.step()

    return {"model": model, "optimizer": [generator, discriminator], "loop": loop}


def two_optimizers_over_one_model():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.AdamW(model[2].parameters())

    def loop(model, optimizers):
        for _ in range(6):
            model.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            first.step()
            second.step()

    return {"model": model, "optimizer": [first, second], "loop": loop}


def closure_of_lbfgs():
    model, optimizer = _policy(torch.optim.LBFGS, max_iter=4)

    def loop(model, optimizer):
        batch = torch.randn(8, 3)

        def closure():
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            return loss

        for _ in range(5):
            optimizer.step(closure)

    return {"model": model, "optimizer": optimizer, "loop": loop}


def steps_without_a_backward():
    """Steps that use the same gradients again are the fault of another rule."""
    model, optimizer = _policy(torch.optim.SGD, lr=0.0)

    def loop(model, optimizer):
        model(torch.randn(4, 3)).square().mean().backward()
        for _ in range(6):
            optimizer.step()

    expect = {"not_examined": "No `backward()` has added a gradient"}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def forgotten_twice_only():
    model, optimizer = _policy()

    def loop(model, optimizer):
        for step in range(6):
            if step not in (2, 4):
                optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


_ASSIGNED = {"not_examined": "No `backward()` has added a gradient to a parameter between two steps"}


def gradients_of_autograd_grad_that_are_assigned():
    """Nothing is added to `.grad`: each step replaces the gradients of the one before."""

    def loop(model, optimizer):
        for _ in range(6):
            loss = model(torch.randn(5, 3)).square().mean()
            for parameter, gradient in zip(
                model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
            ):
                parameter.grad = gradient
            optimizer.step()

    model = nn.Linear(3, 2)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loop": loop, "expect": _ASSIGNED}


def projected_gradients_of_two_losses_written_into_one_buffer():
    """Gradient surgery: torch.autograd.grad for each task, then views of one flat vector."""
    model = nn.Linear(3, 2)
    flat = torch.zeros(8)

    def loop(model, optimizer):
        parameters = list(model.parameters())
        for _ in range(8):
            found = []
            for column in (0, 1):
                loss = (model(torch.randn(5, 3))[:, column] - 1).square().mean()
                found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
            torch.add(found[0], found[1], out=flat)
            for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
                parameter.grad = part.view_as(parameter)
            optimizer.step()

    return {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters(), lr=0.01),
        "loop": loop,
        "expect": _ASSIGNED,
    }
