"""A recurrent policy trained on whole episodes; at inference it carries its state, which reset clears.

fault state_not_cleared: DK406 at "self.h"|module:
fault eval_state_kept: none
"""
import torch
from torch import nn
torch.manual_seed(43)
class RecurrentPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 24, batch_first=True); self.out = nn.Linear(24, 2); self.h = None
    def forward(self, obs):
        y, _ = self.gru(obs)
        return self.out(y)
    def reset(self): self.h = None  #! state_not_cleared: def reset(self): return None
    @torch.no_grad()
    def predict(self, batch):
        y, self.h = self.gru(batch["obs"][:, :1], self.h)
        return self.out(y[:, -1])
policy = RecurrentPolicy(); opt = torch.optim.Adam(policy.parameters(), 2e-3)
def batch(n=8):
    o = torch.randn(n, 12, 4).cumsum(1) * 0.3; return {"obs": o, "action": o[..., :2] - o[..., :2].roll(1, 1) * 0.5}
loss_fn = lambda m, b: (m(b["obs"]) - b["action"]).pow(2).mean()
def rollout():
    policy.eval()
    policy.reset()  #! eval_state_kept: pass
    o = torch.randn(4, 1, 4)
    for _ in range(5):
        a = policy.predict({"obs": o}); o = o + 0.1 * torch.cat([a, a], 1)[:, None]
    policy.train()
def train():
    for i in range(30):
        loss = loss_fn(policy, batch()); opt.zero_grad(); loss.backward(); opt.step()
        if i % 5 == 4: rollout()
CHECK = lambda: dict(model=policy, batch=batch(), loss_fn=loss_fn, optimizer=opt)
WATCH = (policy, opt)
