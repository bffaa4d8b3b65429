"""Models and optimizers whose state_dicts are complete."""

import numpy as np
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


def _arguments(model, make=torch.optim.AdamW, batch=None, **options):
    optimizers = make(model.parameters(), **options)
    return {
        "model": model,
        "batch": torch.randn(6, 4) if batch is None else batch,
        "loss_fn": lambda model, state: model(state).square().mean(),
        "optimizer": optimizers,
    }


def adam_batchnorm_and_dropout():
    return _arguments(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2)))


def momentum():
    return _arguments(nn.Linear(4, 2), torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True)


def optimizer_that_has_already_stepped():
    arguments = _arguments(nn.Linear(4, 2))
    arguments["loss_fn"](arguments["model"], torch.randn(3, 4)).backward()
    arguments["optimizer"].step()
    return arguments


def several_optimizers():
    arguments = _arguments(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    model = arguments["model"]
    arguments["optimizer"] = [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam(model[1].parameters())]
    return arguments


def weight_norm():
    return _arguments(nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)))


def language_model_with_tied_weights_and_dropout():
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=30, n_positions=16))
    ids = torch.randint(30, (3, 8))
    batch = {"input_ids": ids, "labels": ids}
    return {"model": model, "batch": batch, "optimizer": torch.optim.AdamW(model.parameters())}


def rotary_embedding_in_buffers_that_are_not_saved():
    config = LlamaConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=32
    )
    model, ids = LlamaForCausalLM(config), torch.randint(32, (2, 6))
    batch = {"input_ids": ids, "labels": ids}
    return {"model": model, "batch": batch, "optimizer": torch.optim.AdamW(model.parameters())}


class Counting(nn.Module):
    """A counter that is only logged, a counter in a buffer, and a separate generator."""

    def __init__(self):
        super().__init__()
        self.head, self.calls, self.noise = nn.Linear(4, 2), 0, np.random.default_rng(0)
        self.register_buffer("step", torch.zeros(()))

    def forward(self, state):
        self.calls += 1
        self.step += 1
        return self.head(state + float(self.noise.normal())) / self.step


def counters_that_are_saved_or_only_logged():
    return _arguments(Counting())


class Averaged(nn.Module):
    """An average of the weights, next to the weights that train."""

    def __init__(self):
        super().__init__()
        self.online = nn.Linear(4, 2)
        self.average = nn.Linear(4, 2).requires_grad_(False)

    def forward(self, state):
        with torch.no_grad():
            for slow, fast in zip(self.average.parameters(), self.online.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        return self.online(state) - self.average(state)


def averaged_copy():
    return _arguments(Averaged())


_CALLS = [0]


def loss_that_counts_its_calls():
    """A counter of the loop, outside the model, is restored between the runs."""

    def annealed(model, state):
        _CALLS[0] += 1
        return model(state).square().mean() * (1 + _CALLS[0])

    return {**_arguments(nn.Linear(4, 2)), "loss_fn": annealed}


class Stateful(nn.Module):
    """Reads a text in pieces and carries the state of its LSTM in a plain attribute, detached."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head, self.state = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 2), None

    def forward(self, piece):
        output, state = self.lstm(piece, self.state)
        self.state = tuple(part.detach() for part in state)
        return self.head(output)


def state_of_a_recurrent_network_in_a_plain_attribute():
    return _arguments(Stateful(), batch=torch.randn(6, 5, 4))


def parameters_of_a_criterion():
    """The loss function holds a projector that the optimizer trains: it is saved by its own state_dict."""
    student, projector, teacher = nn.Linear(4, 3), nn.Linear(3, 8), nn.Linear(4, 8).requires_grad_(False)
    return {
        "model": student,
        "batch": torch.randn(6, 4),
        "loss_fn": lambda model, state: (projector(model(state)) - teacher(state)).square().mean(),
        "optimizer": torch.optim.Adam([*student.parameters(), *projector.parameters()], lr=1e-2),
    }
