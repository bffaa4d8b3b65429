"""Flow matching for action chunks with padding at the end of an episode; lr warm-up, EMA by torch.optim.swa_utils, grad clip.

fault pad_mask_unused: DK309 at here|input:action_is_pad
fault memory_of_last_chunk: DK406 at "self.last"|module:
"""
import torch
from torch import nn
torch.manual_seed(42)
class Flow(nn.Module):
    def __init__(self, H=6, A=3):
        super().__init__()
        self.H, self.A = H, A
        self.net = nn.Sequential(nn.Linear(5 + H * A + 1, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, H * A))
        self.last = None
    def velocity(self, s, x, t): return self.net(torch.cat([s, x.flatten(1), t[:, None]], 1)).view(-1, self.H, self.A)
    def forward(self, batch):
        a, s, pad = batch["action"], batch["state"], batch["action_is_pad"]
        noise = torch.randn_like(a); t = torch.rand(len(a), device=a.device)
        x = t.view(-1, 1, 1) * a + (1 - t.view(-1, 1, 1)) * noise
        err = (self.velocity(s, x, t) - (a - noise)).pow(2).mean(-1)
        return (err * ~pad).sum() / (~pad).sum()  #! pad_mask_unused: return err.mean()
    def reset(self): self.last = None  #! memory_of_last_chunk: def reset(self): pass
    @torch.no_grad()
    def predict(self, batch):
        s = batch["state"]; g = torch.Generator().manual_seed(0)
        x = torch.randn(len(s), self.H, self.A, generator=g)
        for i in range(5): x = x + 0.2 * self.velocity(s, x, torch.full((len(s),), i / 5))
        pass  #! memory_of_last_chunk: x = x if self.last is None else 0.5 * x + 0.5 * self.last
        pass  #! memory_of_last_chunk: self.last = x
        return x
policy = Flow(); opt = torch.optim.AdamW(policy.parameters(), 1e-3)
avg = torch.optim.swa_utils.AveragedModel(policy, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
warm = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 10)
def batch(n=16):
    s = torch.randn(n, 5); a = torch.tanh(s[:, None, :3] * torch.linspace(0.2, 1, 6).view(1, 6, 1))
    pad = torch.arange(6)[None] >= torch.randint(3, 8, (n, 1)); pad[0] = False; pad[1, 3:] = True
    return {"state": s, "action": a * (~pad)[..., None], "action_is_pad": pad}
def train():
    for _ in range(30):
        loss = policy(batch()); opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(policy.parameters(), 1.0); opt.step(); warm.step(); avg.update_parameters(policy)
CHECK = lambda: dict(model=policy, batch=batch(), loss_fn=lambda m, b: m(b), optimizer=opt)
WATCH = (policy, opt)
