"""Generators as repositories write them: codebooks, flows, energies, adversaries, radiance fields, diffusion."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from healthy.program import STEPS, Program, program


class VectorQuantizerEMA(nn.Module):
    """Code words follow the encoder by moving averages, without a gradient."""

    def __init__(self, num_embeddings: int = 16, embedding_dim: int = 8, decay: float = 0.99) -> None:
        super().__init__()
        self._embedding = nn.Embedding(num_embeddings, embedding_dim)
        self._embedding.weight.data.normal_()
        self._embedding.weight.requires_grad = False
        self.register_buffer("_ema_cluster_size", torch.zeros(num_embeddings))
        self.register_buffer("_ema_w", self._embedding.weight.data.clone())
        self._num_embeddings, self._decay = num_embeddings, decay

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        flat = inputs.permute(0, 2, 3, 1).reshape(-1, inputs.size(1))
        distances = torch.cdist(flat, self._embedding.weight)
        encodings = F.one_hot(distances.argmin(1), self._num_embeddings).type(flat.dtype)
        quantized = (encodings @ self._embedding.weight).view(inputs.permute(0, 2, 3, 1).shape).permute(0, 3, 1, 2)
        if self.training:
            with torch.no_grad():
                size = self._ema_cluster_size * self._decay + (1 - self._decay) * encodings.sum(0)
                n = size.sum()
                self._ema_cluster_size.copy_((size + 1e-5) / (n + self._num_embeddings * 1e-5) * n)
                self._ema_w.mul_(self._decay).add_((1 - self._decay) * encodings.t() @ flat)
                self._embedding.weight.copy_(self._ema_w / self._ema_cluster_size.unsqueeze(1))
        loss = 0.25 * F.mse_loss(quantized.detach(), inputs)
        return loss, inputs + (quantized - inputs).detach()


@program
def codebook_that_follows_by_moving_averages() -> Program:
    class VQVAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 1))
            self.vq = VectorQuantizerEMA()
            self.decoder = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            loss, quantized = self.vq(self.encoder(x))
            return loss, self.decoder(quantized)

    def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
        vq_loss, reconstruction = model(batch)
        return F.mse_loss(reconstruction, batch) / 0.08 + vq_loss

    model = VQVAE()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    return Program(model, lambda: torch.rand(6, 3, 8, 8) - 0.5, loss_fn, optimizer)


class Coupling(nn.Module):
    def __init__(self, dim: int, flip: bool) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim // 2, 32), nn.ReLU(), nn.Linear(32, dim))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)
        self.flip = flip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, dim=1)
        s = torch.tanh(s)
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], dim=1), s.sum(1)


@program
def normalizing_flow_of_affine_couplings() -> Program:
    class RealNVP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flows = nn.ModuleList(Coupling(4, bool(i % 2)) for i in range(4))
            self.prior = torch.distributions.Normal(torch.zeros(4), torch.ones(4))

        def log_prob(self, x: Tensor) -> Tensor:
            log_det = torch.zeros(x.shape[0], device=x.device)
            for flow in self.flows:
                x, ld = flow(x)
                log_det = log_det + ld
            return self.prior.log_prob(x).sum(1) + log_det

    draw = lambda: torch.randn(32, 4) * torch.tensor([1.0, 2.0, 0.5, 1.5]) + 1.0  # noqa: E731
    return Program(RealNVP(), draw, lambda model, x: -model.log_prob(x).mean())


@program
def energy_model_with_langevin_negatives() -> Program:
    """Negatives are found by descending the energy with respect to the input, from a replay buffer."""
    energy = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1))
    replay = [torch.rand(1, 2) * 4 - 2 for _ in range(64)]

    def sample(model: nn.Module, n: int) -> Tensor:
        chosen = torch.randint(len(replay), (n,)).tolist()
        x = torch.cat([replay[index] for index in chosen]).requires_grad_(True)
        for _ in range(5):
            noise = torch.randn_like(x) * 0.005
            grad = torch.autograd.grad(model(x + noise).sum(), x)[0]
            x = (x - 0.1 * grad.clamp(-0.03, 0.03)).detach().requires_grad_(True)
        for index, row in zip(chosen, x.detach().split(1), strict=True):
            replay[index] = row
        return x.detach()

    def loss_fn(model: nn.Module, real: Tensor) -> Tensor:
        fake = sample(model, len(real))
        real_out, fake_out = model(torch.cat([real, fake])).squeeze(1).chunk(2)
        return (real_out - fake_out).mean() + 0.1 * (real_out**2 + fake_out**2).mean()

    return Program(energy, lambda: torch.randn(32, 2), loss_fn, torch.optim.Adam(energy.parameters(), 1e-4))


@program
def adversaries_with_labels_of_one_and_zero() -> Program:
    """The loss checked is the discriminator's; the loop trains both, each with its own optimizer."""

    class GAN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.netG = nn.Sequential(
                nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False),
                nn.BatchNorm2d(16),
                nn.ReLU(True),
                nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False),
                nn.Tanh(),
            )
            self.netD = nn.Sequential(
                nn.Conv2d(1, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(16, 1, 4, 1, 0)
            )

    gan, criterion = GAN(), nn.BCEWithLogitsLoss()
    optimizerD = torch.optim.Adam(gan.netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(gan.netG.parameters(), lr=2e-4, betas=(0.5, 0.999))

    def loss_d(model: nn.Module, real: Tensor) -> Tensor:
        label = torch.full((real.size(0),), 1.0, dtype=torch.float, device=real.device)
        errD_real = criterion(model.netD(real).view(-1), label)
        noise = torch.randn(real.size(0), 8, 1, 1, device=real.device)
        fake = model.netG(noise)
        return errD_real + criterion(model.netD(fake.detach()).view(-1), torch.zeros_like(label))

    def train(self: Program) -> None:
        for _ in range(STEPS):
            real = self.draw()
            gan.netD.zero_grad()
            loss_d(gan, real).backward()
            optimizerD.step()
            gan.netG.zero_grad()
            fake = gan.netG(torch.randn(real.size(0), 8, 1, 1))
            errG = criterion(gan.netD(fake).view(-1), torch.ones(real.size(0)))
            errG.backward()
            optimizerG.step()

    return Program(gan, lambda: torch.rand(8, 1, 8, 8) * 2 - 1, loss_d, [optimizerD, optimizerG], train)


class NeRF(nn.Module):
    def __init__(self, W: int = 32, L: int = 4) -> None:
        super().__init__()
        self.freqs = [2.0**i for i in range(L)]
        dim = 3 + 3 * 2 * L
        self.pts_linears = nn.ModuleList([nn.Linear(dim, W), nn.Linear(W, W), nn.Linear(W + dim, W)])
        self.alpha_linear, self.rgb_linear = nn.Linear(W, 1), nn.Linear(W + 3, 3)

    def embed(self, x: Tensor) -> Tensor:
        return torch.cat([x, *(fn(x * freq) for freq in self.freqs for fn in (torch.sin, torch.cos))], -1)

    def forward(self, pts: Tensor, viewdirs: Tensor) -> Tensor:
        embedded = self.embed(pts)
        h = embedded
        for i, layer in enumerate(self.pts_linears):
            h = F.relu(layer(torch.cat([embedded, h], -1) if i == 2 else h))
        rgb = self.rgb_linear(torch.cat([h, viewdirs.expand(*h.shape[:-1], 3)], -1))
        return torch.cat([rgb, self.alpha_linear(h)], -1)


@program
def radiance_field_rendered_along_rays() -> Program:
    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        rays_o, rays_d, target = batch
        z_vals = torch.linspace(2.0, 6.0, 12).expand(len(rays_o), 12)
        mids = 0.5 * (z_vals[..., 1:] + z_vals[..., :-1])
        upper, lower = torch.cat([mids, z_vals[..., -1:]], -1), torch.cat([z_vals[..., :1], mids], -1)
        z_vals = lower + (upper - lower) * torch.rand(z_vals.shape)
        pts = rays_o[..., None, :] + rays_d[..., None, :] * z_vals[..., :, None]
        raw = model(pts, F.normalize(rays_d, dim=-1)[:, None])
        dists = torch.cat([z_vals[..., 1:] - z_vals[..., :-1], torch.tensor([1e10]).expand(len(rays_o), 1)], -1)
        alpha = 1.0 - torch.exp(-F.relu(raw[..., 3] + torch.randn(raw.shape[:-1])) * dists)
        ones = torch.ones((alpha.shape[0], 1))
        weights = alpha * torch.cumprod(torch.cat([ones, 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
        rgb_map = torch.sum(weights[..., None] * torch.sigmoid(raw[..., :3]), -2)
        return torch.mean((rgb_map - target) ** 2)

    draw = lambda: (torch.randn(24, 3) * 0.1, torch.randn(24, 3), torch.rand(24, 3))  # noqa: E731
    model = NeRF()
    return Program(model, draw, loss_fn, torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.999)))


@program
def autoencoder_whose_decoder_is_the_transpose() -> Program:
    class TiedAutoEncoder(nn.Module):
        def __init__(self, inp: int = 20, out: int = 6) -> None:
            super().__init__()
            self.encoder = nn.Linear(inp, out)
            self.decoder_bias = nn.Parameter(torch.zeros(inp))

        def forward(self, x: Tensor) -> Tensor:
            encoded = torch.sigmoid(self.encoder(x))
            return F.linear(encoded, self.encoder.weight.t(), self.decoder_bias)

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        return nn.MSELoss()(model(batch[0] * (torch.rand_like(batch[0]) > 0.2)), batch[0])

    return Program(TiedAutoEncoder(), lambda: [torch.rand(16, 20)], loss_fn)


class EMAModel:
    """A copy of the policy that follows it, kept outside the module."""

    def __init__(self, model: nn.Module, power: float = 0.75) -> None:
        self.averaged_model = copy.deepcopy(model).eval().requires_grad_(False)
        self.power, self.optimization_step = power, 0

    @torch.no_grad()
    def step(self, new_model: nn.Module) -> None:
        decay = max(0.0, min(0.9999, 1 - (1 + self.optimization_step) ** -self.power))
        for param, ema_param in zip(new_model.parameters(), self.averaged_model.parameters(), strict=True):
            ema_param.mul_(decay).add_(param.data.to(dtype=ema_param.dtype), alpha=1 - decay)
        self.optimization_step += 1


class DiffusionPolicy(nn.Module):
    """Predicts the noise on an action chunk; observation and action are normalised inside."""

    def __init__(self, obs_dim: int = 5, action_dim: int = 2, horizon: int = 8) -> None:
        super().__init__()
        betas = torch.linspace(0, 1, 21)
        alpha_bar = torch.cos((betas + 0.008) / 1.008 * math.pi / 2) ** 2
        self.register_buffer("alphas_cumprod", (alpha_bar[1:] / alpha_bar[0]).clamp(min=1e-3))
        self.normalizer = nn.ParameterDict(
            {
                name: nn.Parameter(torch.stack([torch.zeros(dim), torch.ones(dim)]), requires_grad=False)
                for name, dim in (("obs", obs_dim), ("action", action_dim))
            }
        )
        self.time_emb = nn.Sequential(nn.Linear(16, 32), nn.Mish(), nn.Linear(32, 16))
        self.model = nn.Sequential(
            nn.Linear(obs_dim * 2 + action_dim * horizon + 16, 64), nn.Mish(), nn.Linear(64, action_dim * horizon)
        )

    def normalize(self, name: str, x: Tensor) -> Tensor:
        offset, scale = self.normalizer[name]
        return (x - offset) / scale

    def compute_loss(self, batch: dict[str, Tensor]) -> Tensor:
        nobs, nactions = self.normalize("obs", batch["obs"]), self.normalize("action", batch["action"])
        noise = torch.randn(nactions.shape, device=nactions.device)
        timesteps = torch.randint(0, 20, (nactions.shape[0],), device=nactions.device).long()
        a = self.alphas_cumprod[timesteps].view(-1, 1, 1)
        noisy = a.sqrt() * nactions + (1 - a).sqrt() * noise
        freq = torch.exp(torch.arange(8, device=nactions.device) * -(math.log(1000) / 7))
        emb = timesteps[:, None] * freq[None]
        temb = self.time_emb(torch.cat((emb.sin(), emb.cos()), dim=-1))
        pred = self.model(torch.cat([nobs.flatten(1), noisy.flatten(1), temb], dim=-1)).view_as(noise)
        loss = F.mse_loss(pred, noise, reduction="none")
        return loss.flatten(1).mean(1).mean()


@program
def diffusion_policy_with_an_averaged_copy() -> Program:
    policy = DiffusionPolicy()
    ema = EMAModel(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, betas=(0.95, 0.999), weight_decay=1e-6)

    def train(self: Program) -> None:
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 500))
        for _ in range(STEPS):
            self.loss(self.draw()).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            ema.step(policy)

    draw = lambda: {"obs": torch.randn(16, 2, 5), "action": torch.rand(16, 8, 2) * 2 - 1}  # noqa: E731
    return Program(policy, draw, lambda model, batch: model.compute_loss(batch), optimizer, train)
