import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from debugkit.integrations.transformers import check_trainer


class Weighted(Trainer):
    def compute_loss(self, model, inputs, **_):
        weight = inputs.pop("weight", None)
        loss = model(**inputs).loss
        return loss if weight is None else loss * weight.mean()


torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, head_dim=8
)
tokens = torch.randint(0, 32, (16, 8))
dataset = [{"input_ids": row, "labels": row, "weight": 1.0 + index} for index, row in enumerate(tokens)]
arguments = TrainingArguments(tempfile.mkdtemp(), report_to=[], use_cpu=True, dataloader_pin_memory=False)

report = check_trainer(Weighted(LlamaForCausalLM(config), arguments, train_dataset=dataset), select="DK905")
print(report)
