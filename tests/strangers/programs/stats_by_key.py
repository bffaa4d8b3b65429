"""Behaviour cloning from joint angles in degrees, with statistics by key of the batch.

fault stats_of_action: DK402
"""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Demos(Dataset):
    def __init__(self, n=2000):
        joints = torch.tensor([200.0, 90.0, 300.0, 45.0]) + torch.randn(n, 4) * torch.tensor([2.0, 1.0, 3.0, 0.5])
        z = (joints - torch.tensor([200.0, 90.0, 300.0, 45.0])) / torch.tensor([2.0, 1.0, 3.0, 0.5])
        self.data = {"observation.state": joints, "action": torch.sin(2 * z) + 0.2 * z.roll(1, 1)}

    def stats(self):
        return {k: {"mean": v.mean(0), "std": v.std(0)} for k, v in self.data.items()}

    def __len__(self):
        return len(self.data["action"])

    def __getitem__(self, i):
        return {k: v[i] for k, v in self.data.items()}


class Policy(nn.Module):
    def __init__(self, stats):
        super().__init__()
        for key in ("observation.state", "action"):
            name = key.replace(".", "_")
            self.register_buffer(name + "_mean", stats[key]["mean"])  #! stats_of_action: self.register_buffer(name + "_mean", stats["action"]["mean"])
            self.register_buffer(name + "_std", stats[key]["std"])  #! stats_of_action: self.register_buffer(name + "_std", stats["action"]["std"])
        self.net = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))

    def forward(self, batch):
        s = (batch["observation.state"] - self.observation_state_mean) / self.observation_state_std
        target = (batch["action"] - self.action_mean) / self.action_std
        return nn.functional.mse_loss(self.net(s), target)


def train():
    demos = Demos()
    loader = DataLoader(demos, batch_size=64, shuffle=True)
    policy = Policy(demos.stats())
    optim = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    step = 0
    for epoch in range(8):
        policy.train()
        running = 0.0
        for batch in loader:
            loss = policy(batch)
            optim.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
            optim.step()
            running += loss.item()
            step += 1
        print(f"epoch {epoch} step {step} loss {running / len(loader):.4f}")


WATCH = ()
