"""A policy predicts chunks of actions from the state; the goal jumps now and then.

fault chunk_one_late: DK403
"""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
H, DT = 8, 0.25


def expert(obs):
    pos, goal = obs[..., :2], obs[..., 2:4]
    return ((goal - pos) * 2.0).clamp(-1, 1)


def record_episode(length=30):
    goal, pos = torch.rand(2) * 2 - 1, torch.rand(2) * 2 - 1
    obs, act = [], []
    for t in range(length):
        if t % 5 == 4:  # the goal jumps
            goal = torch.rand(2) * 2 - 1
        o = torch.cat([pos, goal])
        a = expert(o)
        obs.append(o); act.append(a)
        pos = pos + DT * a
    return {"observation.state": torch.stack(obs), "action": torch.stack(act)}


class ChunkDataset(Dataset):
    def __init__(self, episodes):
        self.episodes = episodes
        self.index = [(e, t) for e, ep in enumerate(episodes) for t in range(len(ep["action"]) - H - 1)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        e, t = self.index[i]
        ep = self.episodes[e]
        return {"observation.state": ep["observation.state"][t], "action": ep["action"][t:t + H]}  #! chunk_one_late: return {"observation.state": ep["observation.state"][t], "action": ep["action"][t + 1:t + 1 + H]}


class ChunkPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, H * 2))

    def forward(self, batch):
        pred = self.net(batch["observation.state"]).view(-1, H, 2)
        return nn.functional.l1_loss(pred, batch["action"]), pred


def train():
    loader = DataLoader(ChunkDataset([record_episode() for _ in range(80)]), batch_size=64, shuffle=True)
    policy = ChunkPolicy()
    opt = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    for epoch in range(8):
        policy.train()
        for batch in loader:
            loss, _ = policy(batch)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print("epoch", epoch, "loss", round(loss.item(), 4))

    policy.eval()
    with torch.no_grad():
        o = torch.rand(500, 4) * 2 - 1
        a = policy.net(o).view(-1, H, 2)[:, 0]
        print("error of the first action against the expert:", (a - expert(o)).abs().mean().item())


WATCH = ()
