"""Mistakes that mypy and pyright must reject, at each line that ends in `# wrong` and at no other. Never run."""

from __future__ import annotations

import torch
from torch import nn

import debugkit

model = nn.Linear(4, 2)
batch = torch.ones(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def loss_fn(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(batch).mean()
    return loss


debugkit.chekc(model, batch)  # wrong
debugkit.check(batch)  # wrong
debugkit.check(model, batch, loss_fn, optimizer, [batch])  # wrong
debugkit.check(model, batch, loss_fn, optimiser=optimizer)  # wrong
debugkit.check(model, batch, lambda model: model)  # wrong
debugkit.check(model, batch, loss_fn, select=3)  # wrong
debugkit.check(model, batch, loss_fn, declare={"causal": True})  # wrong
debugkit.check(model, batch, loss_fn).finding  # wrong
debugkit.check(model, batch, loss_fn).findings = ()  # wrong
debugkit.check(model, batch, loss_fn).errors[0].severity = "error"  # wrong
debugkit.Declare("attention_mask")  # wrong
debugkit.Declare(casual=True)  # wrong
debugkit.watch(model, optimizer, "raise")  # wrong
debugkit.watch(model, optimizer, on_finding="rise")  # wrong
debugkit.watch(model, optimizer, on_finding=lambda: None)  # wrong
debugkit.watch(model, optimizer).findings  # wrong
debugkit.Report.from_json(3)  # wrong
debugkit.trace_shapes(model, batch).rows  # wrong
debugkit.gradient_table(model, batch, loss_fn).rows[0].gradient  # wrong
debugkit.find_graph_cut(model, batch, loss_fn, optimizer)  # wrong
debugkit.overfit_one_batch(model, batch, loss_fn, 100)  # wrong
debugkit.gradcheck(torch.tanh, batch, epsilon=1e-6)  # wrong
debugkit.first_nonfinite(model, batch, loss_fn).operation  # wrong
debugkit.detect_overflow(model, batch, loss_fn, dtype="float16")  # wrong
debugkit.trace_batches(model, 3)  # wrong
debugkit.simulate_device(model, batch, loss_fn, "cuda")  # wrong
debugkit.memory_profile(model, batch, loss_fn).peak.megabytes  # wrong
debugkit.find_batch_size(model, batch)  # wrong
debugkit.seed_everything(7, True)  # wrong
debugkit.snapshot_on_failure(model, optimizer, "snapshots")  # wrong
debugkit.watch_shapes(model, ["B 2"])  # wrong
debugkit.watch_shapes(model, on_violation="warn")  # wrong
debugkit.explain_hang(60)  # wrong
