"""ACT: a conditional VAE whose encoder reads the demonstrated action sequence and whose decoder emits the chunk.

fault kl_missing_half: none
fault std_from_var: none
fault latent_leak_eval: none
fault ensemble_weights: none
"""
import math
import torch
from torch import nn


H, OBS, ACT, Z, D = 8, 6, 2, 8, 32


def sinusoid(n, d):
    pos = torch.arange(n)[:, None]
    freq = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
    table = torch.zeros(n, d)
    table[:, 0::2] = torch.sin(pos * freq)
    table[:, 1::2] = torch.cos(pos * freq)
    return table


class ACT_(nn.Module):
    def __init__(self):
        super().__init__()
        enc = nn.TransformerEncoderLayer(D, 2, 64, 0.0, batch_first=True)
        self.style_encoder = nn.TransformerEncoder(enc, 1, enable_nested_tensor=False)
        self.cls = nn.Parameter(torch.zeros(1, 1, D))
        self.act_in, self.obs_in = nn.Linear(ACT, D), nn.Linear(OBS, D)
        self.to_stats = nn.Linear(D, 2 * Z)
        self.z_in = nn.Linear(Z, D)
        self.register_buffer("enc_pos", sinusoid(H + 2, D), persistent=False)
        self.queries = nn.Embedding(H, D)
        dec = nn.TransformerDecoderLayer(D, 2, 64, 0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(dec, 2)
        self.out = nn.Linear(D, ACT)

    def posterior(self, obs, actions, is_pad):
        seq = torch.cat([self.cls.expand(len(obs), -1, -1), self.obs_in(obs)[:, None], self.act_in(actions)], 1)
        mask = torch.cat([is_pad.new_zeros(len(obs), 2), is_pad], 1)
        code = self.style_encoder(seq + self.enc_pos, src_key_padding_mask=mask)[:, 0]
        return self.to_stats(code).chunk(2, -1)

    def decode(self, obs, z):
        memory = torch.stack([self.obs_in(obs), self.z_in(z)], 1)
        return self.out(self.decoder(self.queries.weight.expand(len(obs), -1, -1), memory))

    def forward(self, obs, actions=None, is_pad=None):
        if actions is None:
            return self.decode(obs, obs.new_zeros(len(obs), Z)), None, None
        mu, logvar = self.posterior(obs, actions, is_pad)
        std = (0.5 * logvar).exp()  #! std_from_var: std = logvar.exp()
        return self.decode(obs, mu + std * torch.randn_like(std)), mu, logvar


def demonstrations(n, g):
    """Swing left or right around an obstacle: two styles for the same observation."""
    obs = torch.randn(n, OBS, generator=g)
    style = (torch.rand(n, 1, generator=g) < 0.5).float() * 2 - 1
    t = torch.linspace(0, 1, H)[None]
    x = obs[:, :1] * t + obs[:, 1:2] * (1 - t)
    y = style * torch.sin(math.pi * t) + 0.5 * obs[:, 2:3] * t
    actions = torch.stack([x, y], -1) + 0.02 * torch.randn(n, H, ACT, generator=g)
    length = torch.randint(H // 2, H + 1, (n, 1), generator=g)
    is_pad = torch.arange(H)[None] >= length
    return obs, actions.masked_fill(is_pad[..., None], 0.0), is_pad


def kl_standard_normal(mu, logvar):
    return -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(-1).mean()  #! kl_missing_half: return -0.5 * (1 + logvar - mu.pow(2) - logvar).sum(-1).mean()


@torch.no_grad()
def rollout_error(model, obs, actions, is_pad):
    """Follow the mean style, as at deployment where the future actions are unknown."""
    model.eval()
    pred, _, _ = model(obs)  #! latent_leak_eval: pred, _, _ = model(obs, actions, is_pad)
    model.train()
    keep = ~is_pad
    return (pred - actions).abs().mean(-1)[keep].mean().item()


@torch.no_grad()
def temporal_ensemble(model, stream, k=0.3):
    """Average the predictions that successive chunks make for the same moment; the oldest weighs most."""
    T = len(stream)
    table = torch.full((T, T + H, ACT), float("nan"))
    for t in range(T):
        table[t, t:t + H] = model(stream[t:t + 1])[0][0]
    plan = []
    for t in range(T):
        votes = table[max(0, t - H + 1):t + 1, t]
        w = torch.exp(-k * torch.arange(len(votes)))
        plan.append((votes * w[:, None]).sum(0) / w.sum())  #! ensemble_weights: plan.append((votes * w[:, None]).sum(0) / len(votes))
    return torch.stack(plan)


def train(steps=140, beta=0.02):
    torch.manual_seed(3)
    g = torch.Generator().manual_seed(4)
    obs, actions, is_pad = demonstrations(640, g)
    held = demonstrations(128, g)
    net = ACT_()
    optim = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)
    curve, errors = [], []
    for step in range(steps):
        pick = torch.randint(len(obs), (64,), generator=g)
        pred, mu, logvar = net(obs[pick], actions[pick], is_pad[pick])
        keep = (~is_pad[pick])[..., None].expand_as(pred)
        l1 = (pred - actions[pick]).abs()[keep].mean()
        loss = l1 + beta * kl_standard_normal(mu, logvar)
        optim.zero_grad(set_to_none=True)
        loss.backward()
        optim.step()
        curve.append(loss.item())
        if step % 35 == 34:
            errors.append(rollout_error(net, *held))
    net.eval()
    drift = torch.cumsum(0.05 * torch.randn(12, OBS, generator=g), 0)
    smooth = temporal_ensemble(net, drift)
    assert smooth.shape == (12, ACT)
    return curve


WATCH = ()
