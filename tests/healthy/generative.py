"""Losses that draw noise on purpose, and gradients that are passed on by hand: diffusion, VAE, straight-through."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from healthy.program import Program, program


@program
def denoising_diffusion() -> Program:
    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.time = nn.Embedding(10, 16)
            self.body = nn.Sequential(nn.Linear(6 + 16, 32), nn.SiLU(), nn.Linear(32, 6))
            self.register_buffer("signal", torch.linspace(0.99, 0.05, 10))

        def forward(self, noisy: Tensor, step: Tensor) -> Tensor:
            return self.body(torch.cat([noisy, self.time(step)], -1))

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        action = batch["action"]
        step, noise = torch.randint(10, (len(action),), device=action.device), torch.randn_like(action)
        share = model.signal[step][:, None]  # (B, 1)
        noisy = share.sqrt() * action + (1 - share).sqrt() * noise
        return F.mse_loss(model(noisy, step), noise)

    return Program(Denoiser(), lambda: {"action": torch.randn(8, 6)}, loss_fn)


@program
def flow_matching_in_eval_mode_too() -> Program:
    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6 + 4 + 1, 32), nn.SiLU(), nn.Linear(32, 6))

        def forward(self, state: Tensor, action: Tensor) -> dict[str, Tensor]:
            time, noise = torch.rand(len(action), 1, device=action.device), torch.randn_like(action)
            towards = self.body(torch.cat([noise.lerp(action, time), state, time], -1))
            return {"loss": F.mse_loss(towards, action - noise), "velocity": towards}

    return Program(Flow(), lambda: {"state": torch.randn(8, 4), "action": torch.randn(8, 6)})


@program
def variational_autoencoder() -> Program:
    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Sequential(nn.Linear(6, 32), nn.ELU(), nn.Linear(32, 8))
            self.decode = nn.Sequential(nn.Linear(4, 32), nn.ELU(), nn.Linear(32, 6))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            mean, log_variance = self.encode(x).chunk(2, -1)
            latent = mean + torch.randn_like(mean) * (log_variance / 2).exp()
            return self.decode(latent), mean, log_variance

    def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
        again, mean, log_variance = model(batch)
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1).mean()
        return F.mse_loss(again, batch) + 0.01 * divergence

    return Program(Autoencoder(), lambda: torch.randn(8, 6), loss_fn)


class VectorQuantised(nn.Module):
    """The nearest code word stands in for the encoder's output; the gradient passes straight through."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(6, 4)
        self.codes = nn.Embedding(16, 4)
        self.decode = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        latent = self.encode(x)
        nearest = torch.cdist(latent, self.codes.weight).argmin(-1)  # (B,)
        code = self.codes(nearest)
        straight = latent + (code - latent).detach()
        again = self.decode(straight)
        commitment = F.mse_loss(latent, code.detach()) + F.mse_loss(code, latent.detach())
        return {"loss": F.mse_loss(again, x) + commitment, "action": again}


@program
def straight_through_code_words() -> Program:
    return Program(VectorQuantised(), lambda: {"x": torch.randn(16, 6)})


@program
def straight_through_rounding() -> Program:
    """Quantisation-aware training of weights, and a Function that passes its gradient on."""

    class Binary(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: object, x: Tensor) -> Tensor:
            return x.sign()

        @staticmethod
        def backward(_ctx: object, gradient: Tensor) -> Tensor:
            return gradient

    class Quantised(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            scale = self.weight.detach().abs().amax() / 7
            rounded = (self.weight / scale).round() * scale
            return F.linear(x, self.weight + (rounded - self.weight).detach(), self.bias)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.write = Quantised(6, 16), Quantised(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.write(Binary.apply(self.read(x)))

    return Program(
        Model(),
        lambda: {"x": torch.randn(8, 6), "y": torch.randn(8, 2)},
        lambda model, batch: F.mse_loss(model(batch["x"]), batch["y"]),
    )


@program
def gumbel_softmax_choice() -> Program:
    class Choice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score, self.options = nn.Linear(6, 5), nn.Linear(5, 2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.options(F.gumbel_softmax(self.score(x), tau=1.0, hard=True))

    return Program(
        Choice(),
        lambda: {"x": torch.randn(8, 6), "y": torch.randn(8, 2)},
        lambda model, batch: F.mse_loss(model(batch["x"]), batch["y"]),
    )


@program
def masked_autoencoder() -> Program:
    """Reconstructs the patches it was not shown; which ones is drawn at each call."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
            self.unknown = nn.Parameter(torch.zeros(16))
            self.position = nn.Parameter(torch.randn(9, 16) * 0.02)
            self.decode = nn.Linear(16, 16)

        def forward(self, patches: Tensor) -> tuple[Tensor, Tensor]:
            hidden = torch.rand(patches.shape[:2], device=patches.device) < 0.6  # (B, P)
            seen = torch.where(hidden[..., None], self.unknown, patches) + self.position
            return self.decode(self.encode(seen)), hidden

    def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
        again, hidden = model(batch)
        return ((again - batch).square().mean(-1) * hidden).sum() / hidden.sum()

    return Program(Masked(), lambda: torch.randn(4, 9, 16), loss_fn)
