"""Loops whose memory grows."""

import gc

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 48


def _program(loop, **expect):
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def without_collector(model, optimizer):
        """A collection of what the tests before left behind is a fall of the memory: when it comes is chance."""
        gc.collect()
        gc.disable()
        try:
            loop(model, optimizer)
        finally:
            gc.enable()

    expected = {"severity": "warning", **expect}
    return {"model": model, "optimizer": optimizer, "loop": without_collector, "expect": expected}


def _step(model, optimizer, x):
    optimizer.zero_grad()
    output = model(x)
    F.mse_loss(output, torch.randn(len(x), 2)).backward()
    optimizer.step()
    return output


def _in_a_cycle(value):
    """Garbage that only a collection frees."""
    cycle = [value]
    cycle.append(cycle)


def frames_cached_without_a_bound():
    cache = {}

    def loop(model, optimizer):
        for step in range(STEPS):
            cache[step] = torch.randn(512, 32)  # 64 KiB
            _step(model, optimizer, cache[step])

    return _program(loop, message="Host memory grows by 64")


def hidden_states_collected_by_a_hook():
    kept = []

    def loop(model, optimizer):
        model[0].register_forward_hook(lambda _module, _args, output: kept.append(output.detach()))
        for _ in range(STEPS):
            _step(model, optimizer, torch.randn(256, 32))

    return _program(loop)


def features_of_every_step_kept_in_a_run_of_twelve():
    kept = []

    def loop(model, optimizer):
        for _ in range(12):
            kept.append(_step(model, optimizer, torch.randn(65536, 32)).detach())  # 512 KiB

    return _program(loop, message="grew in each of the last 8 steps by about 51")  # other objects take some KiB


def weights_copied_in_every_step_of_a_small_test():
    """9 KiB a step, and 0.1 MiB in all: as much as the model has, in each step."""
    history = []

    def loop(model, optimizer):
        for _ in range(16):
            _step(model, optimizer, torch.randn(64, 32))
            history.append({name: value.clone() for name, value in model.state_dict().items()})

    return _program(loop, message="The trainable parameters have 8.8 KiB.")


def gradients_kept_with_a_smaller_batch_at_the_end_of_each_epoch():
    kept = []

    def loop(model, optimizer):
        for step in range(18):
            x = torch.randn(16 if step % 9 == 8 else 64, 32)
            _step(model, optimizer, x)
            kept.append([p.grad.clone() for p in model.parameters()] + [x.clone()])

    return _program(loop, message="Host memory grew in each of the last")


def weights_copied_while_a_collection_frees_what_was_there_before():
    """The one collection falls into the middle of the run, as in a process that did something else before."""
    history = []

    def loop(model, optimizer):
        _in_a_cycle(torch.zeros(7000))  # 27 KiB
        for step in range(18):
            _step(model, optimizer, torch.randn(64, 32))
            history.append({name: value.clone() for name, value in model.state_dict().items()})
            if step == 11:
                gc.collect()

    return _program(loop, message="of the last")


def features_kept_in_a_run_that_ends_below_a_mebibyte():
    kept = []

    def loop(model, optimizer):
        model[0].register_forward_hook(lambda _module, _args, output: kept.append(output.detach()))
        for _ in range(40):
            _step(model, optimizer, torch.randn(48, 32))  # 12 KiB

    return _program(loop, message="Host memory grew in")
