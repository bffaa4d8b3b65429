"""Labels that are shifted once too often."""

import torch

_SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
}


def shifted_in_the_collator_and_in_the_model():
    from transformers import LlamaConfig, LlamaForCausalLM

    text = torch.randint(3, 60, (3, 9))
    return {
        "model": LlamaForCausalLM(LlamaConfig(**_SIZES)),
        "batch": {"input_ids": text[:, :-1], "labels": text[:, 1:].clone()},
        "expect": {"severity": "error", "message": "All 24 labels"},
    }


def rolled_with_the_prompt_ignored():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=1, n_head=4, bos_token_id=1, eos_token_id=2)
    ids = torch.randint(3, 60, (3, 9))
    labels = ids.roll(-1, dims=1)
    labels[:, -1], labels[:, :3] = -100, -100
    return {"model": GPT2LMHeadModel(config), "batch": {"input_ids": ids, "labels": labels}}
