"""Schedulers that are stepped at the wrong time, or that do not affect the optimizer in use."""

import functools
import warnings

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR


def _though_torch_warns(loop):
    """Ignore PyTorch's own warning: it appears for one of these orders, also where that order is healthy."""

    @functools.wraps(loop)
    def quiet(model, optimizer):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loop(model, optimizer)

    return quiet


def _policy(lr=0.01):
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=lr)


def _backward(model, parts=1):
    (model(torch.randn(4, 3)).square().mean() / parts).backward()


def warm_up_counts_micro_batches():
    model, optimizer = _policy()
    schedule = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100))

    @_though_torch_warns
    def loop(model, optimizer):
        for micro in range(32):
            _backward(model, 8)
            if micro % 8 == 7:
                optimizer.step()
                optimizer.zero_grad()
            schedule.step()  # DK503

    expect = {"message": "8 times between two steps"}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def before_the_optimizer():
    model, optimizer = _policy()
    schedule = CosineAnnealingLR(optimizer, 10)

    @_though_torch_warns
    def loop(model, optimizer):
        for _ in range(6):
            optimizer.zero_grad()
            _backward(model)
            schedule.step()  # DK503
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "warning"}}


def optimizer_was_recreated():
    """The encoder is unfrozen and a new optimizer is created; the scheduler still has the old one."""
    model, old = _policy()
    schedule = CosineAnnealingLR(old, 10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    @_though_torch_warns
    def loop(model, optimizer):
        for _ in range(6):
            optimizer.zero_grad()
            _backward(model)
            optimizer.step()
            schedule.step()  # DK503

    return {
        "model": model,
        "optimizer": optimizer,
        "loop": loop,
        "expect": {"message": "an optimizer that never steps"},
    }


def optimizer_was_recreated_and_none_given():
    model, old = _policy()
    schedule = CosineAnnealingLR(old, 10)
    new = torch.optim.AdamW(model.parameters(), lr=0.01)

    @_though_torch_warns
    def loop(model, _):
        for _ in range(6):
            new.zero_grad()
            _backward(model)
            new.step()
            schedule.step()  # DK503

    return {"model": model, "loop": loop}


def warm_up_is_never_stepped():
    model, optimizer = _policy()
    LambdaLR(optimizer, lambda step: min(1.0, step / 100))

    def loop(model, optimizer):
        for _ in range(10):
            optimizer.zero_grad()
            _backward(model)
            optimizer.step()  # DK503

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "has not been stepped"}}


def loop_sets_the_rate_as_well():
    model, optimizer = _policy()
    schedule = CosineAnnealingLR(optimizer, 10)

    def loop(model, optimizer):
        for _ in range(8):
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = 0.02
            _backward(model)
            optimizer.step()
            schedule.step()  # DK503

    expect = {"message": "other code overwrote it", "severity": "warning"}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def integer_division_keeps_the_rate_at_zero():
    model, optimizer = _policy()
    schedule = LambdaLR(optimizer, lambda step: step // 100)

    def loop(model, optimizer):
        for _ in range(12):
            optimizer.zero_grad()
            _backward(model)
            optimizer.step()
            schedule.step()  # DK503

    expect = {"message": "times and kept the learning rate at 0"}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def decay_for_each_epoch_stepped_for_each_batch():
    model, optimizer = _policy()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=0.1)

    def loop(model, optimizer):
        for _ in range(60):
            optimizer.zero_grad()
            _backward(model)
            optimizer.step()
            schedule.step()  # DK503

    return {
        "model": model,
        "optimizer": optimizer,
        "loop": loop,
        "expect": {"message": "has lowered the learning rate"},
    }


def last_epochs_at_rate_zero():
    """The length of the schedule is that of another configuration."""
    model, optimizer = _policy()
    schedule = LambdaLR(optimizer, lambda epoch: max(0.0, 1 - epoch / 2))

    @_though_torch_warns
    def loop(model, optimizer):
        for _epoch in range(4):
            for _ in range(5):
                optimizer.zero_grad()
                _backward(model)
                optimizer.step()
            schedule.step()  # DK503

    expect = {"message": "The scheduler of AdamW has lowered the learning rate", "severity": "warning", "count": 1}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def integer_division_holds_the_rate():
    model, optimizer = _policy()
    total = 100
    schedule = LambdaLR(optimizer, lambda step: max(0, 1 - step // total))

    def loop(model, optimizer):
        for _ in range(20):
            optimizer.zero_grad()
            _backward(model)
            optimizer.step()
            schedule.step()  # DK503

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "computes with integers only"}}


def one_cycle_over_all_batches_stepped_for_each_epoch():
    model, optimizer = _policy()
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=20)

    @_though_torch_warns
    def loop(model, optimizer):
        for _epoch in range(4):
            for _ in range(5):
                optimizer.zero_grad()
                _backward(model)
                optimizer.step()
            schedule.step()  # DK503

    expect = {"message": "is 20 steps long", "severity": "warning", "count": 1}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def linear_decay_of_transformers_stepped_for_each_epoch():
    from transformers import get_linear_schedule_with_warmup

    model, optimizer = _policy()
    schedule = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=0, num_training_steps=24)

    @_though_torch_warns
    def loop(model, optimizer):
        for _epoch in range(3):
            for _ in range(8):
                optimizer.zero_grad()
                _backward(model)
                optimizer.step()
            schedule.step()  # DK503

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "stepped 3 times"}}


def _regression():
    """Data of a linear function, and the loss of a model on one half, which it trains on, and on the other."""
    x = torch.randn(512, 3)
    y = x @ torch.randn(3, 2)

    def epoch(model, optimizer):
        for batch in range(0, 256, 64):
            optimizer.zero_grad()
            (model(x[batch : batch + 64]) - y[batch : batch + 64]).square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            return (model(x[256:]) - y[256:]).square().mean()

    return epoch


def plateau_of_the_largest_validation_loss():
    epoch = _regression()
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", factor=0.7, patience=2)

    @_though_torch_warns
    def loop(model, optimizer):
        for _ in range(16):
            held_out = epoch(model, optimizer).item()
            schedule.step(held_out)  # DK503

    expect = {"message": "as the training loss does", "severity": "warning", "count": 1}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def plateau_of_the_largest_mean_of_the_training_loss():
    """The metric is a tensor, and the model is a network."""
    model = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.7, patience=1)
    x = torch.randn(96, 3)
    labels = (x @ torch.randn(3, 4)).argmax(1)

    @_though_torch_warns
    def loop(model, optimizer):
        for _ in range(14):
            total = torch.zeros(())
            for batch in torch.randperm(96).split(16):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x[batch]), labels[batch])
                loss.backward()
                optimizer.step()
                total += loss.detach()
            schedule.step(total / 6)  # DK503

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "as the training loss does"}}


def plateau_of_the_largest_value_named_a_loss():
    """The validation loss has another scale than the training loss."""
    epoch = _regression()
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", factor=0.5, patience=1)

    @_though_torch_warns
    def loop(model, optimizer):
        for _ in range(6):
            logs = {"val_loss": 100 * epoch(model, optimizer).item()}
            schedule.step(logs["val_loss"])  # DK503

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "and is named a loss"}}


def _classification():
    """A model that learns the class of points slowly, and its accuracy on others after each epoch."""
    model = nn.Linear(8, 10)
    x = torch.randn(1200, 8)
    labels = (x @ torch.randn(8, 10)).argmax(1)

    def epoch(model, optimizer):
        for batch in range(0, 600, 100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch : batch + 100]), labels[batch : batch + 100]).backward()
            optimizer.step()
        with torch.no_grad():
            return (model(x[600:]).argmax(1) == labels[600:]).sum().item()

    return model, epoch


def plateau_of_the_smallest_accuracy():
    model, epoch = _classification()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.7, patience=1)

    @_though_torch_warns
    def loop(model, optimizer):
        for _ in range(10):
            val_acc = epoch(model, optimizer) / 600
            schedule.step(val_acc)  # DK503

    expect = {"message": "a proportion that is named an accuracy", "severity": "warning", "count": 1}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def plateau_of_the_smallest_accuracy_in_percent():
    model, epoch = _classification()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.8, patience=1)
    history = {"accuracy": []}

    @_though_torch_warns
    def loop(model, optimizer):
        for _ in range(10):
            history["accuracy"].append(100 * epoch(model, optimizer) / 600)
            schedule.step(metrics=history["accuracy"][-1])  # DK503

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": 'has `mode="min"`'}}


def cosine_of_epochs_stepped_for_each_batch():
    model, optimizer = _policy()
    epochs = 5
    annealing = CosineAnnealingLR(optimizer, T_max=epochs)

    def loop(model, optimizer):
        for _ in range(epochs):
            for _ in range(8):
                optimizer.zero_grad()
                _backward(model)
                optimizer.step()
                annealing.step()  # DK503

    expect = {"message": "`T_max=5`, a number of epochs", "severity": "warning", "count": 1}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def cosine_as_long_as_the_outer_loop():
    """Nothing is named an epoch, and the rate does not fall to zero."""
    model, optimizer = _policy()
    plan = CosineAnnealingLR(optimizer, 6, 1e-3)

    def loop(model, optimizer):
        for _ in range(1, 7):
            for batch in torch.randn(40, 3).split(8):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
                plan.step()  # DK503

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "was stepped for each batch"}}


def _two_parts():
    return nn.ModuleDict({"body": nn.Linear(3, 8), "head": nn.Linear(8, 2)})


def _step_of_parts(model, optimizer):
    optimizer.zero_grad()
    model["head"](model["body"](torch.randn(4, 3)).tanh()).square().mean().backward()
    optimizer.step()


def one_rate_written_into_groups_with_two():
    model = _two_parts()

    def loop(model, _):
        optimizer = torch.optim.AdamW(
            [{"params": model["body"].parameters(), "lr": 1e-5}, {"params": model["head"].parameters()}], lr=1e-3
        )
        for step in range(20):
            for chosen in optimizer.param_groups:
                chosen["lr"] = 1e-3 * min(1.0, (step + 1) / 5)  # DK503
            _step_of_parts(model, optimizer)

    expect = {"message": "used one rate for all groups", "severity": "warning", "count": 1}
    return {"model": model, "loop": loop, "expect": expect}


def one_rate_from_the_second_step_on():
    """The rate is written after the step, by a function."""
    model = _two_parts()

    def decay(optimizer, rate):
        for entry in optimizer.param_groups:
            entry["lr"] = rate  # DK503

    def loop(model, _):
        rates = {"body": 0.001, "head": 0.01}
        optimizer = torch.optim.SGD([{"params": model[part].parameters(), "lr": rates[part]} for part in rates])
        for step in range(15):
            _step_of_parts(model, optimizer)
            decay(optimizer, 0.01 * 0.9**step)

    expect = {"message": "14 steps used one rate for all groups", "severity": "warning"}
    return {"model": model, "loop": loop, "expect": expect}
