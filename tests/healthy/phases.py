"""Loops with phases or several networks: alternating, resumed state, frozen and released parts, averaged weights."""

from __future__ import annotations

import copy
import random

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from healthy.epochs import batches, classifier, quadrant_loss, quadrants
from healthy.loops import optimizer_of
from healthy.program import LONG, Program, program


class Gan(nn.Module):
    """A generator and a discriminator of 16 × 16 images."""

    def __init__(self) -> None:
        super().__init__()
        self.netG = nn.Sequential(
            nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
            nn.ConvTranspose2d(16, 8, 4, 4, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
            nn.Conv2d(8, 1, 3, 1, 1), nn.Tanh(),
        )  # fmt: skip
        self.netD = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(8, 16, 4, 2, 1), nn.LeakyReLU(0.2, True),
            nn.Conv2d(16, 1, 4, 1, 0), nn.Flatten(),
        )  # fmt: skip


@program
def convolutional_adversaries_with_smoothed_labels() -> Program:
    model = Gan()
    optimizer_d = torch.optim.Adam(model.netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_g = torch.optim.Adam(model.netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()

    def loss_fn(model: nn.Module, real: Tensor) -> Tensor:
        output = model.netD(model.netG(torch.randn(len(real), 8, 1, 1, device=real.device)))
        return criterion(output, torch.ones_like(output))

    def train(self: Program) -> None:
        fixed_noise, d_losses, g_losses = torch.randn(4, 8, 1, 1), [], []
        for step in range(self.steps):
            real = self.draw()
            model.netD.zero_grad()
            output = model.netD(real)
            errD_real = criterion(output, torch.full_like(output, 0.9))
            errD_real.backward()
            fake = model.netG(torch.randn(len(real), 8, 1, 1))
            output = model.netD(fake.detach())
            errD_fake = criterion(output, torch.zeros_like(output))
            errD_fake.backward()
            optimizer_d.step()
            model.netG.zero_grad()
            output = model.netD(fake)
            errG = criterion(output, torch.ones_like(output))
            errG.backward()
            optimizer_g.step()
            d_losses.append((errD_real + errD_fake).item())
            g_losses.append(errG.item())
            if step % 10 == 9:
                with torch.no_grad():
                    model.netG(fixed_noise)

    def draw() -> Tensor:
        return quadrants(8)[0].clamp(-1, 1)

    return Program(model, draw, loss_fn, [optimizer_d, optimizer_g], train, steps=LONG)


class Reader(nn.Module):
    """An LSTM that reads one long text piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm, self.out = nn.Embedding(20, 16), nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 20)

    def forward(self, ids: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        hidden, state = self.lstm(self.words(ids), state)
        return self.out(hidden), state


def repackage_hidden(state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Wrap the hidden state in new tensors, to detach it from its history."""
    return state[0].detach(), state[1].detach()


@program
def language_model_read_in_pieces() -> Program:
    model = Reader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def draw() -> tuple[Tensor, Tensor]:
        text = (torch.randint(20, (4, 1)) + torch.arange(11)) % 20
        return text[:, :-1], text[:, 1:]

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch[0])[0].flatten(0, 1), batch[1].flatten())

    def train(self: Program) -> None:
        text = (torch.arange(61) * 3 + torch.tensor([[0], [7], [4], [11]])) % 20  # (4, 61)
        done = 0
        while done < self.steps:
            state = None  # each epoch starts at the beginning of the text
            for begin in range(0, 60, 10):
                if done == self.steps:
                    break
                state = None if state is None else repackage_hidden(state)
                optimizer.zero_grad()
                logits, state = model(text[:, begin : begin + 10], state)
                loss = F.cross_entropy(logits.flatten(0, 1), text[:, begin + 1 : begin + 11].flatten())
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                optimizer.step()
                done += 1

    return Program(model, draw, loss_fn, optimizer, train, steps=LONG)


@program
def lbfgs_fits_a_curve() -> Program:
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.8, history_size=10, line_search_fn="strong_wolfe")

    def draw() -> tuple[Tensor, Tensor]:
        x = torch.linspace(-3, 3, 40, dtype=torch.float64)[:, None]
        return x, x.sin()

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.mse_loss(model(batch[0]), batch[1])

    def train(self: Program) -> None:
        batch = self.draw()
        for _ in range(self.steps):

            def closure() -> Tensor:
                optimizer.zero_grad()
                loss = self.loss(batch)
                loss.backward()
                return loss

            optimizer.step(closure)

    return Program(model, draw, loss_fn, optimizer, train, steps=LONG)


@program
def head_first_and_then_the_whole_network() -> Program:
    """Two phases with an optimizer each; only the first is passed to `watch`."""
    model = classifier()
    body, head = model[:-1].requires_grad_(False).eval(), model[-1]
    first = torch.optim.Adam(head.parameters(), lr=1e-2)

    def train(self: Program) -> None:
        data = TensorDataset(*quadrants(64))
        body.eval()
        for _, batch in batches(data, self.steps // 2, shuffle=True):
            first.zero_grad()
            self.loss(batch).backward()
            first.step()
        body.requires_grad_(True).train()
        second = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _, batch in batches(data, self.steps - self.steps // 2, shuffle=True):
            second.zero_grad()
            self.loss(batch).backward()
            second.step()

    return Program(model, quadrants, quadrant_loss, first, train, steps=LONG)


@program
def student_taught_by_a_frozen_teacher() -> Program:
    teacher, student = classifier().eval().requires_grad_(False), classifier()

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        with torch.no_grad():
            wanted = F.softmax(teacher(images) / 2.0, 1)
        logits = model(images)
        soft = F.kl_div(F.log_softmax(logits / 2.0, 1), wanted, reduction="batchmean") * 4.0
        return 0.5 * soft + 0.5 * F.cross_entropy(logits, labels)

    def train(self: Program) -> None:
        optimizer = optimizer_of(self)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
        epoch_loss, last = [], 0
        for epoch, batch in batches(TensorDataset(*quadrants(64)), self.steps, shuffle=True):
            if epoch != last:
                plateau.step(sum(epoch_loss) / len(epoch_loss))
                epoch_loss, last = [], epoch
            loss = self.loss(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch_loss.append(loss.item())

    return Program(student, quadrants, loss_fn, train=train, steps=LONG)


@program
def seeded_again_for_each_epoch() -> Program:
    """The seed depends on the epoch, evaluation draws the same noise each time and puts the state back."""
    model = classifier()

    def train(self: Program) -> None:
        optimizer, data, done, epoch = optimizer_of(self), TensorDataset(*quadrants(64)), 0, 0
        while done < self.steps:
            torch.manual_seed(1000 + epoch)
            np.random.seed(1000 + epoch)
            random.seed(1000 + epoch)
            for images, labels in DataLoader(data, batch_size=16, shuffle=True):
                shift = np.random.randint(-1, 2)
                flipped = images.roll(int(shift), -1)
                optimizer.zero_grad()
                self.loss((flipped + 0.05 * torch.randn_like(flipped), labels)).backward()
                optimizer.step()
                done += 1
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(0)
                model.eval()
                self.loss((images + 0.05 * torch.randn_like(images), labels))
                model.train()
            epoch += 1

    return Program(model, quadrants, quadrant_loss, train=train, steps=LONG)


@program
def weights_rolled_back_after_a_bad_epoch() -> Program:
    model = classifier()

    def train(self: Program) -> None:
        optimizer, data = optimizer_of(self), TensorDataset(*quadrants(64))
        kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        for epoch in range(self.steps // 4):
            for images, labels in DataLoader(data, batch_size=16, shuffle=True):
                optimizer.zero_grad()
                self.loss((images, labels)).backward()
                optimizer.step()
            if epoch == 1:  # the validation loss rose
                model.load_state_dict(kept[0])
                optimizer.load_state_dict(kept[1])
            else:
                kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))

    return Program(model, quadrants, quadrant_loss, train=train, steps=LONG)


@program
def denoiser_with_averaged_weights_and_warmup() -> Program:
    """A diffusion model: noise and time in each step, a linear warm-up, an average with bias correction."""
    model = nn.Sequential(nn.Linear(9, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 8))
    average = copy.deepcopy(model).requires_grad_(False)

    def loss_fn(model: nn.Module, clean: Tensor) -> Tensor:
        t, noise = torch.rand(len(clean), 1, device=clean.device), torch.randn_like(clean)
        alpha, sigma = torch.cos(t * torch.pi / 2), torch.sin(t * torch.pi / 2)
        return F.mse_loss(model(torch.cat([alpha * clean + sigma * noise, t], 1)), noise)

    def train(self: Program) -> None:
        optimizer = optimizer_of(self)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
        for step in range(self.steps):
            loss = self.loss(self.draw())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            decay = min(0.99, (1 + step) / (10 + step))
            with torch.no_grad():
                for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
                    ours.mul_(decay).add_(theirs, alpha=1 - decay)

    def draw() -> Tensor:
        return torch.randn(32, 1) * torch.linspace(-1, 1, 8)

    return Program(model, draw, loss_fn, torch.optim.AdamW(model.parameters(), lr=1e-3), train, steps=LONG)
