"""Losses whose micro-batches add up to the whole batch."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, MixtralConfig, MixtralForCausalLM

from debugkit import Declare


def _mean(model, state):
    return model(state).square().mean()


def mean_over_equal_parts():
    """Dropout and batch statistics differ between micro-batches in train mode; the loss itself is fine."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    return {"model": model, "batch": torch.randn(8, 4), "loss_fn": _mean, "declare": Declare(accumulation=4)}


def language_model_of_equal_lengths():
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=30, n_positions=16))
    ids = torch.randint(30, (4, 8))
    return {"model": model, "batch": {"input_ids": ids, "labels": ids}, "declare": Declare(accumulation=2)}


def experts_that_a_part_does_not_route_to():
    config = MixtralConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=16,
        vocab_size=32,
        num_local_experts=4,
    )
    ids = torch.randint(32, (4, 6))
    batch = {"input_ids": ids, "labels": ids}
    return {"model": MixtralForCausalLM(config), "batch": batch, "declare": Declare(accumulation=4)}


def unequal_counts_divided_by_all_of_them():
    def loss(model, batch):
        error = (model(batch["state"]) - batch["action"]).square() * batch["valid"]
        return error.sum() / batch["count"].mean()

    valid = torch.ones(6, 3)
    valid[:2, 1:] = 0
    batch = {"state": torch.randn(6, 4), "action": torch.randn(6, 3), "valid": valid}
    batch["count"] = torch.full((6,), float(valid.sum()))

    def whole_or_part(model, batch):
        return loss(model, batch) * 6 / len(batch["state"])

    declare = Declare(accumulation=3)
    return {"model": nn.Linear(4, 3), "batch": batch, "loss_fn": whole_or_part, "declare": declare}


def contrastive_and_declared():
    def loss(model, state):
        similarity = model(state) @ model(state).T
        return nn.functional.cross_entropy(similarity, torch.arange(len(state)))

    return {
        "model": nn.Linear(4, 8),
        "batch": torch.randn(8, 4),
        "loss_fn": loss,
        "declare": Declare(accumulation=2, coupled_batch=True),
        "expect": {"not_examined": "declared to influence each other"},
    }


def no_accumulation():
    return {
        "model": nn.Linear(4, 2),
        "batch": torch.randn(8, 4),
        "loss_fn": lambda model, state: model(state).square().sum(),
        "expect": {"not_examined": "No accumulation was declared"},
    }


def type_written_into_the_code():
    """It cannot run in float64, and is compared in float32."""

    class Single(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, state):
            return self.head(state.float() + torch.ones(4))

    return {"model": Single(), "batch": torch.randn(8, 4), "loss_fn": _mean, "declare": Declare(accumulation=2)}


def _loop(accumulate, optimizer=torch.optim.SGD, model=None):
    """Five steps: `accumulate(model)` calls backward several times."""

    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            accumulate(model)
            optimizer.step()

    model = model or nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    return {"model": model, "optimizer": optimizer(model.parameters(), 0.01), "loop": loop}


def _loss(model, **options):
    return F.cross_entropy(model(torch.randn(6, 4)), torch.randint(3, (6,)), **options)


def losses_divided_by_their_number():
    def accumulate(model):
        for _ in range(4):
            (_loss(model) / 4).backward()

    return _loop(accumulate)


def gradients_divided_and_clipped():
    def accumulate(model):
        for _ in range(4):
            _loss(model).backward()
        for parameter in model.parameters():
            parameter.grad.div_(4)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)

    return _loop(accumulate)


def gradients_divided():
    def accumulate(model):
        for _ in range(4):
            _loss(model).backward()
        for parameter in model.parameters():
            parameter.grad /= 4

    return _loop(accumulate)


def sums_divided_by_the_number_of_targets_in_all_parts():
    def accumulate(model):
        for _ in range(4):
            (_loss(model, reduction="sum") / 24).backward()

    return _loop(accumulate)


def adam_without_a_clip():
    def accumulate(model):
        for _ in range(4):
            _loss(model).backward()

    return _loop(accumulate, torch.optim.AdamW)


def real_and_generated_samples():
    def accumulate(model):
        _loss(model).backward()
        _loss(model).backward()

    return _loop(accumulate)


def losses_of_one_forward_pass():
    def accumulate(model):
        output = model(torch.randn(6, 4))
        for target in (torch.zeros(6, 3), torch.ones(6, 3)):
            F.mse_loss(output, target).backward(retain_graph=True)

    return _loop(accumulate)


def heads_of_two_tasks():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk, self.heads = nn.Linear(4, 8), nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 3)])

        def forward(self, x, task):
            return self.heads[task](self.trunk(x).tanh())

    def accumulate(model):
        for task in range(2):
            F.cross_entropy(model(torch.randn(6, 4), task), torch.randint(3, (6,))).backward()

    return _loop(accumulate, model=Heads())


def gradients_of_the_first_pass_thrown_away():
    def accumulate(model):
        for _ in range(2):
            model.zero_grad(set_to_none=False)
            _loss(model).backward()

    return _loop(accumulate)


def two_optimizers():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizers = [torch.optim.SGD(part.parameters(), 0.02) for part in (model[0], model[2])]

    def loop(model, optimizers):
        for _ in range(5):
            model.zero_grad()
            for _ in range(2):
                _loss(model).backward()
            for optimizer in optimizers:
                optimizer.step()

    expect = {"not_examined": "Several optimizers step"}
    return {"model": model, "optimizer": optimizers, "loop": loop, "expect": expect}
