"""A small diffusion policy over sequences of four actions, with a loader that has its own generator.

fault reseeded: DK705
fault reseeded_with_order: DK705|DK703
"""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
T, HORIZON = 50, 4
betas = torch.linspace(1e-4, 0.1, T)
abar = torch.cumprod(1 - betas, 0)


class NoisePredictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.t_embed = nn.Embedding(T, 32)
        self.net = nn.Sequential(nn.Linear(HORIZON + 2 + 32, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, HORIZON))

    def forward(self, x, t, obs):
        return self.net(torch.cat([x, obs, self.t_embed(t)], dim=-1))


class DiffusionPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.unet = NoisePredictor()

    def compute_loss(self, obs, actions):
        noise = torch.randn_like(actions)  #! reseeded: torch.manual_seed(42); noise = torch.randn_like(actions)  #! reseeded_with_order: torch.manual_seed(42); noise = torch.randn_like(actions)
        t = torch.randint(0, T, (len(actions),))
        a = abar[t].unsqueeze(-1)
        noisy = a.sqrt() * actions + (1 - a).sqrt() * noise
        return nn.functional.mse_loss(self.unet(noisy, t, obs), noise)

    @torch.no_grad()
    def sample(self, obs):
        x = torch.randn(len(obs), HORIZON)
        for i in reversed(range(T)):
            t = torch.full((len(obs),), i)
            eps = self.unet(x, t, obs)
            x = (x - betas[i] / (1 - abar[i]).sqrt() * eps) / (1 - betas[i]).sqrt()
            if i:
                x = x + betas[i].sqrt() * torch.randn_like(x)
        return x


def train():
    obs = torch.rand(2048, 2) * 2 - 1
    actions = torch.stack([obs[:, 0] * (1 - k / 4) + obs[:, 1] * k / 4 for k in range(HORIZON)], 1)
    loader = DataLoader(TensorDataset(obs, actions), batch_size=64, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(1))  #! reseeded_with_order: loader = DataLoader(TensorDataset(obs, actions), batch_size=64, shuffle=True, drop_last=True)
    policy = DiffusionPolicy()
    opt = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    for epoch in range(12):
        policy.train()
        for o, a in loader:
            loss = policy.compute_loss(o, a)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if epoch % 3 == 2:
            print("epoch", epoch, "loss", round(loss.item(), 4))
    torch.manual_seed(7)
    policy.eval()
    print("error of sampled actions:", (policy.sample(obs[:300]) - actions[:300]).abs().mean().item())


WATCH = ()
