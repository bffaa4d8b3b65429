"""Losses that receive the correct kind of input."""

import torch
import torch.nn.functional as F
from torch import nn


def _program(loss, classes=5, target=None):
    batch = {"x": torch.randn(6, 4), "labels": torch.randint(0, classes, (6,)) if target is None else target}
    return {
        "model": nn.Linear(4, classes),
        "batch": batch,
        "loss_fn": lambda model, batch: loss(model(batch["x"]), batch["labels"]),
    }


def logits():
    return _program(F.cross_entropy)


def log_probabilities_given_to_cross_entropy():
    return _program(lambda logits, labels: F.cross_entropy(logits.log_softmax(-1), labels))


def log_probabilities_given_to_nll_loss():
    return _program(lambda logits, labels: F.nll_loss(logits.log_softmax(-1), labels))


def probabilities_as_targets():
    return _program(F.cross_entropy, target=torch.randn(6, 5).softmax(-1))


def logits_between_zero_and_one():
    return _program(lambda logits, labels: F.cross_entropy(logits.sigmoid() * 0.9, labels))


def metric_without_gradient():
    def loss(logits, labels):
        with torch.no_grad():
            F.cross_entropy(logits.softmax(-1), labels)
        return F.cross_entropy(logits, labels)

    return _program(loss)


def attention_inside_the_model():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4
    )
    ids = torch.randint(3, 60, (3, 8))
    return {"model": LlamaForCausalLM(config), "batch": {"input_ids": ids, "labels": ids}}


def generator_and_discriminator_with_logits():
    target = torch.rand(6, 5).round()
    return _program(lambda logits, labels: F.binary_cross_entropy_with_logits(logits, labels), target=target)


def sigmoid_scaled_to_a_score():
    target = torch.rand(6, 5).round()
    return _program(
        lambda logits, labels: F.binary_cross_entropy_with_logits(10 * logits.sigmoid() - 5, labels), target=target
    )


def regression():
    return _program(lambda prediction, target: F.mse_loss(prediction, target), target=torch.randn(6, 5))
