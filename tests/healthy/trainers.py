"""A character model with its own loss, as people train it: a trainer class, accumulation, mixed precision."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from healthy.loops import optimizer_of
from healthy.program import LONG, Program, program


class Block(nn.Module):
    """Pre-norm attention and MLP, as in minGPT."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.register_buffer("bias", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in (q, k, v))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = att.masked_fill(self.bias[:, :, :length, :length] == 0, float("-inf")).softmax(-1)
        x = x + self.c_proj((att @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """A character model that computes its own loss."""

    def __init__(self, vocabulary: int = 20, width: int = 32, length: int = 16) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, 4, length) for _ in range(2))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.apply(self._init_weights)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def configure_optimizers(self) -> torch.optim.AdamW:
        decay = [p for p in self.parameters() if p.dim() >= 2]
        rest = [p for p in self.parameters() if p.dim() < 2]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95))

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        return logits, loss


def characters(rows: int = 8, length: int = 16) -> tuple[Tensor, Tensor]:
    """Counting modulo 20 from a random start: inputs and the characters that follow."""
    start, stride = torch.randint(20, (rows, 1)), torch.randint(1, 4, (rows, 1))
    text = (start + stride * torch.arange(length + 1)) % 20
    return text[:, :-1], text[:, 1:]


def character_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The model's own loss."""
    return model(*batch)[1]


class Trainer:
    """minGPT's: an endless sampler, callbacks, clipping."""

    def __init__(self, model: GPT, optimizer: torch.optim.Optimizer, dataset: TensorDataset, max_iters: int) -> None:
        self.model, self.optimizer, self.max_iters, self.iter_num, self.losses = model, optimizer, max_iters, 0, []
        sampler = torch.utils.data.RandomSampler(dataset, replacement=True, num_samples=int(1e6))
        self.loader = DataLoader(dataset, sampler=sampler, batch_size=8)

    def on_batch_end(self) -> None:
        self.losses.append(self.loss.item())
        if self.iter_num % 5 == 0:
            self.model.eval()
            with torch.no_grad():
                idx = torch.zeros(1, 1, dtype=torch.long)
                for _ in range(6):
                    logits, _ = self.model(idx)
                    idx = torch.cat([idx, torch.multinomial(logits[:, -1].softmax(-1), 1)], 1)
            self.model.train()

    def run(self) -> None:
        data_iter = iter(self.loader)
        while self.iter_num < self.max_iters:
            x, y = next(data_iter)
            _, self.loss = self.model(x, y)
            self.model.zero_grad(set_to_none=True)
            self.loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.on_batch_end()
            self.iter_num += 1


@program
def trainer_of_a_character_model() -> Program:
    model = GPT()
    optimizer = model.configure_optimizers()

    def train(self: Program) -> None:
        Trainer(model, optimizer, TensorDataset(*characters(256)), self.steps).run()

    return Program(model, characters, character_loss, optimizer, train, steps=LONG)


@program
def accumulation_where_the_model_computes_its_loss() -> Program:
    model = GPT()

    def train(self: Program) -> None:
        optimizer, accumulate = optimizer_of(self), 4
        for iteration in range(self.steps):
            lr = 1e-3 * min(1.0, (iteration + 1) / 4)
            for group in optimizer.param_groups:
                group["lr"] = lr
            lossf = 0.0
            for _ in range(accumulate):
                _, loss = model(*characters())
                loss = loss / accumulate
                lossf += loss.item()
                loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return Program(model, characters, character_loss, train=train, steps=LONG)


@program
def bfloat16_with_a_gradient_scaler() -> Program:
    model = GPT()

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(*batch)[1]

    def train(self: Program) -> None:
        optimizer, scaler = optimizer_of(self), torch.amp.GradScaler("cpu")
        for _ in range(self.steps):
            loss = self.loss(self.draw())
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    return Program(model, characters, loss_fn, train=train, steps=LONG)


@program
def curriculum_with_growing_batches_and_lengths() -> Program:
    model = GPT()

    def train(self: Program) -> None:
        optimizer = optimizer_of(self)
        for step in range(self.steps):
            rows, length = 4 * (1 + 3 * step // self.steps), min(16, 4 + 4 * (4 * step // self.steps))
            optimizer.zero_grad()
            self.loss(characters(rows, length)).backward()
            optimizer.step()

    return Program(model, characters, character_loss, train=train, steps=LONG)
