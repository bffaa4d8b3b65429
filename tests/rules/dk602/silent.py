"""Loops whose memory does not grow, or stops growing."""

import collections
import gc

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 64


def _program(loop):
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.01), "loop": loop}


def _step(model, optimizer, x):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), torch.randn(len(x), 2))
    loss.backward()
    optimizer.step()
    return loss.item()


def plain_training_with_a_list_of_numbers():
    def loop(model, optimizer):
        losses = [_step(model, optimizer, torch.randn(256, 32)) for _ in range(STEPS)]
        assert len(losses) == STEPS

    return _program(loop)


def batches_of_different_length():
    def loop(model, optimizer):
        for step in range(STEPS):
            _step(model, optimizer, torch.randn(64 + 97 * (step * 7 % 11), 32))

    return _program(loop)


def cache_with_a_bound_that_is_full():
    cache = collections.OrderedDict()

    def loop(model, optimizer):
        for step in range(STEPS):
            cache[step] = torch.randn(512, 32)
            if len(cache) > 8:
                cache.popitem(last=False)
            _step(model, optimizer, cache[step])

    return _program(loop)


def replay_buffer_made_at_once():
    def loop(model, optimizer):
        buffer = torch.zeros(STEPS, 512, 32)
        for step in range(STEPS):
            buffer[step] = torch.randn(512, 32)
            _step(model, optimizer, buffer[step])

    return _program(loop)


def episodes_that_become_longer_and_are_forgotten_after_the_step():
    """What an episode kept is freed after `optimizer.step()`, before the model is called again."""
    kept = []

    def loop(model, optimizer):
        for episode in range(48):
            for _ in range(4 + episode):
                kept.append(model(torch.randn(256, 32)))
            loss = torch.stack([output.square().mean() for output in kept]).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            del kept[:]
            del loss

    return _program(loop)


def moving_average_of_the_weights():
    def loop(model, optimizer):
        average = torch.optim.swa_utils.AveragedModel(model)
        for _ in range(STEPS):
            _step(model, optimizer, torch.randn(128, 32))
            average.update_parameters(model)

    return _program(loop)


def twelve_steps_that_keep_nothing():
    def loop(model, optimizer):
        for _ in range(12):
            _step(model, optimizer, torch.randn(65536, 32))

    return _program(loop)


def last_four_weights_of_a_small_test():
    def loop(model, optimizer):
        latest = collections.deque(maxlen=4)
        for _ in range(16):
            _step(model, optimizer, torch.randn(64, 32))
            latest.append({name: value.clone() for name, value in model.state_dict().items()})

    return _program(loop)


def predictions_of_a_small_test_collected_for_a_metric():
    """Kept for the whole run, and far smaller than the model."""

    def loop(model, optimizer):
        predictions, logged = [], []
        for step in range(24):
            x = torch.randn(64, 32)
            logged.append({"step": step, "loss": _step(model, optimizer, x), "rate": 0.01})
            with torch.no_grad():
                predictions.append(model(x))
        assert torch.cat(predictions).shape == (24 * 64, 2)

    return _program(loop)


def weights_of_each_epoch_of_a_small_test():
    def loop(model, optimizer):
        kept = []
        for step in range(24):
            _step(model, optimizer, torch.randn(64, 32))
            if step % 6 == 5:
                kept.append({name: value.clone() for name, value in model.state_dict().items()})

    return _program(loop)


def states_in_cycles_that_a_collection_frees():
    """Without a collection, each step leaves as much as the model has."""

    def loop(model, optimizer):
        gc.collect()
        gc.disable()
        try:
            for step in range(18):
                _step(model, optimizer, torch.randn(64, 32))
                cycle = [{name: value.clone() for name, value in model.state_dict().items()}]
                cycle.append(cycle)
                del cycle
                if step == 11:
                    gc.collect()
        finally:
            gc.enable()

    return _program(loop)


def states_in_cycles_in_a_run_that_ends_before_a_collection():
    def loop(model, optimizer):
        gc.collect()
        gc.disable()
        try:
            for _ in range(14):
                _step(model, optimizer, torch.randn(64, 32))
                cycle = [{name: value.clone() for name, value in model.state_dict().items()}]
                cycle.append(cycle)
        finally:
            gc.enable()

    return _program(loop)


def outputs_of_an_epoch_emptied_at_its_end():
    def loop(model, optimizer):
        kept = []
        for step in range(40):
            _step(model, optimizer, torch.randn(48, 32))
            with torch.no_grad():
                kept.append(model[0](torch.randn(48, 32)))
            if step == 19:
                kept.clear()

    return _program(loop)
