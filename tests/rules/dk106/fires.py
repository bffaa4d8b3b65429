"""Modules that nothing calls."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.wrist = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.experts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.head = nn.Linear(4, 2)

    def forward(self, x, y):
        seen = self.experts[1](self.experts[0](self.vision(x)))
        return {"loss": (self.head(seen) - y).square().mean()}


def _program(model, **expect):
    batch = {"x": torch.randn(3, 4), "y": torch.randn(3, 2)}
    return {"model": model, "batch": batch, "expect": expect}


def encoder_of_the_second_camera_is_never_called():
    return _program(Policy(), module="wrist", severity="warning", message="4 trainable parameters")


def expert_that_no_token_chose():
    class Routed(Policy):
        def forward(self, x, y):
            return {"loss": (self.head(self.experts[0](self.wrist(self.vision(x)))) - y).square().mean()}

    return _program(Routed(), module="experts.1", severity="info", message="Its sibling `experts.0` is")


def projector_of_a_language_model_forgotten():
    from transformers import LlamaConfig, LlamaForCausalLM

    tiny = LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    model = LlamaForCausalLM(tiny)
    model.projector = nn.Linear(8, 8)
    ids = torch.randint(0, 16, (2, 5))
    return {"model": model, "batch": {"input_ids": ids, "labels": ids}, "expect": {"module": "projector"}}


def table_of_words_of_a_backbone_that_is_given_embeddings():
    from transformers import LlamaConfig, LlamaModel

    class Expert(Policy):
        def __init__(self):
            super().__init__()
            tiny = {"vocab_size": 16, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
            self.wrist = self.experts = nn.Identity()
            self.expert = LlamaModel(LlamaConfig(**tiny, hidden_size=4))

        def forward(self, x, y):
            hidden = self.expert(inputs_embeds=self.vision(x)[:, None]).last_hidden_state
            return {"loss": (self.head(hidden[:, 0]) - y).square().mean()}

    return _program(Expert(), module="expert.embed_tokens", severity="info")


class TwoHeads(Policy):
    """Reads `steer` from the batch and its own head for it, if the batch has any."""

    def __init__(self):
        super().__init__()
        self.wrist = self.experts = nn.Identity()
        self.steering = nn.Linear(4, 1)

    def forward(self, x, y, steer=None):
        loss = (self.head(self.vision(x)) - y).square().mean()
        return {"loss": loss if steer is None else loss + (self.steering(self.vision(x)) - steer).square().mean()}


def head_that_this_batch_does_not_need():
    return _program(TwoHeads(), module="steering", severity="info", message="another batch may need it")


def head_that_no_batch_of_the_loader_needs():
    batches = [{"x": torch.randn(3, 4), "y": torch.randn(3, 2)} for _ in range(4)]
    return {"model": TwoHeads(), "dataloader": batches, "expect": {"module": "steering", "severity": "warning"}}


class Heads(Policy):
    def __init__(self):
        super().__init__()
        self.wrist = self.experts = nn.Identity()
        self.heads = nn.ModuleDict({"reach": nn.Linear(4, 2), "grasp": nn.Linear(4, 2)})

    def forward(self, x, y, task="reach"):
        return {"loss": (self.heads[task](self.head.weight.new_ones(1) * self.vision(x)) - y).square().mean()}


def head_of_another_task_in_a_dictionary():
    model = Heads()
    model.head.requires_grad_(False)
    return _program(model, module="heads.grasp", severity="info", message="Its sibling `heads.reach` is")


def part_of_a_dictionary_that_is_a_name_space():
    class Named(Heads):
        def forward(self, x, y):
            return {"loss": (self.heads.reach(self.vision(x)) - y).square().mean()}

    model = Named()
    model.head.requires_grad_(False)
    return _program(model, module="heads.grasp", severity="warning")
