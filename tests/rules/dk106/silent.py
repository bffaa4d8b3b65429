"""Modules that are used, or that are not supposed to train."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def features(self, x):
        return self.vision(x)

    def forward(self, x, y):
        return {"loss": (self.head(self.features(x)) - y).square().mean()}


def _program(model, **more):
    return {"model": model, "batch": {"x": torch.randn(3, 4), "y": torch.randn(3, 2)}, **more}


def all_is_called():
    return _program(Policy())


def frozen_spare_part():
    model = Policy()
    model.spare = nn.Linear(4, 4).requires_grad_(False)
    return _program(model)


def part_of_another_stage_that_no_optimizer_holds():
    model = Policy()
    model.spare = nn.Linear(4, 4)
    return _program(model, optimizer=torch.optim.AdamW([*model.vision.parameters(), *model.head.parameters()]))


def weights_used_without_calling_their_module():
    class Functional(Policy):
        def features(self, x):
            return nn.functional.linear(x, self.vision.weight, self.vision.bias)

    return _program(Functional())


def tied_to_a_module_that_is_not_called():
    model = Policy()
    model.words = nn.Linear(4, 2)
    model.words.weight, model.words.bias = model.head.weight, model.head.bias
    return _program(model)


def cut_off_and_still_used():
    class Cut(Policy):
        def features(self, x):
            return super().features(x).detach()

    return _program(Cut())


def last_prefix_layer_used_for_keys_and_values_only():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key_value, self.out = nn.Linear(4, 4), nn.Linear(4, 8), nn.Linear(4, 4)

    class Prefix(Policy):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Layer(), Layer()])

        def features(self, x):
            key, value = self.layers[0].key_value(x).chunk(2, -1)
            x = x + self.layers[0].out((self.layers[0].query(x) * key).sigmoid() * value)
            key, value = self.layers[1].key_value(x).chunk(2, -1)
            return self.vision(key) * value

    return _program(Prefix())


def encoder_with_a_pooler_that_nobody_reads():
    from transformers import BertConfig, BertModel

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            config = BertConfig(
                vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
            )
            self.text, self.head = BertModel(config), nn.Linear(8, 1)

        def forward(self, input_ids):
            return {"loss": self.head(self.text(input_ids).last_hidden_state).square().mean()}

    return {"model": Reader(), "batch": {"input_ids": torch.randint(0, 16, (2, 5))}}


def mixture_of_experts():
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=16,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=4,
    )
    ids = torch.randint(0, 16, (1, 3))
    return {"model": MixtralForCausalLM(config), "batch": {"input_ids": ids, "labels": ids}}


def checkpointed_tower():
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Policy):
        def features(self, x):
            return checkpoint(self.vision, x.requires_grad_(), use_reentrant=True)

    return _program(Checkpointed())


def head_that_another_batch_of_the_loader_needs():
    class TwoHeads(Policy):
        def __init__(self):
            super().__init__()
            self.steering = nn.Linear(4, 1)

        def forward(self, x, y, steer=None):
            loss = (self.head(self.vision(x)) - y).square().mean()
            return {"loss": loss if steer is None else loss + (self.steering(self.vision(x)) - steer).square().mean()}

    batches = [{"x": torch.randn(3, 4), "y": torch.randn(3, 2)} for _ in range(4)]
    batches[2]["steer"] = torch.randn(3, 1)
    return {"model": TwoHeads(), "dataloader": batches}
