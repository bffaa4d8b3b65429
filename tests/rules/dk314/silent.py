"""Labels that are shifted once, in the data or in the loss."""

import torch
import torch.nn.functional as F

_SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
}


def the_model_shifts():
    from transformers import LlamaConfig, LlamaForCausalLM

    ids = torch.randint(3, 60, (3, 8))
    labels = ids.clone()
    labels[:, :3] = -100
    return {"model": LlamaForCausalLM(LlamaConfig(**_SIZES)), "batch": {"input_ids": ids, "labels": labels}}


def the_data_is_shifted_and_the_loss_is_not():
    from transformers import LlamaConfig, LlamaForCausalLM

    def loss_fn(model, batch):
        logits = model(input_ids=batch["input_ids"]).logits
        return F.cross_entropy(logits.transpose(1, 2), batch["labels"])

    text = torch.randint(3, 60, (3, 9))
    return {
        "model": LlamaForCausalLM(LlamaConfig(**_SIZES)),
        "batch": {"input_ids": text[:, :-1], "labels": text[:, 1:].clone()},
        "loss_fn": loss_fn,
    }


def bert_reconstructs():
    from transformers import BertConfig, BertForMaskedLM

    ids = torch.randint(3, 60, (3, 8))
    return {"model": BertForMaskedLM(BertConfig(**_SIZES)), "batch": {"input_ids": ids, "labels": ids.clone()}}


def one_token_repeated():
    from transformers import LlamaConfig, LlamaForCausalLM

    ids = torch.full((2, 6), 7)
    return {
        "model": LlamaForCausalLM(LlamaConfig(**_SIZES)),
        "batch": {"input_ids": ids, "labels": ids.clone()},
        "expect": {"not_examined": "repeats one token"},
    }


def other_labels_altogether():
    from transformers import BertConfig, BertForTokenClassification

    return {
        "model": BertForTokenClassification(BertConfig(**_SIZES, num_labels=5)),
        "batch": {"input_ids": torch.randint(3, 60, (3, 8)), "labels": torch.randint(0, 3, (3, 8))},
        "expect": {"not_examined": "no next-token prediction"},
    }
