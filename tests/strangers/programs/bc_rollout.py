"""Behaviour cloning with normalised states and actions, then a rollout to the goal.

fault not_unnormalised: none
"""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Normalizer(nn.Module):
    def __init__(self, data):
        super().__init__()
        self.register_buffer("mean", data.mean(0))
        self.register_buffer("std", data.std(0) + 1e-6)

    def normalize(self, x):
        return (x - self.mean) / self.std

    def unnormalize(self, x):
        return x * self.std + self.mean


def controller(o):
    return 0.05 * (o[..., 3:] - o[..., :3]) + 0.01


obs = torch.rand(3000, 6)
act = controller(obs) + 0.001 * torch.randn(3000, 3)


class BCPolicy(nn.Module):
    def __init__(self, obs, act):
        super().__init__()
        self.obs_norm, self.act_norm = Normalizer(obs), Normalizer(act)
        self.mlp = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, batch):
        pred = self.mlp(self.obs_norm.normalize(batch["observation.state"]))
        return {"loss": nn.functional.mse_loss(pred, self.act_norm.normalize(batch["action"]))}

    @torch.no_grad()
    def select_action(self, batch):
        pred = self.mlp(self.obs_norm.normalize(batch["observation.state"]))
        return self.act_norm.unnormalize(pred)  #! not_unnormalised: return pred


def train():
    policy = BCPolicy(obs, act)
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    dl = DataLoader(TensorDataset(obs, act), batch_size=64, shuffle=True)
    for epoch in range(6):
        policy.train()
        for o, a in dl:
            loss = policy({"observation.state": o, "action": a})["loss"]
            opt.zero_grad()
            loss.backward()
            opt.step()
        print("epoch", epoch, "loss", round(loss.item(), 4))

    policy.eval()
    pos, goal = torch.rand(20, 3), torch.rand(20, 3)
    for t in range(60):
        a = policy.select_action({"observation.state": torch.cat([pos, goal], 1)})
        pos = pos + a
    print("distance to the goal after the rollout:", (pos - goal).norm(dim=1).mean().item())


WATCH = ()
