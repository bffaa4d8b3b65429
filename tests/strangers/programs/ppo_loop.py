"""Proximal policy optimisation on a small environment written here: rollouts under no_grad, several epochs of minibatches, shared trunk.

fault ratio_without_grad: DK121 at here
fault value_shape: DK002 at here|"vf = "
fault entropy_outweighs: DK122 at here
"""
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(16)

class Line:
    def __init__(self, n=16): self.x = torch.rand(n) * 2 - 1; self.t = 0
    def obs(self): return torch.stack([self.x, torch.full_like(self.x, self.t / 20)], 1)
    def step(self, a):
        self.x = (self.x + 0.1 * (a.float() - 1)).clamp(-2, 2); self.t += 1
        return -self.x.abs(), self.t % 20 == 0
    def reset(self): self.x = torch.rand_like(self.x) * 2 - 1; self.t = 0

class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.pi, self.v = nn.Linear(32, 3), nn.Linear(32, 1)
    def forward(self, o):
        h = self.body(o)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)  #! value_shape: return Categorical(logits=self.pi(h)), self.v(h)

agent = Agent()
opt = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)

@torch.no_grad()
def rollout(env, T=20, gamma=0.99, lam=0.95):
    obs, act, logp, val, rew = [], [], [], [], []
    for _ in range(T):
        o = env.obs(); d, v = agent(o); a = d.sample()
        r, done = env.step(a)
        obs.append(o); act.append(a); logp.append(d.log_prob(a)); val.append(v.reshape(-1)); rew.append(r)
    env.reset()
    last, adv = torch.zeros_like(rew[0]), []
    for t in reversed(range(T)):
        nxt = val[t + 1] if t + 1 < T else torch.zeros_like(val[t])
        last = rew[t] + gamma * nxt - val[t] + gamma * lam * last
        adv.insert(0, last)
    cat = lambda xs: torch.cat(list(xs))
    adv = cat(adv)
    return dict(obs=cat(obs), act=cat(act), logp=cat(logp), adv=(adv - adv.mean()) / (adv.std() + 1e-8), ret=adv + cat(val))

def loss_fn(m, b):
    d, v = m(b["obs"])
    ratio = (d.log_prob(b["act"]) - b["logp"]).exp()  #! ratio_without_grad: ratio = (d.log_prob(b["act"]).detach() - b["logp"]).exp()
    pg = -torch.min(ratio * b["adv"], ratio.clamp(0.8, 1.2) * b["adv"]).mean()
    vf = 0.5 * (v - b["ret"]).pow(2).mean()
    return pg + 0.5 * vf - 0.01 * d.entropy().mean()  #! entropy_outweighs: return pg + 0.5 * vf - 1e4 * d.entropy().mean()

def train():
    env = Line()
    for _ in range(4):
        data = rollout(env)
        for _ in range(3):
            for idx in torch.randperm(len(data["obs"])).split(80):
                loss = loss_fn(agent, {k: v[idx] for k, v in data.items()})
                opt.zero_grad(); loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                opt.step()

def CHECK():
    data = rollout(Line())
    return dict(model=agent, batch={k: v[:80] for k, v in data.items()}, loss_fn=loss_fn, optimizer=opt)
WATCH = (agent, opt)
