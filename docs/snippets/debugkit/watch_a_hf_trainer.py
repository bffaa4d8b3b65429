import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from debugkit.integrations.transformers import DebugkitCallback

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, head_dim=8
)
tokens = torch.randint(0, 32, (16, 8))
dataset = [{"input_ids": row, "labels": row} for row in tokens]
arguments = TrainingArguments(
    tempfile.mkdtemp(), max_steps=3, report_to=[], save_strategy="no", use_cpu=True, dataloader_pin_memory=False
)

watching = DebugkitCallback()
trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=dataset, callbacks=[watching])
trainer.train()
print(watching.report.title, "·", "ok" if watching.report.ok else watching.report)
