"""Behaviour cloning of chunks of relative actions; normalised by statistics with a small constant added to the deviation.

fault absolute_statistics: DK402 at "Normalizer("
fault actions_of_other_samples: DK310 at here
fault reads_target: DK404 at here|input:action
fault own_target: DK105|DK310 at here
fault one_batch_mm: DK205|DK320 at here|input:observation
fault actions_lag: DK403 at here
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(10)

class Normalizer(nn.Module):
    def __init__(self, data):
        super().__init__()
        self.register_buffer("mean", data.mean(0))
        self.register_buffer("std", data.std(0) + 1e-6)
    def normalize(self, x): return (x - self.mean) / self.std
    def unnormalize(self, x): return x * self.std + self.mean

def episode(seed, T=40):
    g = torch.Generator().manual_seed(seed)
    pos = torch.randn(3, generator=g); goal = 3 * torch.randn(3, generator=g) + 5
    obs, act = [], []
    for _ in range(T):
        a = 0.2 * (goal - pos) + 0.02 * torch.randn(3, generator=g)
        obs.append(torch.cat([pos, goal])); act.append(a); pos = pos + a
    return torch.stack(obs), torch.stack(act)

class Demos(Dataset):
    def __init__(self, n=24, chunk=4):
        self.obs, self.act = [], []
        for s in range(n):
            o, a = episode(s)
            a = a  #! actions_lag: a = torch.cat([a[:1].expand(5, -1), a[:-5]])
            for t in range(len(o) - chunk):
                self.obs.append(o[t]); self.act.append(a[t:t + chunk])
        self.obs, self.act = torch.stack(self.obs), torch.stack(self.act)
        pass  #! actions_of_other_samples: self.act = self.act[torch.randperm(len(self.act))]
        pass  #! one_batch_mm: self.obs[300:332] *= 1000
    def __len__(self): return len(self.obs)
    def __getitem__(self, i): return {"observation": self.obs[i], "action": self.act[i]}

class Policy(nn.Module):
    def __init__(self, action_stats, obs_stats, chunk=4):
        super().__init__()
        self.chunk = chunk
        self.norm_o = Normalizer(obs_stats)
        self.norm_a = Normalizer(action_stats)
        self.net = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3 * chunk))
    def act(self, obs):
        return self.net(self.norm_o.normalize(obs)).view(-1, self.chunk, 3)
    def forward(self, batch):
        pred = self.act(batch["observation"])
        target = self.norm_a.normalize(batch["action"])  #! own_target: target = pred.detach() + 0 * self.norm_a.normalize(batch["action"])
        return (pred - target).abs().mean()
    @torch.no_grad()
    def predict(self, batch):
        return self.norm_a.unnormalize(self.act(batch["observation"]))  #! reads_target: return self.norm_a.unnormalize(self.act(batch["observation"])) + 0.5 * batch["action"]

data = Demos()
positions = data.obs[:, :3]
policy = Policy(data.act.flatten(0, 1), data.obs)  #! absolute_statistics: policy = Policy(positions + data.act[:, 0], data.obs)
loader = DataLoader(data, batch_size=32, shuffle=True)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)

def train():
    for _ in range(2):
        for batch in loader:
            loss = policy(batch)
            optimizer.zero_grad(); loss.backward(); optimizer.step()

CHECK = lambda: dict(model=policy, batch=next(iter(loader)), loss_fn=lambda m, b: m(b), optimizer=optimizer, dataloader=loader)
WATCH = (policy, optimizer)
