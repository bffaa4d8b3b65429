"""A tiny causal language model in the Hugging Face Trainer, examined and then watched."""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

# --8<-- [start:import]
from debugkit.integrations.transformers import DebugkitCallback, check_trainer

# --8<-- [end:import]

torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, head_dim=8
    )
)
tokens = torch.randint(0, 32, (16, 8))
dataset = [{"input_ids": row, "labels": row, "weight": 1.0 + index} for index, row in enumerate(tokens)]
arguments = TrainingArguments(
    tempfile.mkdtemp(),
    max_steps=3,
    report_to=[],
    save_strategy="no",
    use_cpu=True,
    disable_tqdm=True,
    dataloader_pin_memory=False,
)

# --8<-- [start:watch]
watching = DebugkitCallback()
trainer = Trainer(model, arguments, train_dataset=dataset, callbacks=[watching])
trainer.train()
print(watching.report)
# --8<-- [end:watch]

assert watching.report.ok
assert "3 steps watched" in watching.report.title


# --8<-- [start:check]
class Weighted(Trainer):
    def compute_loss(self, model, inputs, **_):
        weight = inputs.pop("weight", None)
        loss = model(**inputs).loss
        return loss if weight is None else loss * weight.mean()


report = check_trainer(Weighted(model, arguments, train_dataset=dataset), select="DK905")
print(report)
# --8<-- [end:check]

assert "DK905" in report.by_code
