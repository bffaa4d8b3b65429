"""Zero gradients that become non-zero after a step, or that are correct."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.adapter, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def features(self, seen):
        return seen + self.adapter(seen)

    def forward(self, x, action, **more):
        return {"loss": (self.head(self.features(self.vision(x), **more)) - action).square().mean()}


def _program(model, **more):
    return {"model": model, "batch": {"x": torch.randn(8, 6), "action": torch.randn(8, 2), **more}}


def nothing_is_zero():
    return _program(Policy())


def gate_that_starts_at_zero():
    class Gated(Policy):
        def __init__(self):
            super().__init__()
            self.gate = nn.Parameter(torch.zeros(8))

        def features(self, seen):
            return seen + self.gate.tanh() * self.adapter(seen)

    return _program(Gated())


def gate_and_projection_that_both_start_at_zero():
    class Gated(Policy):
        def __init__(self):
            super().__init__()
            self.gate = nn.Parameter(torch.zeros(()))
            nn.init.zeros_(self.adapter.weight)
            nn.init.zeros_(self.adapter.bias)

        def features(self, seen):
            return seen + self.gate * self.adapter(seen.tanh())

    return _program(Gated())


def lora():
    from peft import LoraConfig, get_peft_model

    return _program(get_peft_model(Policy(), LoraConfig(target_modules=["vision", "adapter"], r=2)))


def zero_initialised_head():
    model = Policy()
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    return _program(model)


def experts_that_no_token_chose():
    class Routed(Policy):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])

        def features(self, seen):
            out = seen.clone()
            for number, expert in enumerate(self.experts):
                rows = torch.arange(len(seen))[: len(seen) if number == 1 else 0]
                out = out.index_add(0, rows, expert(seen[rows]))
            return self.adapter(out)

    return _program(Routed())


def experts_weighted_by_zero():
    class Dense(Policy):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(4)])

        def features(self, seen):
            chosen = torch.tensor([0.0, 1.0, 0.0, 0.0])
            return self.adapter(sum(weight * expert(seen) for weight, expert in zip(chosen, self.experts, strict=True)))

    return _program(Dense())


def heads_of_other_robots():
    class Robots(Policy):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleDict({"arm": nn.Linear(8, 8), "hand": nn.Linear(8, 8)})

        def features(self, seen, robot):
            seen = self.adapter(seen)
            return torch.where(robot[:, None] == 0, self.heads["arm"](seen), self.heads["hand"](seen))

    return _program(Robots(), robot=torch.zeros(8, dtype=torch.long))


def camera_switched_off_by_its_mask():
    class TwoCameras(Policy):
        def features(self, seen, wrist, wrist_is_there):
            return seen + self.adapter(wrist) * wrist_is_there[:, None]

    return _program(TwoCameras(), wrist=torch.randn(8, 8), wrist_is_there=torch.zeros(8, dtype=torch.bool))


def attention_to_a_single_token():
    from transformers import LlamaConfig, LlamaForCausalLM

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            config = LlamaConfig(
                vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
            )
            self.words, self.head = LlamaForCausalLM(config), nn.Linear(16, 2)

        def forward(self, input_ids, action):
            return {"loss": (self.head(self.words(input_ids).logits[:, -1]) - action).square().mean()}

    return {"model": Reader(), "batch": {"input_ids": torch.randint(0, 16, (8, 1)), "action": torch.randn(8, 2)}}


def embedding_of_words_that_no_batch_holds():
    class Spoken(Policy):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(32, 8, padding_idx=0)

        def features(self, seen, ids):
            return self.adapter(seen + self.words(ids).sum(1))

    return _program(Spoken(), ids=torch.zeros(8, 4, dtype=torch.long))


def key_bias_that_a_softmax_cancels():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=8, patch_size=4
    )
    batch = {"pixel_values": torch.randn(3, 3, 8, 8), "labels": torch.tensor([0, 1, 1])}
    return {"model": ViTForImageClassification(config), "batch": batch}


def loss_that_is_already_zero():
    class Hinge(Policy):
        def forward(self, x, action):
            return {"loss": (super().forward(x, action)["loss"] - 1e6).clamp(min=0)}

    return _program(Hinge()) | {"expect": {"not_examined": "The loss is 0"}}


def straight_through_estimator():
    class Rounding(Policy):
        def features(self, seen):
            return self.adapter(seen + (seen.round() - seen).detach())

    return _program(Rounding())


def auxiliary_loss_whose_weight_is_still_zero():
    class Scheduled(Policy):
        def __init__(self):
            super().__init__()
            self.auxiliary, self.epoch = nn.Linear(8, 6), 0

        def forward(self, x, action):
            seen = self.vision(x)
            weight = min(self.epoch / 10, 1.0)
            loss = (self.head(self.features(seen)) - action).square().mean()
            return {"loss": loss + weight * (self.auxiliary(seen) - x).square().mean()}

    return _program(Scheduled())
