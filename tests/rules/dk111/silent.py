"""ReLU layers in which each unit is active for some sample."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.act, self.head = nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)

    def hidden(self, x):
        return self.act(self.vision(x))

    def forward(self, x, action):
        return {"loss": (self.head(self.hidden(x)) - action).square().mean()}


def _program(model, size=16):
    return {"model": model, "batch": {"x": torch.randn(size, 6), "action": torch.randn(size, 2)}}


def freshly_initialised():
    return _program(Policy())


def a_few_dead_units():
    model = Policy()
    with torch.no_grad():
        model.vision.bias[:12] = -30
    return _program(model)


def sparse_and_alive():
    class Sparse(Policy):
        def hidden(self, x):
            values = self.vision(x)
            return torch.relu(values - values.amax(0, keepdim=True) + 1e-3)

    return _program(Sparse())


def held_at_zero_by_a_gate():
    class Gated(Policy):
        def __init__(self):
            super().__init__()
            self.gate = nn.Parameter(torch.zeros(16))

        def hidden(self, x):
            return x @ torch.ones(6, 16) + nn.functional.relu(self.gate * self.vision(x) + self.gate)

    return _program(Gated())


def hinge_loss_that_is_satisfied():
    class Contrastive(Policy):
        def forward(self, x, action):
            z = nn.functional.normalize(self.vision(x), dim=-1)
            satisfied = torch.relu(z @ z.T - 2)
            return {"loss": super().forward(x, action)["loss"] + satisfied.sum()}

    return _program(Contrastive())


def one_sample():
    model = Policy()
    nn.init.constant_(model.vision.bias, -1)
    return _program(model, size=1)


def other_activations():
    class Smooth(Policy):
        def hidden(self, x):
            return nn.functional.gelu(nn.functional.leaky_relu(self.vision(x) - 50))

    return _program(Smooth())


def expert_that_gets_no_tokens():
    class Routed(Policy):
        def hidden(self, x):
            nobody = torch.relu(self.vision(x[:0]))
            return self.act(self.vision(x)) + nobody.sum()

    return _program(Routed())


def transformer_with_relus():
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=32,
        hidden_size=16,
        ffn_dim=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
        word_embed_proj_dim=16,
    )
    ids = torch.randint(3, 32, (4, 8))
    return {"model": OPTForCausalLM(config), "batch": {"input_ids": ids, "labels": ids}}
