"""Orders that change, or that are fixed on purpose."""

import itertools
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Sampler, TensorDataset, WeightedRandomSampler

DATA = TensorDataset(torch.arange(48.0).reshape(12, 4))


def _arguments(**options):
    return {
        "model": nn.Linear(4, 2),
        "batch": torch.randn(2, 4),
        "loss_fn": lambda model, state: model(state).square().mean(),
        "dataloader": DataLoader(DATA, batch_size=2, **options),
    }


def shuffled():
    return _arguments(shuffle=True)


def shuffled_by_a_generator():
    return _arguments(shuffle=True, generator=torch.Generator().manual_seed(0))


def weighted():
    return _arguments(sampler=WeightedRandomSampler([1.0] * 12, 12))


def in_order():
    return _arguments()


def distributed_before_training():
    """Only the loop can call set_epoch; before training the order repeats."""
    return _arguments(sampler=DistributedSampler(DATA, num_replicas=2, rank=0))


class Batches(Sampler):
    def __iter__(self):
        for part in torch.randperm(12).split(4):
            yield part.tolist()

    def __len__(self):
        return 3


def batch_sampler_of_ones_own():
    arguments = _arguments()
    arguments["dataloader"] = DataLoader(DATA, batch_sampler=Batches())
    return arguments


def _loop_over(sampler, start):
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train = DataLoader(DATA, batch_size=4, sampler=sampler)
    validation = DataLoader(DATA, batch_size=4, sampler=DistributedSampler(DATA, num_replicas=1, rank=0))

    def loop(model, optimizer):
        for epoch in range(3):
            start(sampler, epoch)
            for (state,) in train:
                optimizer.zero_grad()
                model(state).square().mean().backward()
                optimizer.step()
            with torch.no_grad():
                for (state,) in validation:
                    model(state)

    return {"model": model, "optimizer": optimizer, "loop": loop}


def set_epoch_is_called():
    """The validation loader is iterated for epoch 0 each time, but no training step uses it."""
    sampler = DistributedSampler(DATA, num_replicas=1, rank=0)
    return _loop_over(sampler, lambda sampler, epoch: sampler.set_epoch(epoch))


def nothing_is_shuffled():
    sampler = DistributedSampler(DATA, num_replicas=1, rank=0, shuffle=False)
    expect = {"not_examined": "no loop trained on one whose sampler is one of torch's"}
    return {**_loop_over(sampler, lambda *_: None), "expect": expect}


def validation_in_the_middle_of_an_epoch():
    """Steps follow each iteration of the validation loader, but their data come from the training loader."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train_sampler = DistributedSampler(DATA, num_replicas=1, rank=0)
    train = DataLoader(DATA, batch_size=2, sampler=train_sampler)
    validation = DataLoader(DATA, batch_size=4, sampler=DistributedSampler(DATA, num_replicas=1, rank=0))

    def loop(model, optimizer):
        for (state,) in train:
            optimizer.zero_grad()
            model(state).square().mean().backward()
            optimizer.step()
            with torch.no_grad():
                for (state,) in validation:
                    model(state)

    return {"model": model, "optimizer": optimizer, "loop": loop}


def _program(loop):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 2))
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01), "loop": loop}


def _step(model, optimizer, state):
    optimizer.zero_grad()
    model(state).square().mean().backward()
    optimizer.step()


def one_batch_to_overfit():
    loader = DataLoader(DATA, batch_size=4)

    def loop(model, optimizer):
        (state,) = next(iter(loader))
        for _ in range(12):
            _step(model, optimizer, state)

    return _program(loop)


def seed_of_the_epoch():
    loader = DataLoader(DATA, batch_size=4, shuffle=True)

    def loop(model, optimizer):
        for epoch in range(4):
            torch.manual_seed(100 + epoch)
            for (state,) in loader:
                _step(model, optimizer, state)

    return _program(loop)


def new_iterator_over_shuffled_data_for_each_step():
    loader = DataLoader(DATA, batch_size=2, shuffle=True)

    def loop(model, optimizer):
        for _ in range(12):
            (state,) = next(iter(loader))
            _step(model, optimizer, state)

    return _program(loop)


def first_validation_batch_in_each_step():
    """The loader of the validation is started for each step, but the step trains on another one."""
    train, validation = DataLoader(DATA, batch_size=2, shuffle=True), DataLoader(DATA, batch_size=2)

    def loop(model, optimizer):
        for _ in range(2):
            for (state,) in train:
                (held_out,) = next(iter(validation))
                _step(model, optimizer, state)
                with torch.no_grad():
                    model(held_out)

    return _program(loop)


def same_data_in_order_in_each_epoch():
    loader = DataLoader(DATA, batch_size=2)

    def loop(model, optimizer):
        for _ in range(4):
            for (state,) in loader:
                _step(model, optimizer, state)

    return _program(loop)


def loader_is_started_again_by_a_generator():
    loader = DataLoader(DATA, batch_size=3, shuffle=True)

    def forever():
        while True:
            yield from loader

    def loop(model, optimizer):
        for (state,) in itertools.islice(forever(), 20):
            _step(model, optimizer, state)

    return _program(loop)


def cycle_of_data_in_order():
    loader = DataLoader(DATA, batch_size=3)

    def loop(model, optimizer):
        for (state,) in itertools.islice(itertools.cycle(loader), 20):
            _step(model, optimizer, state)

    return _program(loop)


def few_batches_to_overfit():
    loader = DataLoader(DATA, batch_size=2, shuffle=True)

    def loop(model, optimizer):
        batches = list(itertools.islice(loader, 4))
        for _ in range(12):
            for (state,) in batches:
                _step(model, optimizer, state)

    return _program(loop)


def kept_batches_in_another_order_each_time():
    loader = DataLoader(DATA, batch_size=2, shuffle=True)

    def loop(model, optimizer):
        batches, order = list(loader), random.Random(0)
        for _ in range(12):
            order.shuffle(batches)
            for (state,) in batches:
                _step(model, optimizer, state)

    return _program(loop)


def replay_of_what_was_read():
    loader = DataLoader(DATA, batch_size=2, shuffle=True)

    def loop(model, optimizer):
        memory, order = [state for (state,) in loader], random.Random(0)
        for _ in range(60):
            _step(model, optimizer, order.choice(memory))

    return _program(loop)


def several_epochs_on_each_collection():
    """As in PPO: collected data are used a few times, then replaced."""
    loader = DataLoader(DATA, batch_size=2, shuffle=True)

    def loop(model, optimizer):
        for _ in range(3):
            collected = list(loader)
            for _ in range(4):
                for (state,) in collected:
                    _step(model, optimizer, state)

    return _program(loop)


def two_views_and_two_micro_steps_of_each_batch():
    loader = DataLoader(DATA, batch_size=3, shuffle=True)

    def loop(model, optimizer):
        for _ in range(5):
            for (state,) in loader:
                optimizer.zero_grad()
                (model(state) - model(state.flip(1))).square().mean().backward()
                model(state).square().mean().backward()
                optimizer.step()

    return _program(loop)


def gradient_of_all_batches_for_each_step():
    loader = DataLoader(DATA, batch_size=3, shuffle=True)

    def loop(model, optimizer):
        batches = list(loader)
        for _ in range(10):
            optimizer.zero_grad()
            for (state,) in batches:
                (model(state).square().mean() / len(batches)).backward()
            optimizer.step()

    return _program(loop)


def shorter_loader_cycles_within_an_epoch():
    """The labelled data end first, and are shuffled again in each epoch."""
    labelled, unlabelled = DataLoader(DATA, batch_size=4, shuffle=True), DataLoader(DATA, batch_size=2, shuffle=True)

    def loop(model, optimizer):
        for _ in range(3):
            for (state,), (other,) in zip(itertools.cycle(labelled), unlabelled, strict=False):
                _step(model, optimizer, torch.cat([state, other]))

    return _program(loop)


def data_set_of_ready_batches():
    """Each batch is one object, but the order is another in each epoch."""
    loader = DataLoader(list(DATA.tensors[0].split(2)), batch_size=None, shuffle=True)

    def loop(model, optimizer):
        for _ in range(10):
            for state in loader:
                _step(model, optimizer, state)

    return _program(loop)


def validation_on_kept_batches():
    loader, held_out = (DataLoader(DATA, batch_size=3, shuffle=True) for _ in range(2))

    def loop(model, optimizer):
        validation = list(held_out)
        for _ in range(10):
            for (state,) in loader:
                _step(model, optimizer, state)
            with torch.no_grad():
                for (state,) in validation:
                    model(state)

    return _program(loop)
