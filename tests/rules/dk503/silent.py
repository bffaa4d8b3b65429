"""Healthy schedules."""

import functools
import warnings

import torch
from torch import nn
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    LambdaLR,
    LinearLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)


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


def _step(model, optimizer, parts=1):
    optimizer.zero_grad()
    for _ in range(parts):
        (model(torch.randn(4, 3)).square().mean() / parts).backward()
    optimizer.step()


def _each_step(make, repeats=1, parts=1, steps=10):
    model, optimizer = _policy()
    schedule = make(optimizer)

    def loop(model, optimizer):
        for _ in range(steps):
            _step(model, optimizer, parts)
            for _ in range(repeats):
                schedule.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def cosine():
    return _each_step(lambda optimizer: CosineAnnealingLR(optimizer, 20))


def accumulation():
    return _each_step(lambda optimizer: CosineAnnealingLR(optimizer, 20), parts=4)


def one_cycle():
    return _each_step(lambda optimizer: OneCycleLR(optimizer, 0.1, total_steps=20))


def warm_up_from_zero():
    return _each_step(lambda optimizer: LambdaLR(optimizer, lambda step: min(1.0, step / 100)), steps=20)


def nested():
    def make(optimizer):
        return SequentialLR(optimizer, [LinearLR(optimizer, 0.1, 1.0, 3), CosineAnnealingLR(optimizer, 10)], [3])

    return _each_step(make)


def once_for_each_process():
    """accelerate steps the scheduler once for each process, in a row."""
    return _each_step(lambda optimizer: CosineAnnealingLR(optimizer, 40), repeats=4)


def by_epoch():
    model, optimizer = _policy()
    schedule = CosineAnnealingLR(optimizer, 10)

    def loop(model, optimizer):
        for _ in range(4):
            for _ in range(3):
                _step(model, optimizer)
            schedule.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def by_epoch_to_zero_at_the_end():
    """A cosine over the epochs reaches 0 after the last one. Another has a last epoch near zero, but not at zero."""
    model, optimizer = _policy()
    schedule = CosineAnnealingLR(optimizer, 4, eta_min=1e-9)

    @_though_torch_warns
    def loop(model, optimizer):
        for _epoch in range(5):
            for _ in range(8):
                _step(model, optimizer)
            schedule.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def by_epoch_with_an_epoch_at_zero_in_between():
    """Cyclical rates of a snapshot ensemble."""
    model, optimizer = _policy()
    schedule = LambdaLR(optimizer, lambda epoch: 1.0 - (epoch % 3) / 2)

    @_though_torch_warns
    def loop(model, optimizer):
        for _epoch in range(5):
            for _ in range(8):
                _step(model, optimizer)
            schedule.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def on_a_plateau():
    model, optimizer = _policy()
    schedule = ReduceLROnPlateau(optimizer, patience=0)

    def loop(model, optimizer):
        for epoch in range(4):
            _step(model, optimizer)
            _step(model, optimizer)
            schedule.step(float(epoch))

    return {"model": model, "optimizer": optimizer, "loop": loop}


def fast_forward_to_resume():
    model, optimizer = _policy()
    schedule = CosineAnnealingLR(optimizer, 20)

    @_though_torch_warns
    def loop(model, optimizer):
        for _ in range(5):
            schedule.step()
        for _ in range(8):
            _step(model, optimizer)
            schedule.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def warm_up_by_hand_beside_a_schedule_by_epoch():
    model, optimizer = _policy()
    schedule = CosineAnnealingLR(optimizer, 20)

    def loop(model, optimizer):
        for epoch in range(8):
            for step in range(3):
                if epoch < 3:
                    optimizer.param_groups[0]["lr"] = 0.001 * (3 * epoch + step)
                _step(model, optimizer)
            schedule.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def skipped_by_the_scaler():
    model, optimizer = _policy()
    schedule = CosineAnnealingLR(optimizer, 20)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60, backoff_factor=2.0**-20)

    @_though_torch_warns
    def loop(model, optimizer):
        for _ in range(12):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(torch.randn(4, 3)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            schedule.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def gan_with_two_schedules():
    model = nn.ModuleDict({"generator": nn.Linear(2, 3), "critic": nn.Linear(3, 1)})
    generator = torch.optim.Adam(model["generator"].parameters(), lr=0.01)
    critic = torch.optim.Adam(model["critic"].parameters(), lr=0.01)
    schedules = [CosineAnnealingLR(generator, 20), ConstantLR(critic, 0.5, 5)]

    def loop(model, optimizers):
        for _ in range(8):
            real, noise = torch.randn(4, 3), torch.randn(4, 2)
            critic.zero_grad()
            fake = model["generator"](noise)
            (model["critic"](fake.detach()).mean() - model["critic"](real).mean()).backward()
            critic.step()
            generator.zero_grad()
            (-model["critic"](fake).mean()).backward()
            generator.step()
            for schedule in schedules:
                schedule.step()

    return {"model": model, "optimizer": [generator, critic], "loop": loop}


def no_schedule_at_rate_zero():
    """Statistics of BatchNorm are recalibrated with steps that change nothing."""
    model, optimizer = _policy(lr=0.0)

    def loop(model, optimizer):
        for _ in range(12):
            _step(model, optimizer)

    return {"model": model, "optimizer": optimizer, "loop": loop}


def first_group_that_stays_at_zero():
    """The body is frozen by its rate for now, and the head trains."""
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    groups = [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2].parameters(), "lr": 0.01}]
    optimizer = torch.optim.AdamW(groups)
    schedule = LambdaLR(optimizer, [lambda step: 0.0, lambda step: min(1.0, step / 4)])

    def loop(model, optimizer):
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
            schedule.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def one_cycle_to_its_end():
    model, optimizer = _policy()
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=60, final_div_factor=1e6)

    def loop(model, optimizer):
        for _ in range(60):
            _step(model, optimizer)
            schedule.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def a_tenth_every_thirty_epochs():
    return _each_step(lambda optimizer: LambdaLR(optimizer, lambda epoch: 0.1 ** (epoch // 30)), steps=20)


def constant_on_purpose():
    return _each_step(lambda optimizer: LambdaLR(optimizer, lambda _: 1), steps=20)


def by_epoch_in_a_run_that_is_cut_short():
    """The schedule is of 100 epochs."""
    model, optimizer = _policy()
    schedule = CosineAnnealingLR(optimizer, 100)

    @_though_torch_warns
    def loop(model, optimizer):
        for _epoch in range(4):
            for _ in range(5):
                _step(model, optimizer)
            schedule.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def _plateau(metric_of, mode, epochs=12, maximize=False, patience=1):
    """Trains a linear model; `metric_of(loss, epoch)` is what the scheduler receives."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, maximize=maximize)
    schedule = ReduceLROnPlateau(optimizer, mode, factor=0.7, patience=patience)
    x = torch.randn(64, 3)
    y = x @ torch.randn(3, 2)

    @_though_torch_warns
    def loop(model, optimizer):
        for epoch in range(epochs):
            total = 0.0
            for batch in range(0, 64, 16):
                optimizer.zero_grad()
                error = (model(x[batch : batch + 16]) - y[batch : batch + 16]).square().mean()
                (-error if maximize else error).backward()
                optimizer.step()
                total += error.item() / 4
            val_loss = metric_of(total, epoch)
            schedule.step(val_loss)

    return {"model": model, "optimizer": optimizer, "loop": loop}


def plateau_of_the_smallest_loss():
    return _plateau(lambda loss, _: loss, "min")


def plateau_of_a_validation_loss_that_rises():
    """The model overfits, and the rate is lowered for that."""
    return _plateau(lambda loss, epoch: 0.3 + 0.04 * epoch + 0.001 * loss, "min")


def plateau_of_a_loss_that_stays():
    return _plateau(lambda loss, epoch: 1.0 + 0.01 * (epoch % 3), "max")


def plateau_of_a_negated_loss():
    return _plateau(lambda loss, _: -loss, "max")


def plateau_of_a_maximized_objective():
    return _plateau(lambda loss, _: 1 / (1 + loss), "max", maximize=True)


def plateau_of_a_loss_without_a_reduction():
    """The patience is longer than the run."""
    return _plateau(lambda loss, _: loss, "max", patience=50)


def plateau_of_an_accuracy_on_the_former_task():
    """It falls while the loss of the new task falls."""

    def loop(model, optimizer):
        for epoch in range(10):
            for _ in range(3):
                _step(model, optimizer)
            accuracy = (190 - 15 * epoch - epoch % 2) / 200
            schedule.step(accuracy)

    model, optimizer = _policy()
    schedule = ReduceLROnPlateau(optimizer, "max", patience=1)
    return {"model": model, "optimizer": optimizer, "loop": loop}


def plateau_of_an_error_rate_that_rises():
    def loop(model, optimizer):
        for epoch in range(10):
            for _ in range(3):
                _step(model, optimizer)
            accuracy = (20 + 5 * epoch) / 200
            schedule.step(1 - (1 - accuracy))
            errors = accuracy
            other.step(errors)

    model, optimizer = _policy()
    schedule = ReduceLROnPlateau(optimizer, factor=0.7, patience=1)
    other = ReduceLROnPlateau(optimizer, factor=0.7, patience=1)
    return {"model": model, "optimizer": optimizer, "loop": loop}


def plateau_of_an_accumulated_loss_that_rises():
    """`acc` is short for accumulated here."""

    def loop(model, optimizer):
        for epoch in range(10):
            for _ in range(3):
                _step(model, optimizer)
            acc = sum(0.05 * epoch + 0.01 * torch.rand(()).item() for _ in range(3))
            schedule.step(acc / 3)

    model, optimizer = _policy()
    schedule = ReduceLROnPlateau(optimizer, patience=1)
    return {"model": model, "optimizer": optimizer, "loop": loop}


def plateau_of_the_loss_of_an_adversary():
    """The rate of the critic is lowered while the generator wins."""
    model = nn.ModuleDict({"generator": nn.Linear(2, 3), "critic": nn.Linear(3, 1)})
    optimizers = [torch.optim.SGD(part.parameters(), 0.01) for part in model.values()]
    schedule = ReduceLROnPlateau(optimizers[1], "max", patience=1)

    @_though_torch_warns
    def loop(model, optimizers):
        for epoch in range(10):
            for optimizer in optimizers:
                optimizer.zero_grad()
                (model["critic"](model["generator"](torch.randn(4, 2))).square().mean() + 1 / (1 + epoch)).backward()
                optimizer.step()
            loss = 2 / (1 + epoch)
            schedule.step(loss)

    return {"model": model, "optimizer": optimizers, "loop": loop}


def cosine_of_epochs_by_epoch_beyond_its_length():
    model, optimizer = _policy()
    epochs = 2
    by_epoch_annealing = CosineAnnealingLR(optimizer, T_max=epochs)

    def loop(model, optimizer):
        for _ in range(9):
            for _ in range(3):
                _step(model, optimizer)
            by_epoch_annealing.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def cosine_of_the_batches_of_an_epoch():
    """The rate falls in one epoch and rises in the next, on purpose."""
    model, optimizer = _policy()
    batches_per_epoch = 5
    triangle = CosineAnnealingLR(optimizer, T_max=batches_per_epoch)

    def loop(model, optimizer):
        for _ in range(6):
            for _ in range(batches_per_epoch):
                _step(model, optimizer)
                triangle.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def cosine_of_all_batches():
    model, optimizer = _policy()
    epochs = 4
    whole_run = CosineAnnealingLR(optimizer, T_max=epochs * 8)

    def loop(model, optimizer):
        for _ in range(epochs):
            for _ in range(8):
                _step(model, optimizer)
                whole_run.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def warm_restarts_within_epochs():
    model, optimizer = _policy()
    epochs = 4
    schedule = CosineAnnealingWarmRestarts(optimizer, T_0=epochs)

    def loop(model, optimizer):
        for _ in range(epochs):
            for _ in range(8):
                _step(model, optimizer)
                schedule.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def a_new_cosine_for_each_cycle():
    model, optimizer = _policy()
    epochs = 4

    def loop(model, optimizer):
        for _ in range(epochs):
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] = 0.01
            cycle = CosineAnnealingLR(optimizer, T_max=epochs)
            for _ in range(epochs):
                _step(model, optimizer)
                cycle.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def _two_rates(set_rates, steps=20, lr=(1e-4, 1e-2)):
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def loop(model, _):
        groups = [{"params": model[part].parameters(), "lr": rate} for part, rate in zip((0, 2), lr, strict=True)]
        optimizer = torch.optim.AdamW(groups)
        schedule = set_rates(optimizer, None)
        for step in range(steps):
            set_rates(optimizer, step)
            _step(model, optimizer)
            if schedule is not None:
                schedule.step()

    return {"model": model, "loop": loop}


def two_rates_with_a_factor():
    def set_rates(optimizer, step):
        for group in optimizer.param_groups:
            group["base"] = group.get("base", group["lr"])
            group["lr"] = group["base"] * 0.9 ** (step or 0)

    return _two_rates(set_rates)


def two_rates_with_a_lambda_for_each():
    def set_rates(optimizer, step):
        return LambdaLR(optimizer, [lambda step: 1.0, lambda step: min(1.0, step / 8)]) if step is None else None

    return _two_rates(set_rates)


def two_rates_and_then_one():
    """The groups are trained with one rate in a later phase."""

    def set_rates(optimizer, step):
        for group in optimizer.param_groups if (step or 0) >= 5 else ():
            group["lr"] = 1e-3

    return _two_rates(set_rates, steps=30)


def one_rate_in_the_warm_up_and_then_two():
    def set_rates(optimizer, step):
        for group, rate in zip(optimizer.param_groups, (1e-4, 1e-2), strict=True):
            group["lr"] = 1e-5 if (step or 0) < 20 else rate

    return _two_rates(set_rates, steps=25)


def search_for_a_rate_that_restores_the_groups():
    def set_rates(optimizer, step):
        for group, rate in zip(optimizer.param_groups, (1e-4, 1e-2), strict=True):
            group["lr"] = 1e-6 * 1.5 ** (step or 0) if step != 19 else rate

    return _two_rates(set_rates)


def only_a_search_for_a_rate():
    def set_rates(optimizer, step):
        for group in optimizer.param_groups:
            group["lr"] = 1e-6 * 1.5 ** (step or 0)

    return _two_rates(set_rates)


def one_rate_for_groups_with_one():
    def set_rates(optimizer, step):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * 0.9 ** (step or 0)

    return _two_rates(set_rates, lr=(1e-3, 1e-3))
