"""ACT: CVAE over action chunks, padded chunk ends masked, z = 0 at inference, temporal ensembling in rollout."""
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

torch.manual_seed(0)
K, A, S = 8, 2, 4


def episode(T=30):
    p, g, obs, act = torch.rand(2) * 2 - 1, torch.rand(2) * 2 - 1, [], []
    side = torch.sign(torch.randn(()))
    for _ in range(T):
        d = g - p
        a = .2 * d + .08 * side * torch.stack([-d[1], d[0]]) + .005 * torch.randn(2)
        obs.append(torch.cat([p, g])); act.append(a)
        p = p + a
    return torch.stack(obs), torch.stack(act)


class Chunks(Dataset):
    def __init__(self, n):
        self.eps = [episode() for _ in range(n)]
        o, a = torch.cat([e[0] for e in self.eps]), torch.cat([e[1] for e in self.eps])
        self.stats = dict(om=o.mean(0), os=o.std(0), am=a.mean(0), as_=a.std(0))
        self.index = [(i, t) for i, e in enumerate(self.eps) for t in range(0, len(e[0]), 2)]
    def __len__(self): return len(self.index)
    def __getitem__(self, j):
        i, t = self.index[j]
        o, a = self.eps[i]
        c = a[t:t + K]
        pad = torch.zeros(K, dtype=torch.bool); pad[len(c):] = True
        return {"state": o[t], "action": F.pad(c, (0, 0, 0, K - len(c))), "action_is_pad": pad}


class ACT(nn.Module):
    def __init__(self, stats, d=48, z=4):
        super().__init__()
        for k, v in stats.items():
            self.register_buffer(k, v)
        self.zdim = z
        self.enc_in, self.cls = nn.Linear(A, d), nn.Parameter(torch.zeros(1, 1, d))
        self.enc_state, self.enc_pos = nn.Linear(S, d), nn.Parameter(torch.randn(1, K + 2, d) * .02)
        mk = lambda: nn.TransformerEncoderLayer(d, 4, 96, dropout=.1, batch_first=True, norm_first=True)
        self.cvae = nn.TransformerEncoder(mk(), 1, enable_nested_tensor=False)
        self.latent, self.latent_out = nn.Linear(d, 2 * z), nn.Linear(z, d)
        self.state = nn.Linear(S, d)
        self.query = nn.Parameter(torch.randn(1, K, d) * .02)
        self.dec = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, 4, 96, dropout=.1, batch_first=True), 2)
        self.head = nn.Linear(d, A)

    def forward(self, state, action=None, action_is_pad=None):
        B = len(state)
        s = (state - self.om) / self.os
        if action is not None:
            a = (action - self.am) / self.as_
            x = torch.cat([self.cls.expand(B, -1, -1), self.enc_state(s)[:, None], self.enc_in(a)], 1) + self.enc_pos
            m = F.pad(action_is_pad, (2, 0), value=False)
            mu, lv = self.latent(self.cvae(x, src_key_padding_mask=m)[:, 0]).chunk(2, -1)
            z = mu + (lv / 2).exp() * torch.randn_like(mu)
        else:
            z = torch.zeros(B, self.zdim, device=state.device)
        mem = torch.stack([self.latent_out(z), self.state(s)], 1)
        out = self.head(self.dec(self.query.expand(B, -1, -1), mem))
        if action is None:
            return out * self.as_ + self.am
        l1 = (F.l1_loss(out, a, reduction="none") * ~action_is_pad[..., None]).sum() / (~action_is_pad).sum() / A
        kl = (-.5 * (1 + lv - mu.pow(2) - lv.exp())).sum(-1).mean()
        return {"loss": l1 + .1 * kl, "l1": l1.detach(), "kl": kl.detach()}


@torch.no_grad()
def rollout(policy, T=30):
    policy.eval()
    p, g = torch.rand(16, 2) * 2 - 1, torch.rand(16, 2) * 2 - 1
    d0, plans = (g - p).norm(dim=1).mean(), []
    for t in range(T):
        plans = [(s, c) for s, c in plans if t - s < K] + [(t, policy(torch.cat([p, g], 1)))]
        w = torch.exp(-.1 * torch.arange(len(plans)))
        p = p + (torch.stack([c[:, t - s] for s, c in plans]) * (w / w.sum())[:, None, None]).sum(0)
    policy.train()
    return (d0.item(), (g - p).norm(dim=1).mean().item())


def train():
    data = Chunks(40)
    policy = ACT(data.stats)
    opt = torch.optim.AdamW(policy.parameters(), lr=1e-3, weight_decay=1e-4)
    for epoch in range(5):
        tot = {}
        for batch in DataLoader(data, 32, shuffle=True):
            out = policy(**batch)
            opt.zero_grad()
            out["loss"].backward()
            opt.step()
            for k, v in out.items():
                tot[k] = tot.get(k, 0) + float(v) / (len(data) / 32)
        print(epoch, {k: round(v, 3) for k, v in tot.items()}, "distance %.3f -> %.3f" % rollout(policy))


WATCH = ()
