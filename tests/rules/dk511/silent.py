"""Loops that make several optimizers on purpose, or in which something else changes with the optimizer."""

import copy

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

DATA = TensorDataset(torch.randn(24, 3))


def _model():
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def _adam(model, **options):
    return torch.optim.Adam([p for p in model.parameters() if p.requires_grad], **{"lr": 1e-3, **options})


def _epoch(model, optimizer, loader):
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


def _program(loop):
    return {"model": _model(), "loop": loop}


def one_optimizer():
    loader = DataLoader(DATA, batch_size=4, shuffle=True)

    def loop(model, _):
        optimizer = _adam(model)
        for _number in range(4):
            _epoch(model, optimizer, loader)

    return _program(loop)


def staged_fine_tuning():
    """The head alone, then the last layers, then everything; each stage has its own optimizer."""
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, _):
        for first in (2, 1, 0, 0):
            for number, part in enumerate(model):
                part.requires_grad_(number >= first)
            _epoch(model, _adam(model), loader)

    return _program(loop)


def two_stages_with_the_same_settings():
    """Each is made at its own line, so that its settings may differ in another run."""
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, _):
        warm_up = torch.optim.Adam(model.parameters(), lr=1e-3)
        _epoch(model, warm_up, loader)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        _epoch(model, optimizer, loader)

    return _program(loop)


def pair_made_at_one_line():
    """Both are made before the first of them steps."""
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, _):
        for optimizer in [_adam(model) for _ in range(2)]:
            _epoch(model, optimizer, loader)

    return _program(loop)


def two_rounds_of_averaging():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, _):
        start = copy.deepcopy(model.state_dict())
        for _round in range(2):
            _epoch(model, _adam(model), loader)
            trained = model.state_dict()
            start = {name: (start[name] + trained[name]) / 2 for name in start}
            model.load_state_dict(start)

    return _program(loop)


def rate_lowered_by_hand():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, _):
        for number in range(4):
            _epoch(model, _adam(model, lr=1e-3 * 0.5**number), loader)

    return _program(loop)


def warm_restarts_of_the_rate():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, _):
        for _number in range(4):
            optimizer = _adam(model)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
            for (batch,) in loader:
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
                schedule.step()
                schedule.step()

    return _program(loop)


def federated_averaging():
    clients = [DataLoader(Subset(DATA, range(start, start + 8)), batch_size=4) for start in (0, 8, 16)]

    def loop(model, _):
        shared = copy.deepcopy(model.state_dict())
        for _round in range(3):
            trained = []
            for client in clients:
                model.load_state_dict(shared)
                _epoch(model, _adam(model), client)
                trained.append(copy.deepcopy(model.state_dict()))
            shared = {name: sum(one[name] for one in trained) / 3 for name in shared}

    return _program(loop)


def meta_learning_by_reptile():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, _):
        for _task in range(4):
            before = [p.detach().clone() for p in model.parameters()]
            _epoch(model, _adam(model), loader)
            with torch.no_grad():
                for parameter, start in zip(model.parameters(), before, strict=True):
                    parameter.copy_(start + 0.1 * (parameter - start))

    return _program(loop)


def folds_with_a_new_model():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, _):
        for _fold in range(4):
            _epoch(new := _model(), _adam(new), loader)
            model(torch.randn(4, 3))

    return _program(loop)


def sweep_that_initialises_again():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, _):
        for seed in range(4):
            torch.manual_seed(seed)
            for part in (model[0], model[2]):
                part.reset_parameters()
            _epoch(model, _adam(model), loader)

    return _program(loop)


def sgd_without_momentum():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, _):
        for _number in range(4):
            _epoch(model, torch.optim.SGD(model.parameters(), lr=0.01), loader)

    return _program(loop)


def state_passed_on():
    """Each epoch saves its optimizer, and the next one loads it."""
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, _):
        saved = None
        for _number in range(4):
            optimizer = _adam(model)
            if saved is not None:
                optimizer.load_state_dict(saved)
            _epoch(model, optimizer, loader)
            saved = copy.deepcopy(optimizer.state_dict())

    return _program(loop)


def lbfgs_for_each_batch():
    loader = DataLoader(DATA, batch_size=12)

    def loop(model, _):
        for _number in range(4):
            optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
            for (batch,) in loader:

                def closure(batch=batch):
                    model.zero_grad()
                    loss = model(batch).square().mean()
                    loss.backward()
                    return loss

                optimizer.step(closure)

    return _program(loop)


def tasks_of_continual_learning():
    """One epoch of another part of the data for each task."""

    def loop(model, _):
        for start in (0, 6, 12, 18):
            loader = DataLoader(Subset(DATA, range(start, start + 6)), batch_size=2)
            _epoch(model, _adam(model), loader)

    return _program(loop)


def rounds_of_data_collection():
    """As in DAgger: each round adds data, and trains with a new optimizer."""

    def loop(model, _):
        collected = []
        for _round in range(4):
            collected.append(TensorDataset(torch.randn(8, 3)))
            _epoch(model, _adam(model), DataLoader(ConcatDataset(collected), batch_size=4))

    return _program(loop)


def cycles_of_several_epochs():
    """As in snapshot ensembles: each cycle ends with a copy of the weights and begins with a new optimizer."""
    loader = DataLoader(DATA, batch_size=6)

    def loop(model, _):
        copies = []
        for _cycle in range(4):
            optimizer = _adam(model)
            for _number in range(2):
                _epoch(model, optimizer, loader)
            copies.append(copy.deepcopy(model.state_dict()))

    return _program(loop)


def two_optimizers_that_take_turns():
    model = _model()
    optimizers = [_adam(model), _adam(model)]
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, optimizers):
        for number in range(4):
            _epoch(model, optimizers[number % 2], loader)

    return {"model": model, "optimizer": optimizers, "loop": loop}


def fits_without_a_loader():
    """The value function is fitted again after each batch of episodes."""

    def loop(model, _):
        for _number in range(4):
            optimizer = _adam(model)
            episodes = torch.randn(8, 3)
            for _ in range(3):
                optimizer.zero_grad()
                model(episodes).square().mean().backward()
                optimizer.step()

    return _program(loop)


def _two_parts(restore, *, save_the_state=True, **settings):
    """Five steps, a checkpoint in memory, and five steps of a new model."""
    states = DATA.tensors[0]

    def steps(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            model(states).square().mean().backward()
            optimizer.step()

    def loop(model, _):
        optimizer = _adam(model)
        steps(model, optimizer)
        saved = {"model": copy.deepcopy(model.state_dict())}
        if save_the_state:
            saved["optimizer"] = copy.deepcopy(optimizer.state_dict())
        second = _model()
        optimizer = torch.optim.Adam(second.parameters(), **{"lr": 1e-3} | settings)
        restore(second, optimizer, saved)
        steps(second, optimizer)

    return _program(loop)


def state_loaded_with_the_weights():
    def restore(model, optimizer, saved):
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    return _two_parts(restore)


def state_that_was_not_saved():
    return _two_parts(lambda model, _optimizer, saved: model.load_state_dict(saved["model"]), save_the_state=False)


def fine_tuning_at_a_lower_rate():
    return _two_parts(lambda model, _optimizer, saved: model.load_state_dict(saved["model"]), lr=1e-4)


def second_model_that_starts_from_its_own_weights():
    return _two_parts(lambda model, _optimizer, _saved: model.load_state_dict(_model().state_dict()))


def second_model_without_a_checkpoint():
    return _two_parts(lambda _model, _optimizer, _saved: None)


def fine_tuning_on_other_data():
    model = _model()
    loaders = [DataLoader(TensorDataset(torch.randn(24, 3)), batch_size=6) for _ in range(2)]

    def loop(model, _):
        optimizer = _adam(model)
        _epoch(model, optimizer, loaders[0])
        saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        second = _model()
        second.load_state_dict(saved["model"])
        _epoch(second, _adam(second), loaders[1])

    return {"model": model, "loop": loop}


def second_model_that_is_a_copy():
    """A branch of the training: nothing was loaded."""

    def loop(model, _):
        optimizer = _adam(model)
        _epoch(model, optimizer, DataLoader(DATA, batch_size=6))
        optimizer.state_dict()
        second = copy.deepcopy(model)
        _epoch(second, _adam(second), DataLoader(DATA, batch_size=6))

    return _program(loop)


def second_model_of_large_layers_with_its_own_weights():
    def make():
        return nn.Sequential(nn.Linear(3, 1500, bias=False), nn.ReLU(), nn.Linear(1500, 3, bias=False))

    def loop(model, _):
        optimizer = _adam(model)
        _epoch(model, optimizer, DataLoader(DATA, batch_size=6))
        optimizer.state_dict()
        second = make()
        second.load_state_dict(make().state_dict())
        _epoch(second, _adam(second), DataLoader(DATA, batch_size=6))

    return {"model": make(), "loop": loop}
