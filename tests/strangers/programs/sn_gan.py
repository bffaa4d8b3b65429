"""Hinge GAN with spectral normalisation on short sine waves: two critic steps per generator step and an EMA generator.

fault z_fixed: none
fault d_grads_kept: DK501 at here|"opt_d.step()"
fault ema_is_live: none
fault fake_sign: none
"""
import copy
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm as sn

LEN, Z, BATCH = 16, 8, 64
torch.manual_seed(21)
noise_rng = torch.Generator().manual_seed(77)


def real_batch(n=BATCH):
    phase = 6.2832 * torch.rand(n, 1)
    freq = 1.0 + (torch.rand(n, 1) > 0.5).float()
    t = torch.linspace(0, 6.2832, LEN + 1)[:-1]
    return torch.sin(freq * t + phase) + 0.05 * torch.randn(n, LEN)


def latent(n=BATCH):
    return torch.randn(n, Z, generator=noise_rng)


@torch.no_grad()
def ema_update(avg, src, decay):
    for a, s in zip(avg.parameters(), src.parameters()):
        a.lerp_(s, 1 - decay)
    for a, s in zip(avg.buffers(), src.buffers()):
        a.copy_(s)


@torch.no_grad()
def cov_gap(gen, real):
    """Distance between the second moments of generated and of real waves."""
    gen.eval()
    fake = gen(latent(len(real)))
    gen.train()
    return (fake.T @ fake / len(fake) - real.T @ real / len(real)).pow(2).mean().sqrt().item()


def train():
    torch.manual_seed(21)
    noise_rng.manual_seed(77)
    G = nn.Sequential(nn.Linear(Z, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(),
                      nn.Linear(64, LEN))
    D = nn.Sequential(sn(nn.Linear(LEN, 64)), nn.LeakyReLU(0.2), sn(nn.Linear(64, 64)), nn.LeakyReLU(0.2), sn(nn.Linear(64, 1)))
    G_ema = copy.deepcopy(G).requires_grad_(False)  #! ema_is_live: G_ema = G
    opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(D.parameters(), lr=4e-3, betas=(0.0, 0.9))
    held = real_batch(512)
    z_eval = latent()
    gaps, d_log, g_log = [cov_gap(G, held)], [], []
    for it in range(150):
        for _ in range(2):
            z = latent()  #! z_fixed: z = z_eval
            with torch.no_grad():
                fake = G(z)
            d_loss = F.relu(1 - D(real_batch())).mean() + F.relu(1 + D(fake)).mean()  #! fake_sign: d_loss = F.relu(1 - D(real_batch())).mean() + F.relu(1 - D(fake)).mean()
            opt_d.zero_grad()  #! d_grads_kept: pass
            d_loss.backward()
            opt_d.step()
        z = latent()  #! z_fixed: z = z_eval
        g_loss = -D(G(z)).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        ema_update(G_ema, G, min(0.97, it / (it + 10)))
        d_log.append(d_loss.item())
        g_log.append(g_loss.item())
        if it % 15 == 14:
            gaps.append(cov_gap(G_ema, held))
    with torch.no_grad():
        preview = G_ema.eval()(z_eval)
    return gaps, d_log, g_log, preview.std().item()


WATCH = ()
