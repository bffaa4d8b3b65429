"""Loops that seed with care, and loaders that draw from their own generators."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


def _program(loop, **expect):
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def _step(model, optimizer, state):
    optimizer.zero_grad()
    model(state).square().mean().backward()
    optimizer.step()


def seeds_that_depend_on_the_epoch():
    def loop(model, optimizer):
        for epoch in range(4):
            torch.manual_seed(1000 + epoch)
            random.seed(epoch)
            np.random.seed(epoch)
            for _ in range(4):
                _step(model, optimizer, torch.randn(8, 3) + random.random() + float(np.random.rand()))

    return _program(loop)


def evaluation_in_a_forked_state():
    def loop(model, optimizer):
        for _ in range(4):
            for _ in range(4):
                _step(model, optimizer, torch.randn(8, 3))
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(0)
                model(torch.randn(8, 3))

    return _program(loop)


def perturbation_drawn_twice_in_a_step():
    """The same noise is added and taken away again, from a seed that is new in each step."""

    def loop(model, optimizer):
        for _ in range(12):
            seed = int(torch.randint(10**6, ()))
            state = torch.get_rng_state()
            for sign in (1.0, -1.0):
                torch.manual_seed(seed)
                for parameter in model.parameters():
                    parameter.data += sign * 1e-3 * torch.randn_like(parameter)
            torch.set_rng_state(state)
            _step(model, optimizer, torch.randn(8, 3))

    return _program(loop)


def one_rollback_to_a_checkpoint():
    def loop(model, optimizer):
        for _ in range(3):
            _step(model, optimizer, torch.randn(8, 3))
        saved = torch.get_rng_state()
        _step(model, optimizer, torch.randn(8, 3))
        torch.set_rng_state(saved)
        _step(model, optimizer, torch.randn(8, 3))
        torch.manual_seed(5)
        for _ in range(6):
            _step(model, optimizer, torch.randn(8, 3))

    return _program(loop)


def nothing_drawn():
    model = nn.Linear(3, 2)

    def loop(model, optimizer):
        for _ in range(8):
            torch.manual_seed(0)
            _step(model, optimizer, torch.ones(8, 3))

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return {
        "model": model,
        "optimizer": optimizer,
        "loop": loop,
        "expect": {"not_examined": "nothing was drawn, or they were set back"},
    }


def _without_dropout(loop, optimizer=torch.optim.SGD, **expect):
    model = nn.Linear(3, 2)
    return {"model": model, "optimizer": optimizer(model.parameters(), lr=1e-3), "loop": loop, "expect": expect}


def validation_with_fixed_noise_after_each_step():
    def validation_loss(model):
        torch.manual_seed(0)
        np.random.seed(0)
        with torch.no_grad():
            return model(torch.randn(8, 3) + float(np.random.rand()))

    def loop(model, optimizer):
        for step in range(8):
            _step(model, optimizer, torch.full((8, 3), float(step)))
            validation_loss(model)

    return _without_dropout(loop)


def validation_in_eval_mode_that_records_gradients():
    def loop(model, optimizer):
        for step in range(8):
            torch.manual_seed(0)
            model.eval()
            (model(torch.randn(8, 3)).square().mean()).backward()
            model.train()
            _step(model, optimizer, torch.full((8, 3), float(step)))

    return _without_dropout(loop)


def noise_seeded_once_before_the_loop():
    def loop(model, optimizer):
        torch.manual_seed(42)
        for _ in range(8):
            _step(model, optimizer, torch.randn(8, 3))

    return _program(loop)


def noise_seeded_by_the_step():
    def loop(model, optimizer):
        for step in range(8):
            torch.manual_seed(42 + step)
            np.random.seed(step)
            _step(model, optimizer, torch.randn(8, 3) + float(np.random.rand()))

    return _program(loop)


def projection_drawn_again_in_a_forked_state():
    def loop(model, optimizer):
        for _ in range(8):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                projection = torch.randn(3, 3)
            _step(model, optimizer, torch.randn(8, 3) @ projection)

    return _program(loop)


def projection_that_is_all_that_is_drawn():
    def loop(model, optimizer):
        for step in range(8):
            state = torch.get_rng_state()
            torch.manual_seed(0)
            projection = torch.randn(3, 3)
            torch.set_rng_state(state)
            _step(model, optimizer, torch.full((8, 3), float(step)) @ projection)

    return _without_dropout(loop)


def projection_from_a_generator_of_its_own():
    def loop(model, optimizer):
        generator = torch.Generator()
        for _ in range(8):
            generator.manual_seed(0)
            _step(model, optimizer, torch.randn(8, 3) @ torch.randn(3, 3, generator=generator))

    return _program(loop)


def learning_rates_compared_from_one_seed():
    def loop(model, optimizer):
        initial = {name: value.clone() for name, value in model.state_dict().items()}
        for rate in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2):
            torch.manual_seed(0)
            model.load_state_dict(initial)
            optimizer = torch.optim.SGD(model.parameters(), lr=rate)
            _step(model, optimizer, torch.randn(8, 3))

    return _program(loop)


def two_models_that_see_the_same_noise():
    def loop(model, optimizer):
        other = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 2))
        for step in range(8):
            torch.manual_seed(100 + step)
            first = model(torch.randn(8, 3))
            torch.manual_seed(100 + step)
            second = other(torch.randn(8, 3))
            optimizer.zero_grad()
            (first - second.detach()).square().mean().backward()
            optimizer.step()

    return _program(loop)


def dropout_of_a_checkpointed_layer():
    def loop(model, optimizer):
        for _ in range(8):
            optimizer.zero_grad()
            checkpoint(model, torch.randn(8, 3), use_reentrant=False).square().mean().backward()
            optimizer.step()

    return _program(loop)


def closure_of_a_line_search():
    def loop(model, optimizer):
        def closure():
            torch.manual_seed(0)
            optimizer.zero_grad()
            loss = model(torch.randn(8, 3)).square().mean()
            loss.backward()
            return loss

        for _ in range(6):
            optimizer.step(closure)

    return _without_dropout(loop, torch.optim.LBFGS)


def three_steps_only():
    def loop(model, optimizer):
        for _ in range(3):
            _step(model, optimizer, torch.randn(8, 3))

    return _program(loop, not_examined="3 of 4 steps")


def shuffled_loader():
    return {
        "model": nn.Linear(3, 2),
        "batch": torch.randn(4, 3),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "dataloader": DataLoader(TensorDataset(torch.randn(16, 3)), batch_size=4, shuffle=True),
    }
