"""Behaviour cloning: image encoder + frozen tiny language model -> action chunk, under DDP, with an EMA of
model.module that is evaluated on all ranks (metrics summed with all_reduce).

fault ema_rank0_only: none
    Only rank 0 updates its EMA weights, though every rank evaluates its shard with its own EMA.
fault lm_not_frozen: none
    The language model is left trainable and in the optimizer.
fault mean_of_means: none
    Per-batch means are added up but divided by the number of samples.
"""
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

HORIZON, ACT, IMG, WORDS = 4, 2, 20, 12
COLORS = torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]])


class ReachDemos(Dataset):
    """Three coloured blobs on a plain; the instruction names one; the expert moves straight to it from the centre."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        pos = torch.rand(n, 3, 2, generator=g) * 1.6 - 0.8
        grid = torch.stack(torch.meshgrid(torch.linspace(-1, 1, IMG), torch.linspace(-1, 1, IMG), indexing="ij"), -1)
        blob = torch.exp(-((grid[None, None] - pos[:, :, None, None]) ** 2).sum(-1) / 0.04)
        self.images = torch.einsum("nkhw,kc->nchw", blob, COLORS) + 0.03 * torch.randn(n, 3, IMG, IMG, generator=g)
        which = torch.randint(0, 3, (n,), generator=g)
        verb = torch.randint(4, WORDS, (n, 1), generator=g)
        self.text = torch.cat([verb, which[:, None] + 1, torch.zeros(n, 1, dtype=torch.long)], 1)
        goal = pos[torch.arange(n), which]
        frac = torch.arange(1, HORIZON + 1) / HORIZON
        self.actions = goal[:, None] * frac[None, :, None] + 0.01 * torch.randn(n, HORIZON, ACT, generator=g)

    def __len__(self):
        return len(self.text)

    def __getitem__(self, i):
        return self.images[i], self.text[i], self.actions[i]


class TinyLM(nn.Module):
    """Stands in for a pretrained text encoder."""

    def __init__(self, dim=32):
        super().__init__()
        self.emb = nn.Embedding(WORDS, dim)
        self.pos = nn.Parameter(torch.randn(3, dim) * 0.1)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.1, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, ids):
        return self.enc(self.emb(ids) + self.pos).flatten(1)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.lm = TinyLM()
        for p in self.lm.parameters():
            p.requires_grad_(False)  #! lm_not_frozen: p.requires_grad_(True)
        self.vision = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2), nn.GroupNorm(4, 16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2), nn.GroupNorm(4, 32), nn.ReLU(), nn.Flatten(),
        )
        self.film = nn.Linear(96, 32 * 9)
        self.head = nn.Sequential(nn.Linear(32 * 9, 96), nn.ReLU(), nn.Linear(96, HORIZON * ACT))

    def train(self, mode=True):
        super().train(mode)
        self.lm.eval()  # frozen: no dropout either
        return self

    def forward(self, image, text):
        t = self.lm(text)
        v = self.vision(image)
        return self.head(v * (1 + self.film(t))).view(-1, HORIZON, ACT)


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.shadow.parameters(), model.parameters()):
            e.lerp_(p.detach(), 1 - self.decay)
        for e, b in zip(self.shadow.buffers(), model.buffers()):
            e.copy_(b)


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    sums = torch.zeros(3)
    for image, text, act in loader:
        pred = net(image, text)
        sums[0] += F.mse_loss(pred, act, reduction="none").mean((1, 2)).sum()  #! mean_of_means: sums[0] += F.mse_loss(pred, act)
        sums[1] += ((pred[:, -1] - act[:, -1]).norm(dim=-1) < 0.25).sum()
        sums[2] += len(act)
    dist.all_reduce(sums)
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    train_set, test_set = ReachDemos(1024, 10), ReachDemos(256, 11)
    sampler = DistributedSampler(train_set, world, rank, shuffle=True, seed=3)
    loader = DataLoader(train_set, 48, sampler=sampler, drop_last=True)
    test_loader = DataLoader(test_set, 64, sampler=DistributedSampler(test_set, world, rank, shuffle=False))

    model = DDP(Policy())
    ema = EMA(model.module, decay=0.9)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3, weight_decay=1e-4)

    for epoch in range(8):
        sampler.set_epoch(epoch)
        model.train()
        for image, text, act in loader:
            loss = F.smooth_l1_loss(model(image, text), act, beta=0.1)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            ema.update(model.module)  #! ema_rank0_only: if rank == 0: ema.update(model.module)
        if epoch % 2 == 1:
            mse, success = evaluate(ema.shadow, test_loader)
            if rank == 0:
                print(f"epoch {epoch} ema mse {mse:.4f} success {success:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
