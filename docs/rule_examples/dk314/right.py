import torch
from transformers import LlamaConfig, LlamaForCausalLM

import debugkit

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=1,
    num_attention_heads=4,
)
model = LlamaForCausalLM(config)  # shifts the labels itself
text = torch.randint(3, 60, (3, 9))
batch = {"input_ids": text[:, :-1], "labels": text[:, :-1]}
report = debugkit.check(model, batch, select="DK314")
print(report)
