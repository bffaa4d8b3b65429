"""Dreamer-like world model: RSSM with KL balancing and free bits, then an actor and a critic trained in imagination.

fault prior_detached: DK121 at here|"detach()"
fault reset_ignored: none
fault imagine_grad_model: DK104 at here|"torch.optim.Adam("
fault reward_shifted: none
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Independent, Normal, kl_divergence

OBS, ACT, DET, STO, B, T = 6, 2, 32, 8, 16, 12


class Pendulumish:
    """A point in the plane, pushed by the action, rewarded near the origin; observed through a fixed mixing."""
    def __init__(self, n, g):
        self.n, self.g = n, g
        self.mix = torch.randn(4, OBS, generator=torch.Generator().manual_seed(99)) * 0.7
        self.s = torch.randn(n, 4, generator=g)

    def step(self, a):
        pos, vel = self.s.chunk(2, -1)
        vel = 0.8 * vel + 0.4 * a
        self.s = torch.cat([pos + 0.3 * vel, vel], -1)
        reward = torch.exp(-self.s[:, :2].pow(2).sum(-1))
        fresh = torch.rand(self.n, generator=self.g) < 0.06
        self.s = torch.where(fresh[:, None], torch.randn(self.n, 4, generator=self.g), self.s)
        return self.s @ self.mix + 0.02 * torch.randn(self.n, OBS, generator=self.g), reward * ~fresh, fresh


def collect(g, n=64, length=T):
    env, keys = Pendulumish(n, g), ("action", "obs", "reward", "first")
    buf = {k: [] for k in keys}
    for t in range(length):
        a = torch.rand(n, ACT, generator=g) * 2 - 1
        obs, r, fresh = env.step(a)
        first = fresh if t else torch.ones(n, dtype=torch.bool)
        for k, v in zip(keys, (a, obs, r, first)):
            buf[k].append(v)
    return {k: torch.stack(v) for k, v in buf.items()}


def mlp(i, o, h=48):
    return nn.Sequential(nn.Linear(i, h), nn.LayerNorm(h), nn.SiLU(), nn.Linear(h, o))


class WorldModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.inp = nn.GRUCell(32, DET), nn.Linear(STO + ACT, 32)
        self.prior_net, self.post_net = mlp(DET, 2 * STO), mlp(DET + OBS, 2 * STO)
        self.decoder, self.reward = mlp(DET + STO, OBS), mlp(DET + STO, 1)

    @staticmethod
    def dist(raw):
        mean, std = raw.chunk(2, -1)
        return Independent(Normal(mean, F.softplus(std) + 0.1), 1)

    def step(self, h, z, a):
        h = self.cell(F.silu(self.inp(torch.cat([z, a], -1))), h)
        return h, self.dist(self.prior_net(h))

    def observe(self, batch):
        h, z = torch.zeros(B, DET), torch.zeros(B, STO)
        hs, zs, priors, posts = [], [], [], []
        for a, obs, first in zip(batch["action"], batch["obs"], batch["first"]):
            keep = (~first).float()[:, None]  #! reset_ignored: keep = torch.ones_like(first).float()[:, None]
            h, prior = self.step(h * keep, z * keep, a * keep)
            post = self.dist(self.post_net(torch.cat([h, obs], -1)))
            z = post.rsample()
            hs.append(h); zs.append(z); priors.append(prior); posts.append(post)
        return torch.stack(hs), torch.stack(zs), priors, posts


def stack(dists, detach=False):
    mean, std = (torch.stack([getattr(d.base_dist, k) for d in dists]) for k in ("loc", "scale"))
    if detach:
        mean, std = mean.detach(), std.detach()
    return Independent(Normal(mean, std), 1)


def world_loss(wm, batch):
    h, z, prior, post = wm.observe(batch)
    feat = torch.cat([h, z], -1)
    recon = F.mse_loss(wm.decoder(feat), batch["obs"], reduction="none").sum(-1).mean()
    first = batch["first"]
    rew = ((wm.reward(feat).squeeze(-1) - batch["reward"]).pow(2) * ~first).mean()
    dyn = kl_divergence(stack(post, detach=True), stack(prior)).clamp(min=0.5).mean()  #! prior_detached: dyn = kl_divergence(stack(post, detach=True), stack(prior, detach=True)).clamp(min=0.5).mean()
    rep = kl_divergence(stack(post), stack(prior, detach=True)).clamp(min=0.5).mean()
    return recon + 5 * rew + 0.5 * dyn + 0.1 * rep, h.detach().flatten(0, 1), z.detach().flatten(0, 1)


def imagine(wm, actor, h, z, horizon=6):
    feats, policies = [torch.cat([h, z], -1)], []
    for _ in range(horizon):
        pi = WorldModel.dist(actor(feats[-1].detach()))
        a = torch.tanh(pi.rsample())
        h, prior = wm.step(h, z, a)
        z = prior.rsample()
        feats.append(torch.cat([h, z], -1)); policies.append(pi)
    return torch.stack(feats), policies


def lambda_returns(reward, value, gamma=0.95, lam=0.9):
    out, last = [], value[-1]
    for r, v in zip(reward.flip(0), value[1:].flip(0)):
        last = r + gamma * ((1 - lam) * v + lam * last)
        out.append(last)
    return torch.stack(out[::-1])


def train():
    torch.manual_seed(5)
    g = torch.Generator().manual_seed(6)
    replay = collect(g)
    wm, actor, critic = WorldModel(), mlp(DET + STO, 2 * ACT), mlp(DET + STO, 1)
    opt_w = torch.optim.Adam(wm.parameters(), 3e-3, eps=1e-5)
    opt_a = torch.optim.Adam(actor.parameters(), 1e-3, eps=1e-5)  #! imagine_grad_model: opt_a = torch.optim.Adam([*actor.parameters(), *wm.parameters()], 1e-3, eps=1e-5)
    opt_c = torch.optim.Adam(critic.parameters(), 1e-3, eps=1e-5)
    curve, gains = [], []
    for step in range(80):
        pick = torch.randint(64, (B,), generator=g)
        loss, h, z = world_loss(wm, {k: v[:, pick] for k, v in replay.items()})
        opt_w.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(wm.parameters(), 100.0)
        opt_w.step()
        curve.append(loss.item())

        some = torch.randint(len(h), (48,), generator=g)
        feats, policies = imagine(wm, actor, h[some], z[some])
        returns = lambda_returns(wm.reward(feats[1:]).squeeze(-1), critic(feats).squeeze(-1))  #! reward_shifted: returns = lambda_returns(wm.reward(feats[:-1]).squeeze(-1), critic(feats).squeeze(-1))
        entropy = torch.stack([p.entropy() for p in policies]).mean()
        actor_loss = -returns.mean() - 1e-3 * entropy
        opt_a.zero_grad()
        actor_loss.backward()
        opt_a.step()
        # the critic and the world model received gradients from the actor's loss too; they are cleared here and above
        opt_c.zero_grad()
        value = critic(feats[:-1].detach()).squeeze(-1)
        critic_loss = F.mse_loss(value, returns.detach())
        critic_loss.backward()
        opt_c.step()
        gains.append(returns.mean().item())
    train.score = gains[0], gains[-1]
    return curve


WATCH = ()
