"""Loops that keep every loss with its graph."""

import collections
import warnings

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 10


def _program(loop, model=None, **expect):
    model = model or nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "warning", **expect}}


def _step(model, optimizer):
    optimizer.zero_grad()
    loss = F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 2))
    loss.backward()
    optimizer.step()
    return loss


def summed_losses():
    def loop(model, optimizer):
        total = 0.0
        for _ in range(STEPS):
            total += _step(model, optimizer)  # DK601
        assert total > 0

    return _program(loop, message="`total`, a tensor, keeps them")


def running_mean_by_assignment():
    def loop(model, optimizer):
        mean = torch.zeros(())
        for _ in range(STEPS):
            mean = 0.9 * mean + 0.1 * _step(model, optimizer)  # DK601

    return _program(loop, message="`mean`, a tensor, keeps them")


def list_of_losses():
    def loop(model, optimizer):
        losses = []
        for _ in range(STEPS):
            losses.append(_step(model, optimizer))  # DK601

    return _program(loop, message="`losses`, a list, keeps them")


def dict_of_metrics():
    def loop(model, optimizer):
        metrics = collections.defaultdict(list)
        for _ in range(STEPS):
            metrics["loss"].append(_step(model, optimizer))  # DK601

    return _program(loop, message="`metrics`, a defaultdict, keeps them")


class Trainer:
    def __init__(self):
        self.history = []

    def train(self, model, optimizer):
        for step in range(STEPS):
            loss = _step(model, optimizer)
            self.history.append({"step": step, "loss": loss})  # DK601


def attribute_of_a_trainer():
    return _program(Trainer().train, message="`self.history`, a list, keeps them")


def only_every_other_loss():
    def loop(model, optimizer):
        kept = []
        for step in range(3 * STEPS):
            loss = _step(model, optimizer)
            if step % 2 == 0:
                kept.append(loss)  # DK601

    return _program(loop, message="`kept`, a list, keeps them")


def predictions_kept_for_a_plot():
    """The losses are numbers, and the outputs keep the graphs."""

    def loop(model, optimizer):
        predictions = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            action = model(torch.randn(4, 3))
            F.mse_loss(action, torch.randn(4, 2)).backward()
            optimizer.step()
            predictions.append(action)  # DK601

    return _program(loop, message="past outputs of the model are still alive, more after every step: `predictions`")


def _backward_with_a_graph(loss):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of it, once
        loss.backward(create_graph=True)  # DK601


def graph_of_the_gradients():
    def loop(model, optimizer):
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 2))
            _backward_with_a_graph(loss)
            optimizer.step()

    return _program(loop, message="The gradients had a graph in 5 steps, and nothing differentiated them")


def graph_of_accumulated_gradients():
    def loop(model, optimizer):
        for _ in range(STEPS):
            optimizer.zero_grad()
            for _ in range(2):
                _backward_with_a_graph(F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 2)))
            optimizer.step()

    return _program(loop, message="The gradients had a graph in 5 steps")


def features_kept_by_a_hook():
    """Outputs and losses are let go; the features keep the first layer's part of the graph."""
    hidden_states = []

    def keep(_module, _args, output):
        hidden_states.append(output)  # DK601

    def loop(model, optimizer):
        handle = model[0].register_forward_hook(keep)
        for _ in range(STEPS):
            _step(model, optimizer)
        handle.remove()

    return _program(loop, message="results inside of the model are still alive, although their steps have ended")


def features_kept_beside_outputs_that_live_for_a_few_steps():
    """More outputs than features are alive at times, but they are let go, as garbage in cycles is."""
    layer_outputs, recent = [], []

    def keep(_module, _args, output):
        layer_outputs.append(output)  # DK601

    def loop(model, optimizer):
        model[0].register_forward_hook(keep)
        for step in range(STEPS + 8):
            if step % 5 == 3:
                recent.clear()
            recent.extend(model(torch.randn(4, 3)) for _ in range(6))
            _step(model, optimizer)

    return _program(loop, message="`layer_outputs`, a list, keeps them")


def list_of_losses_beside_an_object_that_answers_to_any_name():
    class Proxy:
        def __getattr__(self, name):
            return Proxy()

        def __call__(self):
            return None

    def loop(model, optimizer):
        logger = Proxy()
        kept_losses = []
        for _ in range(STEPS):
            kept_losses.append(_step(model, optimizer))  # DK601
            logger()

    return _program(loop, message="`kept_losses`, a list, keeps them")


def features_kept_by_forward():
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk, self.head = nn.Linear(3, 8), nn.Linear(8, 2)
            self.features = []

        def forward(self, x):
            hidden = self.trunk(x).tanh()
            self.features.append(hidden)  # DK601
            return self.head(hidden)

    def loop(model, optimizer):
        for _ in range(STEPS):
            _step(model, optimizer)

    return _program(loop, message="results inside", model=Policy())
