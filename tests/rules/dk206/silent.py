"""Updates of healthy size, and updates that are small or large for a healthy reason."""

import torch
from torch import nn


def _policy():
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))


def _train(model, optimizer, steps=30, schedule=None, target=None):
    for _ in range(steps):
        optimizer.zero_grad()
        state = torch.randn(16, 8)
        wanted = state[:, :4] if target is None else target(model, state)
        (model(state) - wanted).square().mean().backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()


def _program(model, optimizer, **options):
    return {
        "model": model,
        "optimizer": optimizer,
        "loop": lambda model, optimizer: _train(model, optimizer, **options),
    }


def adam_as_usual():
    model = _policy()
    return _program(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def fine_tuning_with_a_small_rate():
    model = _policy()
    return _program(model, torch.optim.AdamW(model.parameters(), lr=1e-6))


def sgd_as_usual():
    model = _policy()
    return _program(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


def schedule_that_ends_at_zero():
    model = _policy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 20 else 1e-9)
    return _program(model, optimizer, steps=40, schedule=schedule)


def warm_up_from_a_tiny_rate():
    model = _policy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) * 1e-7)
    return _program(model, optimizer, steps=40, schedule=schedule)


def nothing_left_to_learn():
    """The policy reproduces its targets up to rounding, so SGD's updates vanish with the gradient."""
    model = _policy()

    def target(model, state):
        return model(state).detach() * (1 + 1e-7)

    def loop(model, optimizer):
        _train(model, optimizer, steps=5)
        _train(model, optimizer, steps=40, target=target)

    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loop": loop}


class Gated(nn.Module):
    """A head that starts at 0, and LoRA's B: their values consist only of their first updates."""

    def __init__(self):
        super().__init__()
        self.body, self.gate = nn.Linear(8, 32), nn.Linear(32, 4)
        nn.init.zeros_(self.gate.weight)

    def forward(self, state):
        return self.gate(self.body(state).tanh())


def zero_initialised_head():
    model = Gated()
    return _program(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def head_initialised_small():
    model = _policy()
    nn.init.normal_(model[2].weight, std=1e-4)
    return _program(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def frozen_tower_and_learning_rate_zero():
    model = _policy()
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW([{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters()}])
    return _program(model, optimizer)


class Speaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(5000, 8), nn.Linear(8, 4)

    def forward(self, state):
        return self.head(self.table((state[:, 0] > 0).long()) + state)


def embedding_of_which_two_rows_are_read():
    model = Speaks()
    return _program(model, torch.optim.SGD(model.parameters(), lr=1e-2))


def lbfgs():
    model = _policy()

    def loop(model, optimizer):
        state = torch.randn(16, 8)

        def closure():
            optimizer.zero_grad()
            loss = (model(state) - state[:, :4]).square().mean()
            loss.backward()
            return loss

        for _ in range(30):
            optimizer.step(closure)

    return {"model": model, "optimizer": torch.optim.LBFGS(model.parameters(), max_iter=4), "loop": loop}


def gan():
    model = nn.ModuleDict({"generator": nn.Linear(8, 8), "discriminator": nn.Linear(8, 4)})
    optimizers = [torch.optim.Adam(part.parameters(), lr=2e-3) for part in model.values()]

    def loop(model, optimizers):
        for _ in range(130):
            for index, sign in ((1, 1.0), (0, -1.0)):
                fake = model["generator"](torch.randn(16, 8))
                score = model["discriminator"](fake).mean() - model["discriminator"](torch.randn(16, 8) + 1).mean()
                model.zero_grad()
                (sign * score).backward()
                optimizers[index].step()

    return {"model": model, "optimizer": optimizers, "loop": loop}


def one_token_attention():
    """With one key the softmax is 1, so the gradients of queries and keys are only rounding. Other weights learn."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Unflatten(1, (1, 8)), layer, nn.Flatten(), nn.Linear(8, 4))
    return _program(model, torch.optim.SGD(model.parameters(), lr=1e-2))


def large_updates_at_first_while_the_loss_falls():
    """Adam at 0.01 replaces a third of these small weights in a step, and learns."""
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))

    def loop(model, optimizer):
        state, action = torch.randn(64, 256), torch.randn(64, 4)
        for _ in range(30):
            optimizer.zero_grad()
            (model(state) - action).square().mean().backward()
            optimizer.step()

    return {"model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=1e-2), "loop": loop}


def sgd_that_is_slow_and_steady():
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 5))

    def loop(model, optimizer):
        for _ in range(40):
            optimizer.zero_grad()
            state = torch.randn(32, 16)
            nn.functional.cross_entropy(model(state), state[:, :5].argmax(1)).backward()
            optimizer.step()

    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), "loop": loop}


def twenty_steps_only():
    model = nn.Linear(8, 8)

    def loop(model, optimizer):
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()

    expect = {"not_examined": "20 of 25 steps"}
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loop": loop, "expect": expect}
