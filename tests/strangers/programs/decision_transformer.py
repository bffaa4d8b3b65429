"""Decision transformer on offline trajectories of a chain world, conditioned on returns-to-go.

fault rtg_past: none
fault action_from_own_token: none
fault no_causal: DK304
fault rtg_not_decremented: none
"""
import random
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0); np.random.seed(0); torch.manual_seed(0)

N_CELLS, MAX_T, K, D = 9, 16, 6, 32


class Chain:
    """Move on a line; a coin appears at a cell that depends on the clock; +1 when standing on it."""
    def reset(self):
        self.x, self.t = 4, 0
        return self.obs()

    def obs(self):
        o = np.zeros(2 * N_CELLS, dtype=np.float32)
        o[self.x] = 1
        o[N_CELLS + (6 + 6 * (self.t // 4)) % N_CELLS] = 1
        return o

    def step(self, a):
        coin = (6 + 6 * (self.t // 4)) % N_CELLS
        self.x = int(np.clip(self.x + a - 1, 0, N_CELLS - 1))
        self.t += 1
        return self.obs(), float(self.x == coin), self.t == MAX_T


def collect(n):
    trajs = []
    env = Chain()
    for _ in range(n):
        skill = np.random.choice([0.0, 0.6, 1.0])
        o, done, tr = env.reset(), False, dict(o=[], a=[], r=[])
        while not done:
            coin = int(o[N_CELLS:].argmax())
            a = int(np.sign(coin - env.x)) + 1 if np.random.rand() < skill else np.random.randint(3)
            tr["o"].append(o); tr["a"].append(a)
            o, r, done = env.step(a)
            tr["r"].append(r)
        tr = {k: np.array(v) for k, v in tr.items()}
        tr["rtg"] = np.cumsum(tr["r"][::-1])[::-1].copy()  #! rtg_past: tr["rtg"] = np.cumsum(tr["r"]).copy()
        trajs.append(tr)
    return trajs


def sample(trajs, n):
    out = [], [], [], [], []
    for _ in range(n):
        tr = random.choice(trajs)
        s = random.randrange(0, MAX_T)
        e = min(s + K, MAX_T)
        pad = K - (e - s)
        left = lambda v, fill=0: np.concatenate([np.full((pad,) + v.shape[1:], fill, v.dtype), v[s:e]])
        clock = np.arange(MAX_T)
        mask = np.concatenate([np.zeros(pad), np.ones(e - s)])
        for dst, v in zip(out, (left(tr["o"]), left(tr["a"]), left(tr["rtg"]), left(clock), mask)):
            dst.append(torch.from_numpy(v))
    o, a, g, t, m = map(torch.stack, out)
    return o, a, g.float() / 5.0, t, m.bool()


class DT(nn.Module):
    def __init__(self):
        super().__init__()
        self.obs, self.act, self.rtg = nn.Linear(2 * N_CELLS, D), nn.Embedding(3, D), nn.Linear(1, D)
        self.time = nn.Embedding(MAX_T, D)
        self.qkv = nn.ModuleList(nn.Linear(D, 3 * D) for _ in range(2))
        self.proj = nn.ModuleList(nn.Linear(D, D) for _ in range(2))
        self.mlp = nn.ModuleList(nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 64), nn.GELU(), nn.Linear(64, D)) for _ in range(2))
        self.ln = nn.ModuleList(nn.LayerNorm(D) for _ in range(3))
        self.head = nn.Linear(D, 3)

    def forward(self, o, a, g, t, m):
        B = len(o)
        clock = self.time(t)
        x = torch.stack([self.rtg(g[..., None]) + clock, self.obs(o) + clock, self.act(a) + clock], 2).flatten(1, 2)
        L = 3 * K
        keep = m.repeat_interleave(3, 1)[:, None, None]
        causal = torch.ones(L, L, dtype=torch.bool).tril()  #! no_causal: causal = torch.ones(L, L, dtype=torch.bool)
        allowed = (causal & keep) | torch.eye(L, dtype=torch.bool)
        for ln, qkv, proj, mlp in zip(self.ln, self.qkv, self.proj, self.mlp):
            q, k, v = (z.view(B, L, 2, D // 2).transpose(1, 2) for z in qkv(ln(x)).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
            x = x + proj(y.transpose(1, 2).reshape(B, L, D))
            x = x + mlp(x)
        x = self.ln[2](x).view(B, K, 3, D)
        return self.head(x[:, :, 1])  #! action_from_own_token: return self.head(x[:, :, 2])


@torch.no_grad()
def play(net, target):
    net.eval()
    env, total = Chain(), 0.0
    hist = dict(o=[env.reset()], a=[0], g=[target], t=[0])
    done = False
    while not done:
        n = min(K, len(hist["o"]))
        pad = lambda v: torch.cat([torch.zeros((K - n,) + v.shape[1:], dtype=v.dtype), v[-n:]])[None]
        m = pad(torch.ones(n, dtype=torch.bool))
        logits = net(pad(torch.from_numpy(np.stack(hist["o"]))), pad(torch.tensor(hist["a"])),
                     pad(torch.tensor(hist["g"])) / 5.0, pad(torch.tensor(hist["t"])), m)
        a = int(logits[0, -1].argmax())
        hist["a"][-1] = a
        o, r, done = env.step(a)
        total += r
        if not done:
            hist["g"].append(hist["g"][-1] - r)  #! rtg_not_decremented: hist["g"].append(hist["g"][-1])
            hist["o"].append(o); hist["a"].append(0); hist["t"].append(env.t)
    net.train()
    return total


def train():
    random.seed(1); np.random.seed(1); torch.manual_seed(1)
    trajs = collect(200)
    net = DT()
    decay = [p for p in net.parameters() if p.ndim > 1]
    rest = [p for p in net.parameters() if p.ndim <= 1]
    opt = torch.optim.AdamW([dict(params=decay, weight_decay=1e-2), dict(params=rest, weight_decay=0.0)], lr=3e-3)
    losses = []
    for step in range(180):
        o, a, g, t, m = sample(trajs, 64)
        loss = F.cross_entropy(net(o, a, g, t, m)[m], a[m])
        opt.zero_grad(); loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.25)
        opt.step()
        losses.append(loss.item())
    best = max(float(tr["r"].sum()) for tr in trajs)
    train.score = best, play(net, best), play(net, 1.0)
    return losses


WATCH = ()
