"""Batches in which there is nothing to learn."""

import torch
from torch import nn

import debugkit


def _model(width=4, classes=5):
    return nn.Linear(width, classes)


def _cross_entropy(model, batch):
    return nn.functional.cross_entropy(model(batch["x"]), batch["labels"])


def template_masked_every_answer():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4
    )
    ids = torch.randint(3, 60, (3, 8))
    return {
        "model": LlamaForCausalLM(config),
        "batch": {"input_ids": ids, "labels": torch.full_like(ids, -100)},
        "expect": {"severity": "error", "message": "All 24 values of `labels` are ignored"},
    }


def every_token_has_the_same_label():
    batch = {"x": torch.randn(4, 6, 4), "labels": torch.full((4, 6), 2)}

    def loss_fn(model, batch):
        return nn.functional.cross_entropy(model(batch["x"]).transpose(1, 2), batch["labels"])

    return {
        "model": _model(),
        "batch": batch,
        "loss_fn": loss_fn,
        "expect": {"severity": "warning", "message": "are 2."},
    }


def samples_of_one_class_are_only_information():
    batch = {"x": torch.randn(16, 4), "labels": torch.ones(16, dtype=torch.long)}
    return {"model": _model(), "batch": batch, "loss_fn": _cross_entropy, "expect": {"severity": "info"}}


def action_column_of_zeros():
    batch = {"x": torch.randn(4, 4), "goal": torch.zeros(4, 5)}
    return {
        "model": _model(),
        "batch": batch,
        "loss_fn": lambda model, batch: (model(batch["x"]) - batch["goal"]).square().mean(),
        "declare": debugkit.Declare(target="goal"),
        "expect": {"severity": "warning", "message": "of `goal` are 0"},
    }


def _collate(samples):  # DK307
    return {"x": torch.stack(samples), "labels": torch.full((len(samples),), -100)}


def collate_function_that_ignores_every_label():
    loader = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=8, collate_fn=_collate)
    return {
        "model": nn.Linear(4, 3),
        "dataloader": loader,
        "loss_fn": lambda model, batch: model(batch["x"]).square().mean(),
        "expect": {"message": "`labels` are ignored"},
    }


class _Samples(torch.utils.data.Dataset):
    def __init__(self, labels, index=0):
        self.x, self.labels, self.index = torch.randn(len(labels), 4), labels, index

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):  # DK307
        return {"x": self.x[index], "labels": self.labels[self.index]}


def label_of_the_first_sample_for_all_in_small_batches():
    loader = torch.utils.data.DataLoader(_Samples(torch.arange(40) % 5), batch_size=4, shuffle=True)
    return {
        "model": _model(),
        "dataloader": loader,
        "loss_fn": _cross_entropy,
        "expect": {"severity": "warning", "message": "All 40 samples of the training loader have 0 as `labels`"},
    }


def number_of_the_first_sample_for_all_of_a_large_set():
    loader = torch.utils.data.DataLoader(_Samples(torch.rand(700) + 2), batch_size=4, shuffle=True)
    return {
        "model": _model(classes=1),
        "dataloader": loader,
        "loss_fn": lambda model, batch: (model(batch["x"]).flatten() - batch["labels"]).square().mean(),
        "expect": {"severity": "warning", "message": "would have a probability of 0.006"},
    }


def binary_labels_of_one_class_in_a_pair():
    class Pairs(torch.utils.data.Dataset):
        def __init__(self):
            self.x, self.y = torch.randn(96, 4), torch.zeros(96, 1)

        def __len__(self):
            return len(self.x)

        def __getitem__(self, index):  # DK307
            return self.x[index], self.y[index]

    return {
        "model": _model(classes=1),
        "dataloader": torch.utils.data.DataLoader(Pairs(), batch_size=8, shuffle=True),
        "loss_fn": lambda model, batch: nn.functional.binary_cross_entropy_with_logits(model(batch[0]), batch[1]),
        "expect": {"severity": "warning", "message": "All 96 samples of the training loader have 0 as"},
    }
