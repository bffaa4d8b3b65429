"""Passes without gradients that are meant to run as they do."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


def _program(loop, *layers, **expect):
    torch.manual_seed(0)
    layers = layers or (nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1))
    model = nn.Sequential(nn.Linear(3, 8), *layers, nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def _train(model, optimizer, steps=4):
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 2)).backward()
        optimizer.step()


@torch.no_grad()
def _passes(model, number=3):
    return [model(torch.randn(4, 3)) for _ in range(number)]


def validation_in_eval_mode():
    def loop(model, optimizer):
        for _ in range(3):
            _train(model, optimizer)
            model.eval()
            _passes(model)
            model.train()

    return _program(loop)


def monte_carlo_dropout():
    def loop(model, optimizer):
        x = torch.randn(4, 3)
        for _ in range(3):
            _train(model, optimizer)
            with torch.no_grad():
                torch.stack([model(x) for _ in range(5)]).std(0)
            model.eval()
            model[2].train()
            _passes(model)
            model.train()

    return _program(loop, nn.LayerNorm(8), nn.Dropout(0.2))


def statistics_computed_again():
    def loop(model, optimizer):
        for _ in range(2):
            _train(model, optimizer)
            model[1].reset_running_stats()
            _passes(model)

    return _program(loop)


def statistics_of_averaged_weights():
    def loop(model, optimizer):
        average = torch.optim.swa_utils.AveragedModel(model)
        for _ in range(3):
            _train(model, optimizer)
            average.update_parameters(model)
        torch.optim.swa_utils.update_bn(torch.randn(4, 4, 3), average)
        model.load_state_dict(average.module.state_dict())
        _passes(model)

    return _program(loop)


def teacher_in_training_mode():
    def loop(model, optimizer):
        teacher = copy.deepcopy(model)
        for _ in range(3):
            _train(model, optimizer)
            _passes(teacher)

    return _program(loop)


def pseudo_labels_of_two_views_in_each_step():
    def loop(model, optimizer):
        _train(model, optimizer, steps=1)
        for _ in range(8):
            _passes(model, 2)
            _train(model, optimizer, steps=1)

    return _program(loop)


def policy_that_collects_data_before_each_update():
    def loop(model, optimizer):
        for _ in range(3):
            _passes(model, 8)
            _train(model, optimizer)

    return _program(loop, not_examined="Passes without gradients came before the first step")


def policy_that_acts_alone():
    def loop(model, optimizer):
        for _ in range(3):
            _train(model, optimizer)
            with torch.no_grad():
                for _ in range(5):
                    model(torch.randn(1, 3))

    return _program(loop, nn.LayerNorm(8), nn.Dropout(0.2))


def one_pass_for_the_log():
    def loop(model, optimizer):
        for _ in range(4):
            _train(model, optimizer)
            _passes(model, 1)

    return _program(loop)


def frozen_batch_norm_and_dropout_of_zero():
    def loop(model, optimizer):
        model[1].eval()
        for _ in range(3):
            _train(model, optimizer)
            _passes(model)

    return _program(loop, nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.0))


def norms_without_running_statistics():
    def loop(model, optimizer):
        for _ in range(3):
            _train(model, optimizer)
            _passes(model)

    return _program(loop, nn.BatchNorm1d(8, track_running_stats=False), nn.GroupNorm(2, 8))


def parts_that_the_loop_calls_one_by_one():
    def loop(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            model[4](model[0](torch.randn(4, 3))).square().mean().backward()
            optimizer.step()

    return _program(loop, not_examined="but its parts")
