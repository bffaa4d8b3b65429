"""Models that use no later tokens, and models that may use them."""

import torch
from torch import nn
from torch.nn import functional as F

_SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}


def _batch():
    mask = torch.ones(3, 8, dtype=torch.long)
    mask[1, 5:] = 0
    ids = torch.randint(3, 60, mask.shape) * mask
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return {"model": LlamaForCausalLM(LlamaConfig(**_SIZES, num_key_value_heads=2)), "batch": _batch()}


def gpt2_with_tied_weights_and_dropout():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
    return {"model": GPT2LMHeadModel(config).train(), "batch": _batch()}


def mixture_of_experts():
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(**_SIZES, num_key_value_heads=2, num_local_experts=4)
    return {"model": MixtralForCausalLM(config), "batch": _batch()}


def bidirectional_prefix_without_targets():
    from transformers import LlamaConfig, LlamaForCausalLM

    def loss_fn(model, batch):
        length = batch["input_ids"].shape[1]
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        seen[:4, :4] = True  # the prompt attends to itself in both directions
        mask = torch.zeros(1, 1, length, length).masked_fill(~seen, torch.finfo(torch.float32).min)
        return model(input_ids=batch["input_ids"], attention_mask=mask, labels=batch["labels"]).loss

    ids = torch.randint(3, 60, (3, 8))
    labels = ids.clone()
    labels[:, :4] = -100
    return {
        "model": LlamaForCausalLM(LlamaConfig(**_SIZES)),
        "batch": {"input_ids": ids, "labels": labels},
        "loss_fn": loss_fn,
    }


def bert_fills_in_masked_words():
    from transformers import BertConfig, BertForMaskedLM

    batch = _batch()
    hidden = torch.rand(batch["labels"].shape) < 0.3
    hidden[:, 1] = True
    batch["labels"] = batch["labels"].masked_fill(~hidden, -100)
    batch["input_ids"] = batch["input_ids"].masked_fill(hidden, 2)
    return {
        "model": BertForMaskedLM(BertConfig(**_SIZES)),
        "batch": batch,
        "expect": {"not_examined": "no next-token prediction"},
    }


def bert_reconstructs_its_input():
    from transformers import BertConfig, BertForMaskedLM

    return {
        "model": BertForMaskedLM(BertConfig(**_SIZES)),
        "batch": _batch(),
        "expect": {"not_examined": "reconstructs"},
    }


def t5_whose_labels_are_its_inputs():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)
    return {
        "model": T5ForConditionalGeneration(config),
        "batch": _batch(),
        "expect": {"not_examined": "reconstructs"},
    }


def classifier_of_sentences():
    from transformers import BertConfig, BertForSequenceClassification

    batch = _batch() | {"labels": torch.tensor([0, 1, 1])}
    return {
        "model": BertForSequenceClassification(BertConfig(**_SIZES)),
        "batch": batch,
        "expect": {"not_examined": "no labels for each"},
    }


class _Competing(nn.Module):
    """Each token takes a place in a queue of all tokens of the batch, as for the capacity of an expert."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(64, 16), nn.Linear(16, 64)

    def forward(self, input_ids):
        x = self.table(input_ids)
        return self.head(x + 0.1 * x.flatten(0, 1).cumsum(0).view_as(x))


def tokens_of_other_samples_that_compete():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["input_ids"])[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())

    ids = torch.randint(3, 60, (3, 8))
    return {"model": _Competing(), "batch": {"input_ids": ids, "labels": ids.clone()}, "loss_fn": loss_fn}


class _TwoTokensAhead(nn.Module):
    """A causal model with a second head that reads the next token, as for multi-token prediction."""

    def __init__(self):
        super().__init__()
        from transformers import LlamaConfig, LlamaModel

        self.base = LlamaModel(LlamaConfig(**_SIZES, num_key_value_heads=2))
        self.merge = nn.Linear(64, 32)
        self.head = nn.Linear(32, 64)

    def forward(self, input_ids):
        hidden = self.base(input_ids=input_ids).last_hidden_state
        following = self.base.embed_tokens(input_ids).roll(-1, 1)
        return self.head(hidden), self.head(self.merge(torch.cat([hidden, following], -1)))


def _loss_of_two_tokens(model, batch):
    first, second = model(batch["input_ids"])
    labels = batch["labels"]
    return F.cross_entropy(first[:, :-1].flatten(0, 1), labels[:, 1:].flatten()) + F.cross_entropy(
        second[:, :-2].flatten(0, 1), labels[:, 2:].flatten()
    )


def head_for_the_token_after_the_next():
    ids = torch.randint(3, 60, (3, 16))
    return {"model": _TwoTokensAhead(), "batch": {"input_ids": ids, "labels": ids}, "loss_fn": _loss_of_two_tokens}


def head_for_the_token_after_the_next_of_a_short_text():
    ids = torch.randint(3, 60, (3, 6))
    return {
        "model": _TwoTokensAhead(),
        "batch": {"input_ids": ids, "labels": ids},
        "loss_fn": _loss_of_two_tokens,
        "expect": {"not_examined": "the text is too short"},
    }
