"""Loops with unusual but healthy orders of events."""

import torch
from torch import nn


def _policy(optimizer=torch.optim.AdamW, **options):
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    return model, optimizer(model.parameters(), **options)


def plain():
    model, optimizer = _policy()

    def loop(model, optimizer):
        for _ in range(8):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def long_accumulation():
    model, optimizer = _policy()

    def loop(model, optimizer):
        for micro in range(60):
            (model(torch.randn(4, 3)).square().mean() / 20).backward()
            if micro % 20 == 19:
                optimizer.step()
                optimizer.zero_grad()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def reset_right_after_the_step():
    model, optimizer = _policy()

    def loop(model, optimizer):
        for _ in range(8):
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def gan_with_five_critic_steps():
    """The critic's gradients are reset between the generator's backward and its own; the generator steps rarely."""
    model = nn.ModuleDict({"generator": nn.Linear(2, 3), "critic": nn.Linear(3, 1)})
    generator = torch.optim.Adam(model["generator"].parameters(), lr=0.01)
    critic = torch.optim.Adam(model["critic"].parameters(), lr=0.01)

    def loop(model, optimizers):
        for step in range(30):
            real, noise = torch.randn(4, 3), torch.randn(4, 2)
            critic.zero_grad()
            fake = model["generator"](noise)
            (model["critic"](fake.detach()).mean() - model["critic"](real).mean()).backward()
            critic.step()
            if step % 5 == 4:
                generator.zero_grad()
                (-model["critic"](model["generator"](noise)).mean()).backward()
                generator.step()

    return {"model": model, "optimizer": [generator, critic], "loop": loop}


class _SharpnessAware(torch.optim.Optimizer):
    """As in SAM: the step is made by an inner optimizer, and the wrapper's own step() is never called."""

    def __init__(self, parameters, base, rho=0.05):
        super().__init__(parameters, {"rho": rho})
        self.base = base(self.param_groups, lr=0.01)

    @torch.no_grad()
    def climb(self):
        self.climbed = [0.05 * p.grad.sign() for p in self.param_groups[0]["params"]]
        torch._foreach_add_(self.param_groups[0]["params"], self.climbed)
        self.zero_grad()

    @torch.no_grad()
    def descend(self):
        torch._foreach_sub_(self.param_groups[0]["params"], self.climbed)
        self.base.step()
        self.zero_grad()


def sharpness_aware():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = _SharpnessAware(model.parameters(), torch.optim.SGD)

    def loop(model, optimizer):
        for _ in range(8):
            batch = torch.randn(4, 3)
            model(batch).square().mean().backward()
            optimizer.climb()
            model(batch).square().mean().backward()
            optimizer.descend()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def evolution_strategy():
    """Gradients are estimated without backward() and written by hand."""
    model, optimizer = _policy(torch.optim.SGD, lr=0.01)

    @torch.no_grad()
    def loop(model, optimizer):
        for _ in range(8):
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def functional_gradients():
    model, optimizer = _policy(torch.optim.SGD, lr=0.01)

    def loop(model, optimizer):
        for _ in range(8):
            loss = model(torch.randn(4, 3)).square().mean()
            for parameter, gradient in zip(
                model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
            ):
                parameter.grad = gradient
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


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


def experts_that_are_rarely_routed():
    """The first expert's gradients are None for many steps."""
    model = nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 8)])
    optimizer = torch.optim.AdamW(model.parameters())

    def loop(model, optimizer):
        for _ in range(8):
            optimizer.zero_grad()
            model[1](torch.randn(4, 3)).square().mean().backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def mixed_precision_that_skips():
    model, optimizer = _policy()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60, backoff_factor=2.0**-2)

    def loop(model, optimizer):
        for _ in range(12):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(torch.randn(4, 3)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def generator_that_has_its_turn_after_the_run():
    """Five steps of the critic for each of the generator, whose gradients are reset only at its own turn."""
    model = nn.ModuleDict({"generator": nn.Linear(3, 2), "critic": nn.Linear(2, 1)})
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model.values()]

    def loop(model, optimizers):
        for _ in range(12):
            optimizers[1].zero_grad()
            model["critic"](model["generator"](torch.randn(4, 3))).square().mean().backward()
            optimizers[1].step()

    return {"model": model, "optimizer": optimizers, "loop": loop}


def three_steps_only():
    model = nn.Linear(3, 2)

    def loop(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {
        "model": model,
        "optimizer": optimizer,
        "loop": loop,
        "expect": {"not_examined": "3 of 8 calls of `backward()`"},
    }


class _ResetsItsGradients(torch.optim.Optimizer):
    """Takes two gradients in its own step, uses them by a base optimizer, and resets them last."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.05})
        self.base = torch.optim.SGD(self.param_groups, lr=0.05)

    @torch.no_grad()
    def step(self, closure):
        with torch.enable_grad():
            loss = closure()
        parameters = [p for group in self.param_groups for p in group["params"]]
        moves = [0.05 * p.grad for p in parameters]
        for parameter, move in zip(parameters, moves, strict=True):
            parameter.add_(move)
        self.zero_grad()
        with torch.enable_grad():
            closure()
        for parameter, move in zip(parameters, moves, strict=True):
            parameter.sub_(move)
        self.base.step()
        self.zero_grad()
        return loss


def optimizer_that_resets_inside_of_its_step():
    model = nn.Linear(3, 2)

    def loop(model, optimizer):
        for _ in range(12):
            inputs = torch.randn(4, 3)

            def closure(inputs=inputs):
                loss = model(inputs).square().mean()
                loss.backward()
                return loss

            optimizer.step(closure)

    return {"model": model, "optimizer": _ResetsItsGradients(model.parameters()), "loop": loop}
