"""16-bit weights that change, that need not change, or whose optimizer handles rounding itself."""

import torch
from torch import nn


def _policy(dtype=torch.bfloat16):
    return nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 2)).to(dtype)


def _loss(model, batch):
    return (model(batch.to(next(model.parameters()).dtype)).float() - 1).square().mean()


def _checked(model, optimizer):
    return {"model": model, "batch": torch.randn(16, 8), "loss_fn": _loss, "optimizer": optimizer}


def float32():
    model = _policy(torch.float32)
    return _checked(model, torch.optim.AdamW(model.parameters(), lr=1e-6))


def a_rate_that_bfloat16_can_show():
    model = _policy()
    return _checked(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def norms_that_do_not_change_beside_weights_that_do():
    """At a learning rate of 1e-3 a bfloat16 norm stays at 1. The matrices, most of the model, learn."""
    model = nn.Sequential(nn.Linear(8, 64), nn.LayerNorm(64), nn.Linear(64, 2)).bfloat16()
    return _checked(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def warm_up_in_a_loop():
    model = _policy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loop(model, optimizer):
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 1000)
        for _ in range(8):
            optimizer.zero_grad()
            _loss(model, torch.randn(16, 8)).backward()
            optimizer.step()
            schedule.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def warm_up_before_training():
    model = _policy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1e-3)
    return _checked(model, optimizer)


def learning_rate_zero():
    model = _policy()
    return _checked(model, torch.optim.AdamW(model.parameters(), lr=0.0))


class Master(torch.optim.Optimizer):
    """Keeps a float32 copy of each weight, so an update that bfloat16 cannot represent is not lost."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                copy = state.setdefault("master", parameter.float())
                copy -= group["lr"] * parameter.grad.float()
                parameter.copy_(copy)


def optimizer_with_a_float32_copy():
    model = _policy()
    return _checked(model, Master(model.parameters(), lr=1e-6))


def float32_copy_outside_the_model():
    """The loop copies gradients to float32 weights, steps those, and copies them back."""
    model = _policy()
    copies = [parameter.detach().float().requires_grad_() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(copies, lr=1e-6)

    def loop(model, optimizer):
        for _ in range(5):
            _loss(model, torch.randn(16, 8)).backward()
            for copy, parameter in zip(copies, model.parameters(), strict=True):
                copy.grad, parameter.grad = parameter.grad.float(), None
            optimizer.step()
            for copy, parameter in zip(copies, model.parameters(), strict=True):
                parameter.data.copy_(copy)

    return {"model": model, "optimizer": optimizer, "loop": loop}


class Adapted(nn.Module):
    """LoRA: the frozen base is bfloat16. B starts at 0, so every update of it has an effect."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 2).bfloat16().requires_grad_(False)
        self.a, self.b = nn.Linear(8, 4, bias=False), nn.Linear(4, 2, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, state):
        return self.base(state.bfloat16()).float() + self.b(self.a(state))


def lora_on_a_bfloat16_base():
    model = Adapted()
    return {
        "model": model,
        "batch": torch.randn(16, 8),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "optimizer": torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5),
    }


def zero_initialised_gate():
    model = nn.Linear(8, 2).bfloat16()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return _checked(model, torch.optim.AdamW(model.parameters(), lr=1e-6))


def rows_of_an_embedding_that_were_not_read():
    model = nn.Embedding(1000, 8).bfloat16()
    return {
        "model": model,
        "batch": torch.arange(4),
        "loss_fn": lambda model, batch: model(batch).float().square().sum(),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }


def float32_weights_under_autocast():
    model = _policy(torch.float32)

    def loss_fn(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (model(batch).float() - 1).square().mean()

    return _checked(model, torch.optim.AdamW(model.parameters(), lr=1e-6)) | {"loss_fn": loss_fn}
