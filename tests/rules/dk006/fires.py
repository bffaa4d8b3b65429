"""Token ids without a row in the embedding, and labels without a class."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


def action_tokens_beyond_the_vocabulary():
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, vocab_size=50
    )
    ids = torch.randint(0, 50, (3, 6))
    ids[1, 4] = 57  # an action token appended to the vocabulary
    return {
        "model": LlamaForCausalLM(config),
        "batch": {"input_ids": ids, "labels": ids},
        "expect": {
            "module": "model.embed_tokens",
            "parameter": "model.embed_tokens.weight",
            "severity": "error",
            "message": "Index 57 in `input_ids` is out of range: `model.embed_tokens.weight` has 50 rows, 0 to 49.",
        },
    }


def sequence_longer_than_the_position_table():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=60, n_embd=16, n_layer=1, n_head=2, n_positions=8))
    ids = torch.randint(0, 60, (2, 12))
    return {
        "model": model,
        "batch": {"input_ids": ids, "labels": ids},
        "expect": {"module": "transformer.wpe", "message": "Index 11"},
    }


def labels_padded_with_another_number():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["labels"])  # DK006

    return {
        "model": nn.Linear(4, 5),
        "batch": {"x": torch.randn(3, 4), "labels": torch.tensor([0, -1, 2])},
        "loss_fn": loss_fn,
        "expect": {"message": "Index -1 in `labels` is out of range: `cross_entropy` has 5 classes"},
    }


def classes_counted_from_one():
    def loss_fn(model, batch):
        return F.nll_loss(F.log_softmax(model(batch["x"]), -1), batch["labels"])  # DK006

    return {
        "model": nn.Linear(4, 3),
        "batch": {"x": torch.randn(3, 4), "labels": torch.tensor([1, 2, 3])},
        "loss_fn": loss_fn,
        "expect": {"message": "Index 3"},
    }


def bins_of_an_action_one_too_many():
    def loss_fn(model, batch):
        target = F.one_hot(batch["bins"], num_classes=4).float()  # DK006
        return F.mse_loss(model(batch["x"]), target)

    batch = {"x": torch.randn(2, 3), "bins": torch.tensor([0, 4])}
    return {"model": nn.Linear(3, 4), "batch": batch, "loss_fn": loss_fn}


def gathered_beyond_the_logits():
    def loss_fn(model, batch):
        return -model(batch["x"]).log_softmax(-1).gather(1, batch["token"][:, None]).mean()  # DK006

    return {
        "model": nn.Linear(4, 3),
        "batch": {"x": torch.randn(2, 4), "token": torch.tensor([0, 9])},
        "loss_fn": loss_fn,
        "expect": {"message": "Index 9 in `token` is out of range: `gather` has 3 entries"},
    }


def loop_that_meets_the_token_in_a_later_step():
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, vocab_size=50
    )
    model = LlamaForCausalLM(config)

    def loop(model, optimizer):
        for step in range(6):
            ids = torch.randint(0, 50, (3, 6))
            if step == 4:
                ids[1, 2] = 50
            optimizer.zero_grad()
            model(input_ids=ids).logits.square().mean().backward()
            optimizer.step()

    return {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters()),
        "loop": loop,
        "raises": IndexError,
        "expect": {
            "parameter": "model.embed_tokens.weight",
            "message": "Index 50 is out of range: `model.embed_tokens.weight` has 50 rows, 0 to 49.",
        },
    }


def loop_that_meets_the_label_in_its_first_step():
    def loop(model, optimizer):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(4, 4)), torch.tensor([0, 1, 2, 3])).backward()  # DK006

    model = nn.Linear(4, 3)
    return {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters()),
        "loop": loop,
        "raises": IndexError,
        "expect": {"message": "Index 3 is out of range: `cross_entropy` has 3 classes, 0 to 2."},
    }
