"""Models that give a sample the same result alone, in a batch, and with a cache."""

import torch
from torch import nn

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


def gpt2_with_its_dropout():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
    return {"model": GPT2LMHeadModel(config).train(), "batch": _batch()}


def mixture_of_experts():
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(**_SIZES, num_key_value_heads=2, num_local_experts=4)
    return {"model": MixtralForCausalLM(config), "batch": _batch()}


def noise_for_each_sample():
    from labs.vla.dataset import collate, demonstrations
    from labs.vla.policy import Policy, PolicyConfig

    return {"model": Policy(PolicyConfig(head="flow_matching")), "batch": collate(demonstrations(8, 0), range(8))}


def bert_without_a_cache():
    from transformers import BertConfig, BertForMaskedLM

    return {"model": BertForMaskedLM(BertConfig(**_SIZES)), "batch": _batch()}


def answers_as_long_as_their_questions():
    """A row alone loses the padding of its question, not a part of its answer."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)
    batch = _batch() | {"labels": torch.randint(3, 60, (3, 8))}
    return {"model": T5ForConditionalGeneration(config), "batch": batch}


def neither_padding_nor_cache():
    return {
        "model": nn.Linear(4, 2),
        "batch": torch.randn(3, 4),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"not_examined": "neither a padded row"},
    }
