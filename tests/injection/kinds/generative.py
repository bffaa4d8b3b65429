"""Models that generate: autoencoders, a variational one, a denoiser; and a metric learnt from triplets."""

from __future__ import annotations

import random

from injection.architectures import Part, kind
from injection.datasets import images

ENCODER = """        self.encoder = nn.Sequential(
            nn.Conv2d(3, {width}, 3, stride=2, padding=1),
            nn.{activation}(),
            nn.Conv2d({width}, {width}, 3, stride=2, padding=1),
            nn.{activation}(),
            nn.Flatten(),
        )
        self.decoder = nn.Sequential(
            nn.Unflatten(1, ({width}, 4, 4)),
            nn.ConvTranspose2d({width}, {width}, 4, stride=2, padding=1),
            nn.{activation}(),
            nn.ConvTranspose2d({width}, 3, 4, stride=2, padding=1),
        )"""


def _shapes(chance: random.Random) -> tuple[int, str]:
    width = chance.choice((8, 12))
    return width, ENCODER.format(width=width, activation=chance.choice(("ReLU", "GELU", "SiLU")))


@kind
def autoencoder(chance: random.Random) -> Part:
    width, towers = _shapes(chance)
    model = f"""
class Autoencoder(nn.Module):
    def __init__(self, latent={chance.choice((8, 16))}):
        super().__init__()
{towers}
        self.squeeze = nn.Linear({16 * width}, latent)
        self.expand = nn.Linear(latent, {16 * width})

    def forward(self, image):
        latent = self.squeeze(self.encoder(image))
        return self.decoder(self.expand(latent))


def build_model():
    return Autoencoder()
"""
    loss = """
def compute_loss(model, batch):
    image = batch["image"].to(device)
    return F.mse_loss(model(image), image)
"""
    return Part(model, images(chance), loss, "reconstruct", rate=2e-3)


@kind
def variational_autoencoder(chance: random.Random) -> Part:
    width, towers = _shapes(chance)
    model = f"""
class VAE(nn.Module):
    def __init__(self, latent={chance.choice((8, 16))}):
        super().__init__()
{towers}
        self.mean = nn.Linear({16 * width}, latent)
        self.log_variance = nn.Linear({16 * width}, latent)
        self.expand = nn.Linear(latent, {16 * width})

    def forward(self, image):
        hidden = self.encoder(image)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        latent = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return self.decoder(self.expand(latent)), mean, log_variance


def build_model():
    return VAE()
"""
    loss = f"""
def compute_loss(model, batch):
    image = batch["image"].to(device)
    picture, mean, log_variance = model(image)
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(dim=1).mean()
    return F.mse_loss(picture, image) + {chance.choice((0.01, 0.001))} * divergence
"""
    return Part(model, images(chance), loss, "reconstruct", rate=2e-3)


@kind
def denoiser(chance: random.Random) -> Part:
    width = chance.choice((16, 24))
    model = f"""
class Denoiser(nn.Module):
    def __init__(self, width={width}):
        super().__init__()
        betas = torch.linspace(1e-3, 0.2, 20)
        self.register_buffer("kept", torch.cumprod(1 - betas, dim=0))
        self.embed = nn.Conv2d(3, width, 3, padding=1)
        self.time = nn.Embedding(20, width)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.head = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, noisy, time):
        x = self.embed(noisy) + self.time(time)[:, :, None, None]
        x = x + F.silu(self.norm(self.middle(x)))
        return self.head(x)


def build_model():
    return Denoiser()
"""
    loss = """
def compute_loss(model, batch):
    image = batch["image"].to(device)
    time = torch.randint(20, (len(image),), device=image.device)
    kept = model.kept[time][:, None, None, None]
    noise = torch.randn_like(image)
    noisy = kept.sqrt() * image + (1 - kept).sqrt() * noise
    return F.mse_loss(model(noisy, time), noise)
"""
    return Part(model, images(chance), loss, "denoise", rate=2e-3)


@kind
def triplets(chance: random.Random) -> Part:
    model = f"""
class Embedder(nn.Module):
    def __init__(self, width={chance.choice((8, 16))}):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.activation = nn.ReLU()
        self.head = nn.Linear(width * 16, 16)

    def forward(self, image):
        x = self.activation(self.conv1(image))
        x = self.activation(self.conv2(x)).flatten(1)
        return F.normalize(self.head(x), dim=-1)


def build_model():
    return Embedder()
"""
    loss = f"""
def compute_loss(model, batch):
    image, label = batch["image"].to(device), batch["label"].to(device)
    embedded = model(image)
    distances = (2 - 2 * embedded @ embedded.T).clamp_min(1e-6).sqrt()
    same = label[:, None] == label[None, :]
    far = (distances * same).max(dim=1).values
    near = (distances + 10.0 * same).min(dim=1).values
    return F.relu(far - near + {chance.choice((0.3, 0.5))}).mean()
"""
    return Part(model, images(chance, classes=3), loss, "metric", declare="coupled_batch=True", loop={"samples": 64})
