"""Steps that are random and repeatable."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

_NOISE = np.random.default_rng(0)


def _arguments(model, batch=None):
    return {
        "model": model,
        "batch": torch.randn(6, 4) if batch is None else batch,
        "loss_fn": lambda model, state: model(state).square().mean(),
    }


class EveryGlobalGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, state):
        scale = random.random() + float(np.random.rand())
        return self.body(state + torch.randn_like(state)) * scale


def dropout_noise_and_batchnorm():
    return _arguments(EveryGlobalGenerator())


class NoiseSchedule:
    def __init__(self):
        self.generator = torch.Generator().manual_seed(3)


class OwnGenerators(nn.Module):
    """Each generator is seeded once and is not reset between steps."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.own, self.numpy, self.schedule = (
            torch.Generator().manual_seed(1),
            np.random.default_rng(2),
            NoiseSchedule(),
        )

    def forward(self, state):
        noise = torch.randn(state.shape, generator=self.own) + torch.randn(
            state.shape, generator=self.schedule.generator
        )
        return self.head(state + noise + self.numpy.normal() + _NOISE.normal())


def seeded_generators_that_draw_on():
    return _arguments(OwnGenerators())


_HIDDEN_AWAY = [[torch.Generator().manual_seed(5)]]


class FarGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, state):
        return self.head(state + torch.randn(state.shape, generator=_HIDDEN_AWAY[0][0]))


def generator_out_of_reach_that_was_seeded_once():
    return _arguments(FarGenerator())


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.memory, self.calls = nn.GRUCell(4, 4), None, 0

    def forward(self, state):
        self.calls += 1
        self.memory = self.cell(state, self.memory).detach()
        return self.cell(state, self.memory) * self.calls


def memory_carried_from_step_to_step():
    return _arguments(Stateful())


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, state):
        return checkpoint(self.body, state, use_reentrant=False)


def checkpointing():
    return _arguments(Checkpointed())


def language_model():
    config = LlamaConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, vocab_size=32
    )
    ids = torch.randint(32, (2, 6))
    return {"model": LlamaForCausalLM(config), "batch": {"input_ids": ids, "labels": ids}}


def mixture_of_experts():
    config = MixtralConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=16,
        vocab_size=32,
        num_local_experts=4,
    )
    ids = torch.randint(32, (2, 6))
    return {"model": MixtralForCausalLM(config), "batch": {"input_ids": ids, "labels": ids}}


def sparse_embedding():
    model = nn.EmbeddingBag(20, 4, sparse=True)
    return _arguments(model, torch.randint(20, (6, 3)))
