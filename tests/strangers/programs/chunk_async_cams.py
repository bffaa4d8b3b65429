"""Robot policy: proprio at 50 Hz, two cameras at different rates (stale frames allowed), tactile; chunk of 8 actions, bf16 autocast, two-stage training
(stage 1: frozen image trunk pre-trained by reconstruction; stage 2: everything at a smaller rate). Normaliser from the training set only."""
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader
torch.manual_seed(0)
CHUNK, IMG = 8, 16

def episode(rng, T=60):
    goal = rng.uniform(-1, 1, 2); pos = rng.uniform(-1, 1, 2); out = []
    for t in range(T):
        act = np.clip(0.2 * (goal - pos), -0.08, 0.08) + rng.normal(0, 0.004, 2)
        out.append((pos.copy(), goal.copy(), act, float(np.linalg.norm(goal - pos) < 0.1)))
        pos = pos + act
    return out

def render(goal, pos, rng, both):
    im = rng.normal(0, 0.05, (3, IMG, IMG)).astype("float32")
    gx, gy = ((goal + 1.1) / 2.2 * (IMG - 1)).astype(int).clip(0, IMG - 1)
    im[0, max(0, gy - 1):gy + 2, max(0, gx - 1):gx + 2] += 1
    if both:
        px, py = ((pos + 1.1) / 2.2 * (IMG - 1)).astype(int).clip(0, IMG - 1)
        im[1, max(0, py - 1):py + 2, max(0, px - 1):px + 2] += 1
    return im

class Demos(Dataset):
    def __init__(self, n, seed, stats=None):
        rng = np.random.default_rng(seed); self.rows = []
        for _ in range(n):
            ep = episode(rng); top = wrist = None
            for t, (p, g, a, touch) in enumerate(ep):
                if t % 3 == 0: top = render(g, p, rng, True)
                if t % 2 == 0: wrist = render(g - p, p, rng, False)
                acts = [ep[min(t + k, len(ep) - 1)][2] for k in range(CHUNK)]
                pad = [t + k >= len(ep) for k in range(CHUNK)]
                self.rows.append((top, wrist, np.concatenate([p, [touch]]).astype("float32"), np.float32(acts), np.array(pad)))
        if stats is None:
            a = np.stack([r[3][0] for r in self.rows]); p = np.stack([r[2] for r in self.rows])
            stats = dict(am=a.mean(0), asd=a.std(0) + 1e-6, pm=p.mean(0), psd=p.std(0) + 1e-6)
        self.stats = stats
    def __len__(self): return len(self.rows)
    def __getitem__(self, i):
        top, wrist, p, a, pad = self.rows[i]; s = self.stats
        return {"top": torch.from_numpy(top), "wrist": torch.from_numpy(wrist), "proprio": torch.from_numpy((p - s["pm"]) / s["psd"]),
                "actions": torch.from_numpy((a - s["am"]) / s["asd"]), "is_pad": torch.from_numpy(pad)}

class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.GELU(), nn.Conv2d(16, 32, 3, 2, 1), nn.GELU())
        self.decoder = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(16, 3, 4, 2, 1))
    def forward(self, x): return self.net(x)

class Policy(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.trunk = Trunk(); self.proj = nn.Linear(32, d); self.state = nn.Linear(3, d)
        self.cam = nn.Parameter(torch.randn(2, 1, d) * 0.02); self.pos = nn.Parameter(torch.randn(16, d) * 0.02)
        self.queries = nn.Parameter(torch.randn(CHUNK, d) * 0.02)
        self.dec = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, 4, 96, dropout=0.0, batch_first=True, norm_first=True), 2)
        self.out = nn.Linear(d, 2)
    def forward(self, top, wrist, proprio):
        toks = [self.proj(self.trunk(x).flatten(2).mT) + self.pos + c for x, c in zip((top, wrist), self.cam)]
        mem = torch.cat(toks + [self.state(proprio)[:, None]], 1)
        return self.out(self.dec(self.queries.expand(len(top), -1, -1), mem))

train = Demos(10, 0); val = Demos(3, 1, train.stats)
loader = DataLoader(train, 32, shuffle=True, drop_last=True)
policy = Policy()
opt = torch.optim.Adam(policy.trunk.parameters(), 2e-3)                    # stage 0: reconstruction
for ep in range(2):
    for b in loader:
        x = torch.cat([b["top"], b["wrist"]])
        loss = F.mse_loss(policy.trunk.decoder(policy.trunk(x)), x)
        opt.zero_grad(); loss.backward(); opt.step()
    print("recon", round(loss.item(), 4))

def run(params, lr, epochs, name):
    opt = torch.optim.AdamW(params, lr, weight_decay=1e-4)
    for ep in range(epochs):
        policy.train()
        for b in loader:
            with torch.autocast("cpu", torch.bfloat16):
                pred = policy(b["top"], b["wrist"], b["proprio"])
            l = F.smooth_l1_loss(pred.float(), b["actions"], reduction="none").mean(-1)
            keep = (~b["is_pad"]).float()
            loss = (l * keep).sum() / keep.sum()
            opt.zero_grad(set_to_none=True); loss.backward()
            nn.utils.clip_grad_norm_(params, 5.0); opt.step()
        policy.eval()
        with torch.no_grad():
            err = [F.l1_loss(policy(b["top"], b["wrist"], b["proprio"])[:, 0], b["actions"][:, 0]).item() for b in DataLoader(val, 90)]
        print(name, ep, f"{loss.item():.4f} val l1 first action {np.mean(err):.4f}")

policy.trunk.requires_grad_(False)
run([p for p in policy.parameters() if p.requires_grad], 1e-3, 4, "frozen")
policy.trunk.net.requires_grad_(True)
run([p for p in policy.parameters() if p.requires_grad], 3e-4, 3, "all")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
