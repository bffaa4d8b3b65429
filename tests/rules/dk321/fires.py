"""Validation loops that use the variables of the training loop."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset

TRAIN = DataLoader(TensorDataset(torch.randn(24, 3), torch.randn(24, 2)), batch_size=4, shuffle=True)
HELD_OUT = DataLoader(TensorDataset(torch.randn(12, 3), torch.randn(12, 2)), batch_size=4)


def _program(loop):
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.1), nn.Linear(8, 2))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "loop": loop}


def _step(model, optimizer, state, action):
    optimizer.zero_grad()
    F.mse_loss(model(state), action).backward()
    optimizer.step()


def names_of_the_training_loop():
    def loop(model, optimizer):
        for _epoch in range(2):
            model.train()
            for state, action in TRAIN:
                _step(model, optimizer, state, action)
            model.eval()
            total = 0.0
            with torch.no_grad():
                for _held_state, _held_action in HELD_OUT:
                    total += F.mse_loss(model(state), action).item()  # DK321

    expect = {"message": "After step 6, 3 passes of the validation got the inputs of the last training step"}
    return {**_program(loop), "expect": expect}


def _loss(model, batch):
    """Both loops call this function, which converts the batch."""
    return F.mse_loss(model(2.0 * batch[0].float()), batch[1])


def function_that_computes_the_loss():
    """The inputs are new tensors with the same values, so the line of the loop is named."""

    def loop(model, optimizer):
        for _epoch in range(2):
            for batch in TRAIN:
                optimizer.zero_grad()
                _loss(model, batch).backward()
                optimizer.step()
            with torch.inference_mode():
                sum(_loss(model, batch) for _held_out in HELD_OUT)  # DK321

    return _program(loop)


class _Trainer:
    """As Lightning's module, with the batch kept on the module."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def training_step(self, batch):
        self.batch = batch
        return F.mse_loss(self.model(batch[0]), batch[1])

    def validation_step(self, _batch):
        state, action = self.batch
        return F.mse_loss(self.model(state), action)

    def validate(self):
        self.model.eval()
        for batch in HELD_OUT:  # DK321
            self.validation_step(batch)  # without no_grad, and without backward
        self.model.train()

    def fit(self):
        for _epoch in range(2):
            for batch in TRAIN:
                self.optimizer.zero_grad()
                self.training_step(batch).backward()
                self.optimizer.step()
            self.validate()


def trainer_that_keeps_the_training_batch():
    def loop(model, optimizer):
        _Trainer(model, optimizer).fit()

    return _program(loop)


def batch_of_the_wrong_loader():
    def evaluate(model):
        model.eval()
        total = 0.0
        with torch.no_grad():
            for _ in HELD_OUT:
                state, action = next(iter(TRAIN))
                total += F.mse_loss(model(state), action).item()  # DK321
        model.train()
        return total

    def loop(model, optimizer):
        for _epoch in range(2):
            for state, action in TRAIN:
                _step(model, optimizer, state, action)
            evaluate(model)

    return {**_program(loop), "expect": {"message": "got a batch of the training loader, and none of the 3 batches"}}


def _rows(count=40):
    return torch.randn(count, 3), torch.randn(count, 2)


def rows_of_the_last_training_step_as_test_rows():
    x, y = _rows()

    def loop(model, optimizer):
        for _ in range(3):
            model.train()
            for rows in torch.randperm(32).split(8):
                _step(model, optimizer, x[rows], y[rows])
            model.eval()
            test = rows  # DK321
            with torch.no_grad():
                F.mse_loss(model(x[test]), y[test])

    expect = {"severity": "warning", "message": "`test` selects the inputs of the last training step"}
    return {**_program(loop), "expect": expect}


class _Evaluates:
    def __init__(self, model):
        self.model = model

    def loss(self, val_x, val_y):
        self.model.eval()
        with torch.inference_mode():
            return F.mse_loss(self.model(val_x), val_y)  # DK321


def training_batch_given_to_a_function_for_validation():
    x, y = _rows()

    def loop(model, optimizer):
        for _ in range(3):
            model.train()
            for begin in range(0, 32, 8):
                batch, target = x[begin : begin + 8], y[begin : begin + 8]
                _step(model, optimizer, batch, target)
            _Evaluates(model).loss(batch, target)

    return {**_program(loop), "expect": {"message": "`val_x` selects"}}


def validation_loader_of_the_training_data():
    val_loader = DataLoader(TRAIN.dataset, batch_size=8)

    def loop(model, optimizer):
        for _ in range(2):
            model.train()
            for state, action in TRAIN:
                _step(model, optimizer, state, action)
            model.eval()
            with torch.no_grad():
                for state, action in val_loader:  # DK321
                    F.mse_loss(model(state), action)

    expect = {"severity": "info", "message": "`val_loader` reads the data set of the training loader itself, all 24"}
    return {**_program(loop), "expect": expect}


def subset_with_the_training_rows_for_validation():
    train = DataLoader(Subset(TRAIN.dataset, range(16)), batch_size=4, shuffle=True)
    valid = DataLoader(Subset(TRAIN.dataset, list(range(16))), batch_size=8)

    def loop(model, optimizer):
        for _ in range(2):
            model.train()
            for state, action in train:
                _step(model, optimizer, state, action)
            model.eval()
            with torch.no_grad():
                sum(F.mse_loss(model(state), action) for state, action in valid)  # DK321

    return {**_program(loop), "expect": {"severity": "info", "message": "all 16 samples"}}
