"""Frozen parameters and empty groups that are harmless."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.head = nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False)

    def forward(self, x):
        return {"loss": self.head(self.vision(x)).square().mean()}


def _program(model, optimizer, **more):
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "optimizer": optimizer, **more}


def no_decay_group_of_a_model_without_biases():
    model = Policy()
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return _program(model, torch.optim.AdamW(groups))


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(3), nn.Linear(3, 2)

    def forward(self, x):
        return {"loss": self.head(self.norm(x)).square().mean()}


def no_decay_group_beside_another_one():
    """As with a rate for each layer: a layer without biases has an empty group."""
    model = Normed()
    groups = [
        {"params": [model.head.weight], "weight_decay": 0.1},
        {"params": [model.head.bias, *model.norm.parameters()], "weight_decay": 0.0},
        {"params": [], "weight_decay": 0.0, "lr": 1e-4},
    ]
    return _program(model, torch.optim.AdamW(groups))


def no_weight_decay_anywhere():
    model = Normed()
    groups = [{"params": model.parameters()}, {"params": [], "weight_decay": 0.0}]
    return _program(model, torch.optim.AdamW(groups, weight_decay=0.0))


def empty_group_with_a_weight_decay():
    model = Normed()
    return _program(model, torch.optim.SGD([{"params": model.parameters()}, {"params": []}], lr=0.1, weight_decay=0.01))


def no_decay_group_whose_norms_are_frozen():
    model = Normed()
    model.norm.requires_grad_(False)
    model.head.bias.requires_grad_(False)
    groups = [{"params": model.parameters(), "weight_decay": 0.1}, {"params": [], "weight_decay": 0.0}]
    return _program(model, torch.optim.AdamW(groups))


def group_of_a_frozen_tower_filtered_to_nothing():
    model = Policy()
    model.vision.requires_grad_(False)
    tower = [p for p in model.vision.parameters() if p.requires_grad]
    groups = [{"params": model.head.parameters()}, {"params": tower, "lr": 1e-5}]
    return _program(model, torch.optim.AdamW(groups))


def frozen_tower_passed_with_the_rest():
    model = Policy()
    model.vision.requires_grad_(False)
    return _program(
        model, torch.optim.AdamW([{"params": model.vision.parameters()}, {"params": model.head.parameters()}])
    )


def lora_with_the_optimizer_of_all_parameters():
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(Policy(), LoraConfig(target_modules=["vision"]))
    return _program(model, torch.optim.AdamW(model.parameters()))


def player_of_a_gan_frozen_while_the_other_trains():
    model = Policy()
    model.vision.requires_grad_(False)
    return _program(model, [torch.optim.Adam(model.head.parameters()), torch.optim.Adam(model.vision.parameters())])


def group_that_is_filled_later_in_the_schedule():
    model = Policy()
    return _program(model, torch.optim.SGD([{"params": model.parameters()}, {"params": [], "lr": 1e-5}], lr=0.1))


def first_stage_frozen_after_its_training():
    """A reward model is trained, and then frozen to score a policy; its optimizer is not stepped again."""
    reward, policy = nn.Linear(3, 1), nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 3))

    def loop(_model, optimizer):
        for _ in range(12):
            optimizer.zero_grad()
            reward(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
        reward.requires_grad_(False)
        second = torch.optim.AdamW(policy.parameters())
        for _ in range(12):
            second.zero_grad()
            reward(policy(torch.randn(4, 3))).mean().neg().backward()
            second.step()

    return {"model": reward, "optimizer": torch.optim.AdamW(reward.parameters()), "loop": loop}
