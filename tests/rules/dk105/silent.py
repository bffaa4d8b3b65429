"""Gradients that all arrive, or are stopped on purpose."""

import copy

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def _program(model, **more):
    batch = {"x": torch.randn(3, 4), "y": torch.randn(3, 2)}
    return {"model": model, "batch": batch, **more}


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x, y):
        return {"loss": (self.head(self.vision(x)) - y).square().mean()}


def nothing_between():
    return _program(Policy())


def frozen_tower_detached():
    class Frozen(Policy):
        def forward(self, x, y):
            return {"loss": (self.head(self.vision(x).detach()) - y).square().mean()}

    model = Frozen()
    model.vision.requires_grad_(False)
    return _program(model)


def logged_value():
    class Logging(Policy):
        def forward(self, x, y):
            out = super().forward(x, y)
            self.last = out["loss"].item()
            return out

    return _program(Logging())


def straight_through_estimator():
    class Rounding(Policy):
        def forward(self, x, y):
            seen = self.vision(x)
            seen = seen + (seen.round() - seen).detach()
            return {"loss": (self.head(seen) - y).square().mean()}

    return _program(Rounding())


def checkpointed_tower():
    class Checkpointed(Policy):
        def forward(self, x, y):
            seen = checkpoint(self.vision, x, use_reentrant=False)
            return {"loss": (self.head(seen) - y).square().mean()}

    return _program(Checkpointed())


def expert_that_was_not_routed():
    model = Policy()
    model.experts = nn.ModuleList([nn.Linear(4, 4)])
    return _program(model)


def tokens_routed_to_one_expert_of_four():
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=16,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=1,
    )
    ids = torch.randint(0, 16, (1, 2))
    return {"model": MixtralForCausalLM(config), "batch": {"input_ids": ids, "labels": ids}}


def last_prefix_layer_used_for_its_keys_and_values_only():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.key_value, self.out = nn.Linear(4, 8), nn.Linear(4, 4)

        def forward(self, x):
            key, value = self.key_value(x).chunk(2, -1)
            return x + self.out(key.sigmoid() * value), (key, value)

    class Prefix(Policy):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Layer(), Layer()])

        def forward(self, x, y):
            hidden, cache = self.vision(x), []
            for layer in self.layers:
                hidden, key_value = layer(hidden)
                cache.append(key_value)
            action = sum(self.head(key.tanh() * value) for key, value in cache)  # not of the last hidden state
            return {"loss": (action - y).square().mean()}

    return _program(Prefix())


def ema_teacher_with_a_consistency_loss():
    class Consistent(Policy):
        def __init__(self):
            super().__init__()
            self.teacher = copy.deepcopy(self.vision).requires_grad_(False)

        def forward(self, x, y):
            loss = super().forward(x, y)["loss"]
            return {"loss": loss + (self.vision(x) - self.teacher(x).detach()).square().mean()}

    return _program(Consistent())


def byol_with_a_trainable_looking_target():
    class Byol(nn.Module):
        def __init__(self):
            super().__init__()
            self.online, self.predictor = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)), nn.Linear(4, 4)
            self.target = copy.deepcopy(self.online)

        def forward(self, x, y):
            with torch.no_grad():
                goal = self.target(x + 0.1 * y.mean())
            return {"loss": (self.predictor(self.online(x)) - goal).square().mean()}

    return _program(Byol())


def stop_gradient_of_one_branch_of_simsiam():
    class Siamese(Policy):
        def forward(self, x, y):
            return {"loss": -(self.head(self.vision(x)) * self.head(self.vision(x + 1)).detach()).mean() + 0 * y.sum()}

    return _program(Siamese())


def lora_on_a_frozen_language_model():
    from peft import LoraConfig, inject_adapter_in_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2)
    model = inject_adapter_in_model(LoraConfig(target_modules=["q_proj", "v_proj"], r=2), LlamaForCausalLM(config))
    ids = torch.randint(0, 16, (2, 5))
    return {"model": model, "batch": {"input_ids": ids, "labels": ids}}


def gate_that_starts_at_zero():
    class Gated(Policy):
        def __init__(self):
            super().__init__()
            self.gate, self.branch = nn.Parameter(torch.zeros(())), nn.Linear(4, 4)

        def forward(self, x, y):
            seen = self.vision(x)
            return {"loss": (self.head(seen + self.gate * self.branch(seen)) - y).square().mean()}

    return _program(Gated())


def vector_quantiser():
    class Quantised(Policy):
        def __init__(self):
            super().__init__()
            self.codes = nn.Embedding(8, 4)

        def forward(self, x, y):
            seen = self.vision(x)
            code = self.codes(torch.cdist(seen, self.codes.weight).argmin(-1))
            commitment = (seen - code.detach()).square().mean() + (seen.detach() - code).square().mean()
            passed = seen + (code - seen).detach()
            return {"loss": (self.head(passed) - y).square().mean() + commitment}

    return _program(Quantised())
