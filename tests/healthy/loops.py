"""Training loops that look unusual and are right: accumulation, mixed precision, closures, schedules, validation."""

from __future__ import annotations

import warnings

import torch
from torch import nn
from torch.optim import Optimizer

from healthy.adapters_and_gates import vector_loss, vectors
from healthy.language_models import llama, text
from healthy.program import STEPS, Program, program
from healthy.vision_and_speech import ConvolutionsWithBatchNorm, classification_loss, images_and_classes


def small() -> nn.Sequential:
    """Three layers with dropout."""
    return nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 2))


def optimizer_of(program: Program) -> Optimizer:
    """The only optimizer."""
    assert isinstance(program.optimizer, Optimizer)
    return program.optimizer


@program
def gradient_accumulation() -> Program:
    def train(self: Program) -> None:
        optimizer = optimizer_of(self)
        for micro_step in range(4 * STEPS):
            (self.loss(self.draw()) / 4).backward()
            if micro_step % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()

    return Program(llama(), text(), train=train)


@program
def accumulation_with_a_last_window_that_is_short() -> Program:
    def train(self: Program) -> None:
        optimizer = optimizer_of(self)
        total = 4 * STEPS - 2
        for micro_step in range(total):
            (self.loss(self.draw()) / 4).backward()
            if micro_step % 4 == 3 or micro_step == total - 1:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

    return Program(small(), vectors, vector_loss, train=train)


@program
def clipping_and_a_warmup_schedule() -> Program:
    def train(self: Program) -> None:
        optimizer = optimizer_of(self)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 4))
        for _ in range(STEPS):
            optimizer.zero_grad()
            self.loss(self.draw()).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            schedule.step()

    return Program(llama(), text(), train=train)


@program
def schedules_in_sequence() -> Program:
    def train(self: Program) -> None:
        optimizer = optimizer_of(self)
        warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, decay], [3])
        for _ in range(STEPS):
            optimizer.zero_grad()
            self.loss(self.draw()).backward()
            optimizer.step()
            schedule.step()

    return Program(small(), vectors, vector_loss, train=train)


@program
def bfloat16_autocast() -> Program:
    def loss_fn(model: nn.Module, batch: object) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return vector_loss(model, batch)

    return Program(small(), vectors, loss_fn)


@program
def float16_autocast_with_a_gradient_scaler() -> Program:
    def loss_fn(model: nn.Module, batch: object) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return vector_loss(model, batch)

    def train(self: Program) -> None:
        optimizer, scaler = optimizer_of(self), torch.amp.GradScaler("cpu", init_scale=2.0**10)
        for _ in range(STEPS):
            optimizer.zero_grad()
            scaler.scale(self.loss(self.draw())).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    return Program(small(), vectors, loss_fn, train=train)


@program
def float32_masters_of_a_float16_model() -> Program:
    """The optimizer steps float32 copies; the model that runs is refreshed from them."""
    model = small().half()
    copies = [parameter.detach().float().requires_grad_() for parameter in model.parameters()]
    scale = 2.0**10

    def loss_fn(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.mse_loss(model(batch["x"].half()).float(), batch["y"]) * scale

    def train(self: Program) -> None:
        for _ in range(STEPS):
            model.zero_grad()
            self.loss(self.draw()).backward()
            for copy, parameter in zip(copies, model.parameters(), strict=True):
                copy.grad = parameter.grad.float() / scale
            optimizer_of(self).step()
            with torch.no_grad():
                for copy, parameter in zip(copies, model.parameters(), strict=True):
                    parameter.copy_(copy)

    return Program(model, vectors, loss_fn, torch.optim.AdamW(copies, lr=1e-3), train)


@program
def gradient_scaler_that_searches_its_scale() -> Program:
    """The default scale of 65,536 is too large for these gradients: skipping the first steps is its job."""

    def loss_fn(model: nn.Module, batch: object) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return 4 * vector_loss(model, batch)

    def train(self: Program) -> None:
        optimizer, scaler = optimizer_of(self), torch.amp.GradScaler("cpu")
        for _ in range(3 * STEPS):
            optimizer.zero_grad()
            scaler.scale(self.loss(self.draw())).backward()
            scaler.step(optimizer)
            scaler.update()

    return Program(small(), vectors, loss_fn, train=train)


@program
def lbfgs_with_a_closure() -> Program:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))

    def train(self: Program) -> None:
        optimizer, batch = optimizer_of(self), self.draw()

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = self.loss(batch)
            loss.backward()
            return loss

        for _ in range(STEPS):
            optimizer.step(closure)

    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    return Program(model, vectors, vector_loss, optimizer=optimizer, train=train)


@program
def validation_between_the_steps() -> Program:
    def train(self: Program) -> None:
        optimizer, losses = optimizer_of(self), []
        for _ in range(STEPS):
            self.model.train()
            optimizer.zero_grad()
            loss = self.loss(self.draw())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            self.model.eval()
            with torch.no_grad():
                losses.append(float(self.loss(self.draw())))

    return Program(ConvolutionsWithBatchNorm(), images_and_classes, classification_loss, train=train)


@program
def gradients_cleared_by_hand() -> Program:
    def train(self: Program) -> None:
        optimizer = optimizer_of(self)
        for _ in range(STEPS):
            for parameter in self.model.parameters():
                parameter.grad = None
            self.loss(self.draw()).backward()
            optimizer.step()

    return Program(small(), vectors, vector_loss, train=train)


@program
def losses_kept_as_numbers_and_a_loss_summed_over_two_batches() -> Program:
    def train(self: Program) -> None:
        optimizer, history = optimizer_of(self), []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = self.loss(self.draw()) + self.loss(self.draw())
            loss.backward()
            optimizer.step()
            history.append(loss.detach())

    return Program(small(), vectors, vector_loss, train=train)


@program
def sharpness_aware_minimisation() -> Program:
    """Two backward passes a step, at the weights and beside them."""

    def train(self: Program) -> None:
        optimizer = optimizer_of(self)
        for _ in range(STEPS):
            batch = self.draw()
            self.loss(batch).backward()
            moved = [(p, 0.01 * p.grad / (p.grad.norm() + 1e-6)) for p in self.model.parameters() if p.grad is not None]
            with torch.no_grad():
                for parameter, offset in moved:
                    parameter.add_(offset)
            optimizer.zero_grad()
            self.loss(batch).backward()
            with torch.no_grad():
                for parameter, offset in moved:
                    parameter.sub_(offset)
            optimizer.step()
            optimizer.zero_grad()

    return Program(small(), vectors, vector_loss, train=train)


@program
def compiled_model() -> Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Program(torch.compile(small(), backend="eager"), vectors, vector_loss)
