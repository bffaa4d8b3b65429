"""Parts that train and parts that do not: LoRA, frozen bodies, gates at zero, tied and parametrised weights."""

from __future__ import annotations

import copy
import warnings

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.nn import functional as F

from healthy.language_models import llama, text
from healthy.program import STEPS, Program, program
from healthy.vision_and_speech import RegressionFromImages, images_and_actions, regression_loss


@program
def lora_on_a_frozen_llama() -> Program:
    adapters = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1, task_type="CAUSAL_LM")
    return Program(adapted(adapters), text())


@program
def lora_with_a_trained_head_and_dora() -> Program:
    adapters = LoraConfig(r=4, use_dora=True, target_modules=["q_proj"], modules_to_save=["lm_head"])
    return Program(adapted(adapters), text())


def adapted(adapters: LoraConfig) -> nn.Module:
    """A Llama with adapters; peft asks transformers for an attribute under its old name, and is warned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return get_peft_model(llama(), adapters)


class ZeroGatedCrossAttention(nn.Module):
    """Flamingo's gate: the image enters through `tanh(gate)`, and the gate starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 32)
        self.look = nn.MultiheadAttention(32, 4, batch_first=True)
        self.gate = nn.Parameter(torch.zeros(1))
        self.head = nn.Linear(32, 3)

    def forward(self, input_ids: Tensor, image: Tensor) -> Tensor:
        words = self.words(input_ids)
        seen, _ = self.look(words, image, image, need_weights=False)
        return self.head((words + torch.tanh(self.gate) * seen).mean(1))


@program
def gate_that_starts_at_zero() -> Program:
    def draw() -> dict[str, Tensor]:
        return {
            "input_ids": torch.randint(20, (4, 5)),
            "image": torch.randn(4, 6, 32),
            "action": torch.randn(4, 3),
        }

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(model(batch["input_ids"], batch["image"]), batch["action"])

    return Program(ZeroGatedCrossAttention(), draw, loss_fn)


@program
def head_that_starts_at_zero() -> Program:
    """As in diffusion transformers: the last layer starts at zero, so the first step changes nothing before it."""
    model = RegressionFromImages()
    nn.init.zeros_(model.head[2].weight)
    nn.init.zeros_(model.head[2].bias)
    return Program(model, images_and_actions, regression_loss)


@program
def weight_norm_and_spectral_norm() -> Program:
    model = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(6, 16)),
        nn.ReLU(),
        nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16)),
        nn.ReLU(),
        nn.utils.parametrizations.orthogonal(nn.Linear(16, 16)),
        nn.Linear(16, 2),
    )
    return Program(model, vectors, vector_loss)


@program
def exponential_moving_average() -> Program:
    """A copy that follows the weights and is never trained."""

    class WithAverage(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 2))
            self.average = copy.deepcopy(self.body).requires_grad_(False).eval()

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x)

    model = WithAverage()

    def train(self: Program) -> None:
        assert isinstance(self.optimizer, torch.optim.Optimizer)
        for _ in range(STEPS):
            self.optimizer.zero_grad(set_to_none=False)
            self.loss(self.draw()).backward()
            self.optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(model.average.parameters(), model.body.parameters(), strict=True):
                    slow.lerp_(fast, 0.01)

    return Program(model, vectors, vector_loss, train=train)


@program
def averaged_model_outside() -> Program:
    """torch's own AveragedModel, which lives beside the model."""
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.SiLU(), nn.Linear(16, 2))
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))

    def train(self: Program) -> None:
        assert isinstance(self.optimizer, torch.optim.Optimizer)
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            self.loss(self.draw()).backward()
            self.optimizer.step()
            average.update_parameters(model)

    return Program(model, vectors, vector_loss, train=train)


@program
def biases_and_norms_without_weight_decay() -> Program:
    model = llama()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0, "lr": 2e-3}]
    return Program(model, text(), optimizer=torch.optim.AdamW(groups, lr=1e-3))


@program
def layer_thawed_while_it_trains() -> Program:
    """Gradual unfreezing: the body joins the optimizer after three steps."""
    model = nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 2))
    model[0].requires_grad_(False)

    def train(self: Program) -> None:
        assert isinstance(self.optimizer, torch.optim.Optimizer)
        for step in range(STEPS):
            if step == 3:
                model[0].requires_grad_(True)
                self.optimizer.add_param_group({"params": model[0].parameters(), "lr": 1e-4})
            self.optimizer.zero_grad()
            self.loss(self.draw()).backward()
            self.optimizer.step()

    return Program(model, vectors, vector_loss, train=train)


def vectors() -> dict[str, Tensor]:
    """Eight vectors of six numbers, and two numbers that depend on them."""
    x = torch.randn(8, 6)
    return {"x": x, "y": torch.stack([x.sum(1), x[:, 0] * x[:, 1]], 1)}


def vector_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Mean squared error."""
    return F.mse_loss(model(batch["x"]), batch["y"])
