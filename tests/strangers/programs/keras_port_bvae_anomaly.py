"""A port from Keras: a 1-D beta-VAE with KL annealing and free bits that finds anomalous vibration windows, fitted on normal ones only.

fault kl_sign: none
fault bn_momentum: none
fault stuck_in_eval: DK505
fault anomalies_in_fit: none
"""
import numpy as np
import torch
from torch import nn

WINDOW, CHANNELS, LATENT = 64, 2, 6
KERAS_BN_MOMENTUM = 0.9


def BatchNormalization(ch):
    return nn.BatchNorm1d(ch, momentum=1 - KERAS_BN_MOMENTUM, eps=1e-3)  #! bn_momentum: return nn.BatchNorm1d(ch, momentum=KERAS_BN_MOMENTUM, eps=1e-3)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(CHANNELS, 16, 5, 2, 2, bias=False), BatchNormalization(16), nn.ReLU(),
            nn.Conv1d(16, 32, 5, 2, 2, bias=False), BatchNormalization(32), nn.ReLU(),
            nn.Flatten())
        self.z_mean = nn.Linear(32 * WINDOW // 4, LATENT)
        self.z_log_var = nn.Linear(32 * WINDOW // 4, LATENT)

    def forward(self, x):
        h = self.conv(x)
        return self.z_mean(h), self.z_log_var(h).clamp(-8, 4)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(LATENT, 32 * WINDOW // 4)
        self.deconv = nn.Sequential(
            nn.ConvTranspose1d(32, 16, 4, 2, 1, bias=False), BatchNormalization(16), nn.ReLU(),
            nn.ConvTranspose1d(16, CHANNELS, 4, 2, 1))

    def forward(self, z):
        return self.deconv(torch.relu(self.dense(z)).view(len(z), 32, WINDOW // 4))


class VAE(nn.Module):
    """Imitates the compile / fit / evaluate interface of the old Keras model."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()
        self.register_buffer("beta", torch.tensor(0.0))

    def compile(self, optimizer, max_beta, warm_steps, free_bits):
        self.optimizer, self.max_beta, self.warm_steps, self.free_bits = optimizer, max_beta, warm_steps, free_bits

    def kl_per_dim(self, mu, log_var):
        return -0.5 * (1 + log_var - mu.square() - log_var.exp()).mean(0)  #! kl_sign: return 0.5 * (1 + log_var - mu.square() - log_var.exp()).mean(0)

    def train_step(self, x):
        mu, log_var = self.encoder(x)
        z = mu + (0.5 * log_var).exp() * torch.randn_like(mu)
        recon = (self.decoder(z) - x).square().sum((1, 2)).mean()
        kl = self.kl_per_dim(mu, log_var)
        loss = recon + self.beta * kl.clamp(min=self.free_bits).sum()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), 50.0)
        self.optimizer.step()
        self.beta.fill_(min(self.max_beta, self.beta.item() + self.max_beta / self.warm_steps))
        return {"loss": loss.item(), "recon": recon.item(), "kl": kl.sum().item()}

    @torch.no_grad()
    def score(self, x):
        """Reconstruction error from the posterior mean, one number per window."""
        mu, _ = self.encoder(x)
        return (self.decoder(mu) - x).square().sum((1, 2))

    def evaluate(self, x):
        self.eval()
        return self.score(x).mean().item()

    def fit(self, x, epochs, batch_size, validation_data, verbose=1):
        history = {"loss": [], "recon": [], "kl": [], "val_recon": []}
        self.train()
        for epoch in range(epochs):
            self.train()  #! stuck_in_eval: pass
            logs = [self.train_step(x[i]) for i in torch.randperm(len(x)).split(batch_size) if len(i) > 1]
            for k in ("loss", "recon", "kl"):
                history[k].append(float(np.mean([l[k] for l in logs])))
            history["val_recon"].append(self.evaluate(validation_data))
            if verbose:
                print(f"Epoch {epoch + 1}/{epochs} - " + " - ".join(f"{k}: {v[-1]:.3f}" for k, v in history.items()))
        return history


def make_windows(n, rng, anomaly_rate):
    """(N, CHANNELS, WINDOW) accelerations in m/s^2 with an offset by gravity; anomalies carry impacts or a lost harmonic."""
    t = np.arange(WINDOW) / WINDOW
    ph, amp = rng.uniform(0, 2 * np.pi, (n, 1)), rng.uniform(0.8, 1.2, (n, 1))
    base, harm = np.sin(2 * np.pi * 3 * t + ph), np.sin(2 * np.pi * 6 * t + 2 * ph)
    bad = rng.random(n) < anomaly_rate
    mix = np.where(bad & (rng.random(n) < 0.5), -0.6, 0.6)[:, None]
    x = np.stack([9.81 + 3 * amp * (base + mix * harm), 1.5 * amp * (np.roll(base, 4, 1) - mix * harm)], 1)
    for i in np.flatnonzero(bad):
        at = rng.integers(0, WINDOW - 6)
        x[i, :, at:at + 5] += rng.choice([-4, 4], size=(CHANNELS, 1)) * np.hanning(7)[1:-1]
    return (x + 0.15 * rng.normal(size=x.shape)).astype(np.float32), bad


def train():
    torch.manual_seed(8)
    rng = np.random.default_rng(8)
    x, bad = make_windows(700, rng, 0.1)
    x_test, bad_test = make_windows(300, rng, 0.3)
    fit_on = x[~bad]  #! anomalies_in_fit: fit_on = x
    n_val = len(fit_on) // 6
    x_val, x_fit = fit_on[:n_val], fit_on[n_val:]
    mean, std = x_fit.mean((0, 2), keepdims=True), x_fit.std((0, 2), keepdims=True)
    scale = lambda a: torch.from_numpy((a - mean) / std)
    vae = VAE()
    vae.compile(torch.optim.Adam(vae.parameters(), lr=2e-3), max_beta=1.0, warm_steps=80, free_bits=0.1)
    vae.fit(scale(x_fit), epochs=10, batch_size=32, validation_data=scale(x_val))
    vae.eval()
    threshold = vae.score(scale(x_val)).quantile(0.98)
    s = vae.score(scale(x_test))
    truth = torch.from_numpy(bad_test)
    auc = (s[truth][:, None] > s[~truth][None, :]).float().mean()
    print(f"AUC {auc:.3f}; flagged {(s[truth] > threshold).float().mean():.2f} of the bad, {(s[~truth] > threshold).float().mean():.2f} of the good")


WATCH = ()
