"""Deep stacks that pass gradients on."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
        self.activation = activation

    def forward(self, x):
        return x + self.outer(self.activation(self.inner(self.norm(x))))


class Policy(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.vision, self.head = nn.Linear(16, 32), head

    def forward(self, x, action):
        return {"loss": (self.head(self.vision(x)) - action).square().mean()}


def _program(head):
    return {"model": Policy(head), "batch": {"x": torch.randn(32, 16), "action": torch.randn(32, 4)}}


def residual_blocks_with_sigmoids():
    return _program(nn.Sequential(*(Block(nn.Sigmoid()) for _ in range(12)), nn.Linear(32, 4)))


def relu_layers_with_their_gain():
    layers = [layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.ReLU())]
    for layer in layers[::2]:
        nn.init.kaiming_normal_(layer.weight)
    return _program(nn.Sequential(*layers, nn.Linear(32, 4)))


def small_everywhere():
    program = _program(nn.Sequential(*(Block(nn.GELU()) for _ in range(6)), nn.Linear(32, 4)))
    return program | {"loss_fn": lambda model, batch: 1e-12 * model(**batch)["loss"]}


def layer_scale_that_starts_small():
    class Scaled(Block):
        def __init__(self):
            super().__init__(nn.GELU())
            self.scale = nn.Parameter(1e-6 * torch.ones(32))

        def forward(self, x):
            return x + self.scale * self.outer(self.activation(self.inner(self.norm(x))))

    return _program(nn.Sequential(*(Scaled() for _ in range(8)), nn.Linear(32, 4)))


def parallel_heads_of_different_weight():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleList([nn.Linear(32, 4) for _ in range(6)])

        def forward(self, x):
            return sum(10.0 ** (number - 6) * head(x) for number, head in enumerate(self.heads))

    return _program(Heads())


def language_model_with_twelve_layers():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=12, num_attention_heads=2
    )
    ids = torch.randint(0, 32, (4, 8))
    return {"model": LlamaForCausalLM(config), "batch": {"input_ids": ids, "labels": ids}}


def post_norm_encoder():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=8, num_attention_heads=2)
    batch = {"input_ids": torch.randint(0, 32, (4, 8)), "labels": torch.tensor([0, 1, 1, 0])}
    return {"model": BertForSequenceClassification(config), "batch": batch}


def lora_on_deep_layers():
    from peft import LoraConfig, inject_adapter_in_model

    program = language_model_with_twelve_layers()
    model = inject_adapter_in_model(LoraConfig(target_modules=["q_proj", "v_proj"], r=2), program["model"])
    return program | {"model": model}


def recurrent_network():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out = nn.GRU(32, 32, num_layers=4, batch_first=True), nn.Linear(32, 4)

        def forward(self, x):
            return self.out(self.cell(x[:, None].expand(-1, 20, -1))[0][:, -1])

    return _program(Recurrent())
