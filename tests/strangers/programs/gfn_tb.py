"""GFlowNet, trajectory balance, on an 8x8 hyper-grid; forward and backward policy in one trunk, learned logZ with its own step size."""
import math, torch, torch.nn as nn
torch.manual_seed(0)
H, D = 6, 2

def reward(s):                       # s [N,2]
    x = (s.float() / (H - 1) - 0.5).abs()
    return 0.05 + 0.5 * (x > 0.25).all(-1).float() + 2.0 * ((x > 0.3) & (x < 0.45)).all(-1).float()

class Agent(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(H * D, width), nn.LeakyReLU(), nn.Linear(width, width), nn.LeakyReLU())
        self.pf, self.pb = nn.Linear(width, D + 1), nn.Linear(width, D)
        self.log_z = nn.Parameter(torch.zeros(()))
    def forward(self, s):
        h = self.trunk(nn.functional.one_hot(s, H).flatten(1).float())
        lf = self.pf(h).masked_fill(torch.cat([s == H - 1, torch.zeros_like(s[:, :1]).bool()], 1), -1e9)
        lb = self.pb(h).masked_fill(s == 0, -1e9)
        return lf.log_softmax(-1), lb.log_softmax(-1)

agent = Agent()
opt = torch.optim.Adam([{"params": [p for n, p in agent.named_parameters() if n != "log_z"], "lr": 2e-3}, {"params": [agent.log_z], "lr": 5e-2}])

def rollout(n, eps):
    s = torch.zeros(n, D, dtype=torch.long)
    alive = torch.ones(n, dtype=torch.bool)
    total = torch.zeros(n)
    for _ in range(D * (H - 1) + 1):
        lf, _ = agent(s)
        with torch.no_grad():
            allowed = (lf > -1e8).float()
            p = (1 - eps) * lf.exp() + eps * allowed / allowed.sum(-1, keepdim=True)
            a = torch.multinomial(p, 1).squeeze(1)
        step_lf = lf.gather(1, a[:, None]).squeeze(1)
        total = total + torch.where(alive, step_lf, torch.zeros_like(step_lf))
        moving = alive & (a < D)
        nxt = s.clone()
        nxt[moving, a[moving]] += 1
        _, lb = agent(nxt)
        back = lb.gather(1, a.clamp(max=D - 1)[:, None]).squeeze(1)
        total = total - torch.where(moving, back, torch.zeros_like(back))
        s, alive = nxt, moving
        if not alive.any():
            break
    return s, total

for it in range(250):
    s, logratio = rollout(64, 0.1 * (1 - it / 250))
    loss = (agent.log_z + logratio - reward(s).log()).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    if it % 50 == 0:
        print(it, round(loss.item(), 4), "logZ", round(agent.log_z.item(), 3))
grid = torch.cartesian_prod(torch.arange(H), torch.arange(H))
print("true logZ", round(reward(grid).sum().log().item(), 3))


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
