"""Deep Q-learning: replay buffer of tuples, a target network outside of the model that is copied now and then, Huber loss.

"""
import collections, copy, random
import torch
from torch import nn
import torch.nn.functional as F

random.seed(0); torch.manual_seed(17)
q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
target = copy.deepcopy(q)
opt = torch.optim.Adam(q.parameters(), 1e-3)
buffer = collections.deque(maxlen=2000)
A = torch.tensor([[0.9, 0.1, 0, 0], [0, 0.9, 0.1, 0], [0, 0, 0.9, 0.1], [0.1, 0, 0, 0.9]])

def env_step(s, a):
    n = A @ s + 0.1 * (a - 0.5) + 0.02 * torch.randn(4)
    return n, float(-n.pow(2).sum()), random.random() < 0.05

def sample(n=32):
    s, a, r, s2, d = zip(*random.sample(list(buffer), n))
    return torch.stack(s), torch.tensor(a), torch.tensor(r), torch.stack(s2), torch.tensor(d, dtype=torch.float32)

def loss_fn(net, batch):
    s, a, r, s2, d = batch
    chosen = net(s).gather(1, a[:, None]).squeeze(1)
    with torch.no_grad():
        q_next = target(s2).max(1).values
        y = r + 0.97 * (1 - d) * q_next
    return F.smooth_l1_loss(chosen, y)

def collect(k, s=None):
    s = torch.randn(4) if s is None else s
    for _ in range(k):
        with torch.no_grad():
            a = random.randrange(2) if random.random() < 0.2 else int(q(s[None]).argmax())
        n, r, done = env_step(s, a)
        buffer.append((s, a, r, n, done))
        s = torch.randn(4) if done else n
    return s

def train():
    s = collect(64)
    for step in range(60):
        s = collect(4, s)
        loss = loss_fn(q, sample())
        opt.zero_grad(); loss.backward(); opt.step()
        if step % 10 == 0:
            target.load_state_dict(q.state_dict())

def CHECK():
    collect(64)
    return dict(model=q, batch=sample(), loss_fn=loss_fn, optimizer=opt)
WATCH = (q, opt)
