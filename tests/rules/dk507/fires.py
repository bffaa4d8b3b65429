"""Losses whose micro-batches do not add up to the whole batch."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from debugkit import Declare
from small_trainer import train_in_pairs


def language_model_with_unequal_lengths():
    config = LlamaConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=32
    )
    ids = torch.randint(32, (4, 8))
    labels = ids.clone()
    labels[0, 2:] = -100
    return {
        "model": LlamaForCausalLM(config),
        "batch": {"input_ids": ids, "labels": labels},
        "declare": Declare(accumulation=2),
        "expect": {"severity": "error", "message": "unequal counts"},
    }


def summed_loss():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    return {
        "model": model,
        "batch": torch.randn(8, 4),
        "loss_fn": lambda model, state: model(state).square().sum(),
        "declare": Declare(accumulation=4),
        "expect": {"severity": "error", "message": "0.25 times the norm"},
    }


def padded_actions():
    """A mean over the unpadded steps of each chunk's micro-batch."""

    def loss(model, batch):
        error = (model(batch["state"]) - batch["action"]).square()
        return (error * batch["valid"]).sum() / batch["valid"].sum()

    valid = torch.ones(6, 3)
    valid[:2, 1:] = 0
    batch = {"state": torch.randn(6, 4), "action": torch.randn(6, 3), "valid": valid}
    declare = Declare(accumulation=3)
    return {"model": nn.Linear(4, 3), "batch": batch, "loss_fn": loss, "declare": declare}


def _model():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def _draw():
    return torch.randn(6, 4), torch.randint(3, (6,))


def four_means_added_in_a_loop():
    def loop(model, optimizer):
        for micro in range(24):
            x, y = _draw()
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # DK507
            if micro % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()

    model = _model()
    expect = {"severity": "info", "message": "the gradient is 4 times that of the whole batch"}
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.05), "loop": loop, "expect": expect}


def two_means_and_a_penalty_added_and_clipped():
    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad(set_to_none=False)
            for _ in range(2):
                x, y = _draw()
                output = model(x)
                (F.cross_entropy(output, y) + 0.01 * output.square().mean()).backward()  # DK507
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()

    model = _model()
    expect = {"severity": "info", "message": "the clipped gradient is 2 times"}
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), 0.01), "loop": loop, "expect": expect}


def divided_by_the_program_and_by_accelerate():
    from accelerate import Accelerator

    accum_steps = 4

    def loop(model, optimizer):
        accelerator = Accelerator(gradient_accumulation_steps=accum_steps, cpu=True)
        model, optimizer = accelerator.prepare(model, optimizer)
        for _ in range(20):
            with accelerator.accumulate(model):
                x, y = _draw()
                loss = F.cross_entropy(model(x), y)
                loss = loss / accum_steps
                accelerator.backward(loss)  # DK507
                optimizer.step()
                optimizer.zero_grad()

    model = _model()
    expect = {"severity": "warning", "message": "The gradient is 1/4 of that of the whole batch"}
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.05), "loop": loop, "expect": expect}


def divided_twice_and_clipped():
    """The number is read from Accelerate itself, and the loss has two terms."""
    from accelerate import Accelerator

    def loop(model, optimizer):
        accelerator = Accelerator(gradient_accumulation_steps=3, cpu=True)
        model, optimizer = accelerator.prepare(model, optimizer)
        for _ in range(15):
            with accelerator.accumulate(model):
                x, y = _draw()
                output = model(x)
                loss = F.cross_entropy(output, y) + 0.01 * output.square().mean()
                accelerator.backward(loss / accelerator.gradient_accumulation_steps)  # DK507
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.01)
                optimizer.step()
                optimizer.zero_grad()

    model = _model()
    expect = {"severity": "warning", "message": "The clipped gradient is 1/3"}
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), 0.01), "loop": loop, "expect": expect}


def _accelerated(backward, steps):
    from accelerate import Accelerator

    def loop(model, optimizer):
        accelerator = Accelerator(gradient_accumulation_steps=steps, cpu=True)
        model, optimizer = accelerator.prepare(model, optimizer)
        for _ in range(5 * steps):
            with accelerator.accumulate(model):
                x, y = _draw()
                backward(accelerator, F.cross_entropy(model(x), y))
                optimizer.step()
                optimizer.zero_grad()

    model = _model()
    expect = {"severity": "warning", "message": f"The gradient is 1/{steps} of that of the whole batch"}
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.05), "loop": loop, "expect": expect}


def multiplied_by_a_share_and_divided_by_accelerate():
    accum_steps = 3

    def backward(accelerator, loss):
        accelerator.backward(loss * (1 / accum_steps))  # DK507

    return _accelerated(backward, accum_steps)


def multiplied_by_a_variable_and_divided_by_accelerate():
    accum_steps = 4

    def backward(accelerator, loss):
        scale = 1.0 / accum_steps
        loss = scale * loss
        accelerator.backward(loss)  # DK507

    return _accelerated(backward, accum_steps)


class _Classifier(nn.Module):
    """Its forward accepts arguments of the loss, as the models of transformers do."""

    def __init__(self):
        super().__init__()
        self.layers = _model()

    def forward(self, x, labels=None, **_):
        logits = self.layers(x)
        return {"loss": None if labels is None else F.cross_entropy(logits, labels), "logits": logits}


def _trained_by(trainer, message):
    def loop(model, optimizer):
        train_in_pairs(trainer, model, optimizer)

    model = _Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "warning", "message": message}}


def smoothed_labels_in_a_trainer():
    from transformers import Trainer

    class Smoothed(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):  # DK507
            outputs = model(inputs["x"])
            loss = F.cross_entropy(outputs["logits"], inputs["labels"], label_smoothing=0.1)
            return (loss, outputs) if return_outputs else loss

    return _trained_by(Smoothed, "the reported training loss are 2 times as large")


def number_of_items_not_passed_on_in_a_trainer():
    from transformers import Trainer

    class Logged(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **_):  # DK507
            return super().compute_loss(model, inputs, return_outputs)

    return _trained_by(Logged, "adds the gradients of 2 of them and does not divide")
