"""Lookups whose indices all fit, some of them at the limit."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration


def last_token_and_last_position():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=60, n_embd=16, n_layer=1, n_head=2, n_positions=8))
    ids = torch.full((2, 8), 59)
    labels = ids.clone()
    labels[:, :3] = -100
    return {"model": model, "batch": {"input_ids": ids, "labels": labels}}


def encoder_decoder_with_ignored_labels():
    config = T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)
    labels = torch.randint(0, 60, (2, 8))
    labels[0, 5:] = -100
    batch = {"input_ids": torch.randint(0, 60, (2, 8)), "labels": labels}
    return {"model": T5ForConditionalGeneration(config), "batch": batch}


def another_ignored_label():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["labels"], ignore_index=-1)

    return {
        "model": nn.Linear(4, 5),
        "batch": {"x": torch.randn(3, 4), "labels": torch.tensor([0, -1, 4])},
        "loss_fn": loss_fn,
    }


def ignored_label_above_the_classes():
    def loss_fn(model, batch):
        return nn.CrossEntropyLoss(ignore_index=255)(model(batch["image"]), batch["labels"])

    labels = torch.randint(0, 3, (2, 6, 6))
    labels[:, 0] = 255
    return {
        "model": nn.Conv2d(3, 3, 1),
        "batch": {"image": torch.randn(2, 3, 6, 6), "labels": labels},
        "loss_fn": loss_fn,
    }


def padding_row_and_bag():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(10, 4, padding_idx=9)
            self.bag = nn.EmbeddingBag(10, 4)

        def forward(self, ids):
            return {"loss": (self.words(ids).mean(1) + self.bag(ids)).mean()}

    return {"model": Bag(), "batch": {"ids": torch.tensor([[0, 9, 9], [1, 2, 9]])}}


def probabilities_as_targets():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["target"].softmax(-1))

    batch = {"x": torch.randn(3, 4), "target": torch.randn(3, 5)}
    return {"model": nn.Linear(4, 5), "batch": batch, "loss_fn": loss_fn}


def one_hot_that_counts_for_itself():
    def loss_fn(model, batch):
        return F.mse_loss(model(batch["x"]), F.one_hot(batch["y"]).float())

    batch = {"x": torch.randn(3, 4), "y": torch.tensor([0, 1, 2])}
    return {"model": nn.Linear(4, 3), "batch": batch, "loss_fn": loss_fn}


def gathered_along_the_last_dimension():
    def loss_fn(model, batch):
        logits = model(batch["x"])
        return -logits.log_softmax(-1).gather(dim=-1, index=batch["y"][:, None]).mean()

    return {
        "model": nn.Linear(4, 3),
        "batch": {"x": torch.randn(5, 4), "y": torch.tensor([0, 1, 2, 2, 2])},
        "loss_fn": loss_fn,
    }


def loop_that_raises_another_index_error():
    model = nn.Linear(4, 3)

    def loop(model, optimizer):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(4, 4)), torch.tensor([0, 1, 2, 2])).backward()
        optimizer.step()
        model.weight[3]

    return {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters()),
        "loop": loop,
        "raises": IndexError,
        "expect": {"not_examined": "in a loop, one that raised is"},
    }
