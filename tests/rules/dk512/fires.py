"""Loops in which the step is outside of the loop over the batches, which resets the gradients."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

DATA = TensorDataset(torch.randn(24, 3), torch.randn(24, 2))


def _program(loop, optimizer=torch.optim.AdamW, **options):
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    return {"model": model, "optimizer": optimizer(model.parameters(), **options), "loop": loop}


def step_after_the_batches():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, optimizer):
        for _epoch in range(3):
            for state, action in loader:
                optimizer.zero_grad()
                F.mse_loss(model(state), action).backward()
            optimizer.step()  # DK512

    expect = {"message": "10 of 12 batches were reset before 2 steps of AdamW, which used those of the last batch only"}
    return {**_program(loop), "expect": expect}


def clipped_and_reset_through_the_model():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, optimizer):
        for _epoch in range(3):
            for state, action in loader:
                model.zero_grad(set_to_none=False)
                F.mse_loss(model(state), action).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()  # DK512

    return _program(loop, torch.optim.SGD, lr=0.1, momentum=0.9)


class _Trainer:
    """As Lightning's module, with the step in the hook at the end of the epoch."""

    def __init__(self, model, optimizer, loader):
        self.model, self.optimizer, self.loader = model, optimizer, loader

    def training_step(self, batch):
        state, action = batch
        return F.mse_loss(self.model(state), action)

    def on_train_epoch_end(self):
        nn.utils.clip_grad_value_(self.model.parameters(), 0.05)
        self.optimizer.step()  # DK512

    def fit(self, epochs):
        for _ in range(epochs):
            for batch in self.loader:
                for parameter in self.model.parameters():
                    parameter.grad = None
                self.training_step(batch).backward()
            self.on_train_epoch_end()


def trainer_that_steps_at_the_end_of_the_epoch():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, optimizer):
        _Trainer(model, optimizer, loader).fit(3)

    return _program(loop)


def one_epoch_of_eight_batches():
    loader = DataLoader(DATA, batch_size=3)

    def loop(model, optimizer):
        for state, action in loader:
            optimizer.zero_grad()
            F.mse_loss(model(state), action).backward()
        optimizer.step()  # DK512

    return {**_program(loop), "expect": {"message": "7 of 8 batches were reset before 1 step of AdamW"}}


def step_at_the_start_of_the_next_epoch():
    """The first step has no gradients, and those of the last epoch are never used."""
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, optimizer):
        for _epoch in range(2):
            optimizer.step()  # DK512
            for state, action in loader:
                optimizer.zero_grad()
                F.mse_loss(model(state), action).backward()

    return _program(loop)


def reset_after_each_backward():
    """As after a step: nothing is left for the step after the loop."""
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, optimizer):
        for _epoch in range(2):
            for state, action in loader:
                F.mse_loss(model(state), action).backward()
                optimizer.zero_grad()
            optimizer.step()  # DK512

    return {**_program(loop), "expect": {"message": "which used none of them"}}


def optimizer_that_is_made_in_the_loop():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, _):
        optimizer = torch.optim.Adam(model.parameters())
        for _epoch in range(4):
            for state, action in loader:
                optimizer.zero_grad()
                F.mse_loss(model(state), action).backward()
            optimizer.step()  # DK512

    return {"model": nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), "loop": loop}


def reset_before_each_of_three_micro_batches():
    def loop(model, optimizer):
        for _ in range(8):
            for _micro in range(3):
                optimizer.zero_grad()
                (F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 2)) / 3).backward()
            optimizer.step()  # DK512

    expect = {"message": "12 of 18 batches were reset before 6 steps of AdamW, which used those of the last batch only"}
    return {**_program(loop), "expect": expect}


def reset_before_each_of_two_micro_batches():
    def loop(model, optimizer):
        for _ in range(9):
            for _micro in range(2):
                optimizer.zero_grad()
                (F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 2)) / 2).backward()
            optimizer.step()  # DK512

    expect = {"message": "8 of 16 batches were reset before 8 steps of AdamW, which used those of the last batch only"}
    return {**_program(loop), "expect": expect}


def step_after_every_second_batch():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, optimizer):
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
        for _epoch in range(4):
            for number, (state, action) in enumerate(loader, 1):
                model.zero_grad(set_to_none=False)
                loss = F.mse_loss(model(state), action).div(2)
                scaler.scale(loss).backward()
                if number % 2 == 0:
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                    scaler.step(optimizer)  # DK512
                    scaler.update()

    return _program(loop, torch.optim.SGD, lr=0.1)
