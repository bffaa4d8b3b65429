"""Mixed precision that works, or that is not used."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def _policy():
    return nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))


def _loss(model, batch, dtype=torch.bfloat16):
    with torch.autocast("cpu", dtype=dtype):
        action = model(batch)
    return (action.float() - 1).square().mean()


def _checked(model, loss_fn=_loss, batch=None):
    return {"model": model, "batch": torch.randn(16, 8) if batch is None else batch, "loss_fn": loss_fn}


def bfloat16():
    return _checked(_policy())


def float16():
    return _checked(_policy(), lambda model, batch: _loss(model, batch, torch.float16))


def no_autocast():
    return _checked(_policy(), lambda model, batch: (model(batch) - 1).square().mean())


def autocast_that_is_not_enabled():
    def loss_fn(model, batch):
        with torch.autocast("cpu", enabled=False):
            return (model(batch) - 1).square().mean()

    return _checked(_policy(), loss_fn)


def weights_in_bfloat16():
    return _checked(_policy().bfloat16(), batch=torch.randn(16, 8).bfloat16())


class HeadInFloat32(nn.Module):
    """The action head is kept in float32 on purpose. It needs less than half of the operations."""

    def __init__(self):
        super().__init__()
        self.tower, self.head = nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 64)), nn.Linear(64, 4)

    def forward(self, state):
        features = self.tower(state)
        with torch.autocast("cpu", enabled=False):
            return self.head(features.float())


def head_in_float32():
    return _checked(HeadInFloat32())


class FrozenTower(nn.Module):
    """The frozen tower computes its features without gradients and in float32, as if they were cached."""

    def __init__(self):
        super().__init__()
        self.tower, self.head = nn.Linear(8, 512).requires_grad_(False), nn.Linear(512, 4)

    def forward(self, state):
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            features = self.tower(state)
        return self.head(features)


def frozen_tower_without_gradients():
    return _checked(FrozenTower())


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(8, 64), nn.Linear(64, 4)

    def forward(self, state):
        return self.head(checkpoint(self.stem, state, use_reentrant=False).relu())


def activation_checkpointing():
    return _checked(Checkpointed())


def convolutions_and_recurrence():
    class Sees(nn.Module):
        def __init__(self):
            super().__init__()
            self.see, self.remember, self.act = nn.Conv2d(3, 8, 3), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 2)

        def forward(self, image):
            hidden, _ = self.remember(self.see(image).flatten(2).mT)
            return self.act(hidden[:, -1])

    return _checked(Sees(), batch=torch.randn(2, 3, 8, 8))


def a_tiny_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    ids = torch.randint(40, (2, 7))

    def loss_fn(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(**batch).loss

    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=16))
    return {"model": model, "batch": {"input_ids": ids, "labels": ids}, "loss_fn": loss_fn}


def scaler_that_searches_its_first_scale():
    model = _policy()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(model, optimizer):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
        for _ in range(128):
            optimizer.zero_grad()
            loss = _loss(model, torch.randn(16, 8), torch.float16)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def validation_in_float32_between_the_steps():
    model = _policy()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            _loss(model, torch.randn(16, 8)).backward()
            optimizer.step()
            with torch.no_grad():
                for _ in range(5):
                    model(torch.randn(64, 8))

    return {"model": model, "optimizer": optimizer, "loop": loop}


def a_scaler_that_takes_the_last_of_twelve_steps():
    model = _policy()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(model, optimizer):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**26)
        for _ in range(14):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = (model(torch.randn(16, 8)).float() - 1).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    expect = {"not_examined": "14 of 32 calls of `scaler.step()`"}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}
