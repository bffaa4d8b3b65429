"""Losses whose micro-batches add up to the whole batch."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, MixtralConfig, MixtralForCausalLM

from debugkit import Declare
from small_trainer import train_in_pairs


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


def _accelerated(backward, steps, optimizer=torch.optim.SGD):
    """`backward(accelerator, loss)` is called on the loss of each micro-batch."""
    from accelerate import Accelerator

    def loop(model, optimizer):
        accelerator = Accelerator(gradient_accumulation_steps=steps, cpu=True)
        model, optimizer = accelerator.prepare(model, optimizer)
        for _ in range(5 * steps):
            with accelerator.accumulate(model):
                backward(accelerator, model)
                optimizer.step()
                optimizer.zero_grad()

    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    return {"model": model, "optimizer": optimizer(model.parameters(), 0.01), "loop": loop}


def divided_by_accelerate_alone():
    return _accelerated(lambda accelerator, model: accelerator.backward(_loss(model)), 4)


def divided_by_the_program_alone():
    """`loss.backward()` does not divide."""
    accum = 4
    return _accelerated(lambda accelerator, model: (_loss(model) / accum).backward(), accum)


def half_of_a_squared_error_with_two_micro_batches():
    accum = 2

    def backward(accelerator, model):
        loss = F.mse_loss(model(torch.randn(6, 4)), torch.zeros(6, 3)) / 2
        logged = loss.item() / accum
        assert logged >= 0
        accelerator.backward(loss)

    return _accelerated(backward, accum)


def mean_over_as_many_heads_as_micro_batches():
    accum_heads = 2

    def backward(accelerator, model):
        loss = (_loss(model) + _loss(model)) / accum_heads
        accelerator.backward(loss)

    return _accelerated(backward, 2)


def divided_only_without_accelerate():
    accum_steps, accelerates = 2, True

    def backward(accelerator, model):
        loss = F.mse_loss(model(torch.randn(6, 4)), torch.zeros(6, 3)) / 2
        if accelerates:
            accelerator.backward(loss)
        else:
            loss = loss / accum_steps
            loss.backward()

    return _accelerated(backward, accum_steps)


def divided_twice_where_the_scale_has_no_effect():
    accum = 4
    return _accelerated(lambda accelerator, model: accelerator.backward(_loss(model) / accum), accum, torch.optim.AdamW)


def accumulation_by_hand_with_an_accelerator_that_does_not_accumulate():
    from accelerate import Accelerator

    accum = 4

    def loop(model, optimizer):
        accelerator = Accelerator(gradient_accumulation_steps=1, cpu=True)
        model, optimizer = accelerator.prepare(model, optimizer)
        for step in range(20):
            accelerator.backward(_loss(model) / accum)
            if step % accum == accum - 1:
                optimizer.step()
                optimizer.zero_grad()

    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.01), "loop": loop}


def losses_multiplied_by_a_share():
    accum = 4

    def accumulate(model):
        for _ in range(accum):
            (_loss(model) * (1 / accum)).backward()

    return _loop(accumulate)


def gradients_of_the_losses_given_to_backward():
    def accumulate(model):
        for _ in range(4):
            _loss(model).backward(gradient=torch.tensor(0.25))

    return _loop(accumulate)


def share_that_is_logged_with_accelerate():
    accum = 2

    def backward(accelerator, model):
        loss = 0.5 * F.mse_loss(model(torch.randn(6, 4)), torch.zeros(6, 3))
        logged = loss.item() * (1 / accum)
        assert logged >= 0
        accelerator.backward(loss)

    return _accelerated(backward, accum)


def half_of_a_loss_with_accelerate():
    half = 1 / 2
    return _accelerated(lambda accelerator, model: accelerator.backward(_loss(model) * half), 2)


class _Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x, labels=None, num_items_in_batch=None, **_):
        logits = self.layers(x)
        if labels is None:
            return {"logits": logits}
        loss = F.cross_entropy(logits, labels, reduction="sum" if num_items_in_batch is not None else "mean")
        return {"loss": loss if num_items_in_batch is None else loss / num_items_in_batch, "logits": logits}


class _TakesNoNumberOfItems(_Classifier):
    def forward(self, x, labels=None):
        return super().forward(x, labels)


def _trained_by(compute_loss, model=None, optimizer=torch.optim.AdamW, **attributes):
    from transformers import Trainer

    def loop(model, optimizer):
        methods = attributes if compute_loss is None else {**attributes, "compute_loss": compute_loss}
        train_in_pairs(type("Own", (Trainer,), methods), model, optimizer)

    model = model or _Classifier()
    return {"model": model, "optimizer": optimizer(model.parameters(), 0.01), "loop": loop}


def _mean_in_trainer(self, model, inputs, return_outputs=False, num_items_in_batch=None):
    return F.cross_entropy(model(inputs["x"])["logits"], inputs["labels"])


def loss_of_the_model_in_a_trainer():
    return _trained_by(None)


def number_of_items_used_in_a_trainer():
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        logits = model(inputs["x"])["logits"]
        return F.cross_entropy(logits, inputs["labels"], reduction="sum") / num_items_in_batch

    return _trained_by(compute_loss)


def mean_weighted_by_its_share_of_the_items_in_a_trainer():
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        mean = F.cross_entropy(model(inputs["x"])["logits"], inputs["labels"])
        return mean * (len(inputs["labels"]) / int(num_items_in_batch))

    return _trained_by(compute_loss)


def mean_divided_by_the_number_of_micro_batches_in_a_trainer():
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return _mean_in_trainer(self, model, inputs) / self.current_gradient_accumulation_steps

    return _trained_by(compute_loss)


def mean_that_the_trainer_divides():
    return _trained_by(_mean_in_trainer, _TakesNoNumberOfItems(), torch.optim.SGD)


def mean_that_the_trainer_is_told_to_divide():
    return _trained_by(_mean_in_trainer, loss_is_scaled_for_ga=False)
