"""Loops that make a new optimizer for each epoch of the same data."""

import copy
import io

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DATA = TensorDataset(torch.randn(24, 3))


def _model():
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def _step(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


def adam_in_the_loop_over_the_epochs():
    loader = DataLoader(DATA, batch_size=4, shuffle=True)

    def loop(model, _):
        for _epoch in range(4):
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # DK511
            for (batch,) in loader:
                _step(model, optimizer, batch)

    return {"model": _model(), "loop": loop, "expect": {"message": "AdamW was recreated 2 times"}}


def run_of_two_epochs():
    loader = DataLoader(DATA, batch_size=4, shuffle=True)

    def loop(model, _):
        for _epoch in range(2):
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # DK511
            for (batch,) in loader:
                _step(model, optimizer, batch)

    return {"model": _model(), "loop": loop, "expect": {"message": "AdamW was recreated once", "count": 1}}


def function_that_trains_one_epoch():
    """Loader and optimizer are local to the function; the tensors of the data set are the same."""

    def train_one_epoch(model, tensors):
        model.train()
        loader = DataLoader(TensorDataset(*tensors), batch_size=4, shuffle=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)  # DK511
        for (batch,) in loader:
            _step(model, optimizer, batch)

    def loop(model, _):
        for _epoch in range(3):
            train_one_epoch(model, DATA.tensors)
            model.eval()
            with torch.no_grad():
                for (batch,) in DataLoader(DATA, batch_size=8):
                    model(batch)

    return {"model": _model(), "loop": loop, "expect": {"message": "SGD was recreated 2 times"}}


class _Trainer:
    """As Lightning's module and trainer, with the optimizers configured at the start of each epoch."""

    def __init__(self, model, loader):
        self.model, self.loader = model, loader

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)  # DK511
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)

    def training_step(self, batch):
        return self.model(batch[0]).square().mean()

    def fit(self, epochs):
        for _ in range(epochs):
            optimizer, _schedule = self.configure_optimizers()
            for batch in self.loader:
                optimizer.zero_grad()
                self.training_step(batch).backward()
                optimizer.step()


def trainer_that_configures_the_optimizers_in_each_epoch():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, _):
        _Trainer(model, loader).fit(4)

    return {"model": _model(), "loop": loop}


def first_optimizer_was_given_to_watch():
    model = _model()
    loader = DataLoader(DATA, batch_size=6)

    def loop(model, optimizer):
        for _epoch in range(4):
            for (batch,) in loader:
                _step(model, optimizer, batch)
            optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)  # DK511

    return {"model": model, "optimizer": torch.optim.NAdam(model.parameters(), lr=1e-3), "loop": loop}


def state_emptied_in_each_epoch():
    model = _model()
    loader = DataLoader(DATA, batch_size=6)

    def loop(model, optimizer):
        for _epoch in range(4):
            optimizer.state.clear()  # DK511
            for (batch,) in loader:
                _step(model, optimizer, batch)

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "The state of Adam was empt"}}


def second_half_of_a_run_without_the_state_that_was_saved():
    def loop(model, _):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(5):
            _step(model, optimizer, DATA.tensors[0])
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        checkpoint = torch.load(file)
        restarted = _model()
        restarted.load_state_dict(checkpoint["model"])
        optimizer = torch.optim.Adam(restarted.parameters(), lr=1e-3)  # DK511
        for _ in range(5):
            _step(restarted, optimizer, DATA.tensors[0])

    return {"model": _model(), "loop": loop, "expect": {"message": "after 5 steps, but the new Adam"}}


def best_weights_loaded_back_without_the_state():
    model = _model()
    loader = DataLoader(DATA, batch_size=6)

    def loop(model, optimizer):
        for _ in range(2):
            for (batch,) in loader:
                _step(model, optimizer, batch)
        best = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        for (batch,) in loader:
            _step(model, optimizer, batch)
        model.load_state_dict(best["model"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # DK511
        for (batch,) in loader:
            _step(model, optimizer, batch)

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return {"model": model, "optimizer": optimizer, "loop": loop}
