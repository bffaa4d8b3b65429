"""Behaviour cloning of a small vision-language transformer policy that predicts chunks of normalised robot actions.

fault pad_inverted: DK326 at "src_key_padding_mask="
fault episode_overrun: none
fault stats_swapped: none
fault val_dropout: DK510 at here|module:
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from dataclasses import dataclass
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    n_episodes: int = 40
    horizon: int = 4
    dim: int = 48
    batch: int = 32
    epochs: int = 8
    lr: float = 1e-3
    vocab: tuple = ("<pad>", "go", "to", "the", "red", "green", "blue", "block", "slowly", "please")


def make_episode(cfg, gen):
    """A gripper at `pos` moves towards the block whose colour the instruction names."""
    target = int(torch.randint(3, (1,), generator=gen))
    blocks = torch.rand(3, 2, generator=gen)
    pos = torch.rand(2, generator=gen)
    words = [cfg.vocab.index(w) for w in ("go", "to", "the", ("red", "green", "blue")[target], "block")]
    if torch.rand(1, generator=gen) < 0.5:
        words.insert(0, cfg.vocab.index("please"))
    length = int(torch.randint(8, 14, (1,), generator=gen))
    frames, states, actions = [], [], []
    for _ in range(length):
        img = torch.zeros(3, 16, 16)
        for c in range(3):
            y, x = (blocks[c] * 13).long().tolist()
            img[c, y:y + 3, x:x + 3] = 1.0
        action = (blocks[target] - pos) * torch.tensor([0.3, 0.2])
        frames.append(img)
        states.append(pos.clone())
        actions.append(action)
        pos = pos + action
    return dict(frames=torch.stack(frames), states=torch.stack(states), actions=torch.stack(actions), words=words)


class ChunkDataset(Dataset):
    def __init__(self, episodes, horizon, stats):
        self.episodes, self.horizon, self.stats = episodes, horizon, stats
        self.index = [(e, t) for e, ep in enumerate(episodes) for t in range(len(ep["actions"]))]
        self.flat = torch.cat([ep["actions"] for ep in episodes] + [torch.zeros(horizon, 2)])
        self.starts = torch.tensor([0] + [len(ep["actions"]) for ep in episodes]).cumsum(0)

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        e, t = self.index[i]
        ep = self.episodes[e]
        begin = int(self.starts[e]) + t
        chunk = (self.flat[begin:begin + self.horizon] - self.stats["mean"]) / self.stats["std"]
        valid = torch.arange(t, t + self.horizon) < len(ep["actions"])  #! episode_overrun: valid = torch.arange(begin, begin + self.horizon) < len(self.flat)
        return dict(image=ep["frames"][t], state=ep["states"][t], words=ep["words"], actions=chunk, valid=valid)


def collate(items):
    out = {k: torch.stack([it[k] for it in items]) for k in ("image", "state", "actions", "valid")}
    width = max(len(it["words"]) for it in items)
    out["words"] = torch.tensor([it["words"] + [0] * (width - len(it["words"])) for it in items])
    return out


class Policy(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg.dim
        self.patch = nn.Conv2d(3, d, 4, stride=4)
        self.patch_pos = nn.Parameter(torch.randn(1, 16, d) * 0.02)
        self.word = nn.Embedding(len(cfg.vocab), d, padding_idx=0)
        self.word_pos = nn.Parameter(torch.randn(1, 8, d) * 0.02)
        self.state = nn.Linear(2, d)
        self.query = nn.Parameter(torch.randn(1, cfg.horizon, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 2 * d, dropout=0.1, batch_first=True, norm_first=True)
        self.trunk = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(d), enable_nested_tensor=False)
        self.head = nn.Linear(d, 2)

    def forward(self, batch):
        b = len(batch["image"])
        img = self.patch(batch["image"]).flatten(2).transpose(1, 2) + self.patch_pos
        txt = self.word(batch["words"]) + self.word_pos[:, :batch["words"].shape[1]]
        query = self.query.expand(b, -1, -1)
        tokens = torch.cat([txt, img, self.state(batch["state"])[:, None], query], 1)
        pad = batch["words"].eq(0)  #! pad_inverted: pad = batch["words"].ne(0)
        rest = pad.new_zeros(b, tokens.shape[1] - pad.shape[1])
        hidden = self.trunk(tokens, src_key_padding_mask=torch.cat([pad, rest], 1))
        return self.head(hidden[:, -query.shape[1]:])


def chunk_loss(pred, batch):
    err = F.smooth_l1_loss(pred, batch["actions"], reduction="none").mean(-1)
    return (err * batch["valid"]).sum() / batch["valid"].sum()


@torch.no_grad()
def evaluate(policy, loader, stats):
    policy.eval()  #! val_dropout: policy.train()
    total, count = 0.0, 0
    for batch in loader:
        first = policy(batch)[:, 0] * stats["std"] + stats["mean"]  #! stats_swapped: first = policy(batch)[:, 0] * stats["mean"] + stats["std"]
        truth = batch["actions"][:, 0] * stats["std"] + stats["mean"]
        total += (first - truth).norm(dim=-1).sum().item()
        count += len(first)
    return total / count


def train():
    cfg = Config()
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    episodes = [make_episode(cfg, gen) for _ in range(cfg.n_episodes)]
    fit, held = episodes[:32], episodes[32:]
    every = torch.cat([ep["actions"] for ep in fit])
    stats = {"mean": every.mean(0), "std": every.std(0) + 1e-6}
    loader = DataLoader(ChunkDataset(fit, cfg.horizon, stats), cfg.batch, shuffle=True, collate_fn=collate,
                        generator=torch.Generator().manual_seed(2))
    val = DataLoader(ChunkDataset(held, cfg.horizon, stats), 64, collate_fn=collate)
    policy = Policy(cfg)
    opt = torch.optim.AdamW(policy.parameters(), lr=cfg.lr, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3 * cfg.lr, total_steps=cfg.epochs * len(loader))
    losses, scores = [], []
    for _ in range(cfg.epochs):
        policy.train()
        for batch in loader:
            loss = chunk_loss(policy(batch), batch)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
            sched.step()
            losses.append(loss.item())
        scores.append(evaluate(policy, val, stats))
    return losses


WATCH = ()
