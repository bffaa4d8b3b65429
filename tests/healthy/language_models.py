"""Language models of transformers, at toy widths: causal, masked, sequence to sequence, mixture of experts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from healthy.program import Program, program

VOCABULARY = 96


def llama(**changes: object) -> LlamaForCausalLM:
    """Two layers, width 32, two query heads for each key-value head."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    }
    return LlamaForCausalLM(LlamaConfig(**{**sizes, **changes}))


def text(pad_labels: int = -100) -> Callable[[], dict[str, Tensor]]:
    """Batches (4, 12) of ids, rows of different length padded on the right."""

    def draw() -> dict[str, Tensor]:
        lengths = torch.tensor([12, 9, 7, 12])
        attention_mask = (torch.arange(12) < lengths[:, None]).long()  # (B, L)
        input_ids = torch.randint(3, VOCABULARY, (4, 12)) * attention_mask
        labels = input_ids.masked_fill(attention_mask == 0, pad_labels)
        return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}

    return draw


@program
def llama_with_padded_rows() -> Program:
    return Program(llama(), text())


@program
def gpt2_with_tied_weights_and_dropout() -> Program:
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    return Program(GPT2LMHeadModel(config), text())


@program
def t5_sequence_to_sequence() -> Program:
    config = T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
    )

    def draw() -> dict[str, Tensor]:
        batch = text()()
        return {**batch, "labels": torch.randint(3, VOCABULARY, (4, 6))}

    return Program(T5ForConditionalGeneration(config), draw)


@program
def bert_masked_tokens() -> Program:
    model = BertForMaskedLM(_bert())

    def draw() -> dict[str, Tensor]:
        batch = text()()
        ids, valid = batch["input_ids"], batch["attention_mask"].bool()
        hidden = (torch.rand(ids.shape) < 0.3) & valid
        hidden[:, 1] = True
        labels = ids.masked_fill(~hidden, -100)
        return {**batch, "input_ids": ids.masked_fill(hidden, 2), "labels": labels}

    return Program(model, draw)


@program
def bert_classifies_sequences() -> Program:
    model = BertForSequenceClassification(_bert(num_labels=3))
    return Program(model, lambda: {**text()(), "labels": torch.tensor([0, 1, 2, 1])})


@program
def mixtral_with_unrouted_experts() -> Program:
    config = MixtralConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=16,
        num_experts_per_tok=1,
        output_router_logits=True,
        max_position_embeddings=64,
    )
    return Program(MixtralForCausalLM(config), text())


@program
def llama_padded_on_the_left() -> Program:
    def draw() -> dict[str, Tensor]:
        return {name: tensor.flip(1) for name, tensor in text()().items()}

    return Program(llama(), draw)


@program
def llama_trained_on_answers_alone() -> Program:
    def draw() -> dict[str, Tensor]:
        batch = text()()
        batch["labels"][:, :5] = -100
        return batch

    return Program(llama(tie_word_embeddings=True), draw)


@program
def llama_whose_loop_keeps_the_embeddings_frozen() -> Program:
    model = llama()
    model.model.embed_tokens.requires_grad_(False)
    return Program(model, text())


def _bert(**changes: object) -> BertConfig:
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
    }
    return BertConfig(**{**sizes, **changes})
