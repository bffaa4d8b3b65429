"""QMIX with two agents in a coordination game; recurrent agents (GRUCell), hypernetwork mixer with absolute weights, hard target updates."""
import copy, random, numpy as np, torch, torch.nn as nn, torch.nn.functional as F
random.seed(0); np.random.seed(0); torch.manual_seed(0)
N, OBS, ACT, STATE, T = 2, 4, 3, 4, 4

class Env:
    """Both agents see half of a hint; reward if joint action matches hint sum at the step."""
    def reset(self):
        self.t = 0; self.hint = np.random.randint(0, 3, 2)
        return self.obs()
    def obs(self):
        o = np.zeros((N, OBS), np.float32)
        for i in range(N):
            o[i, self.hint[i]] = 1; o[i, 3] = self.t / T
        return o
    def state(self):
        s = np.zeros(STATE, np.float32); s[0:2] = self.hint - 1; s[2] = self.t / T; s[3] = 1.0
        return s
    def step(self, acts):
        r = 1.0 if (acts[0] == self.hint[0] and acts[1] == self.hint[1]) else (0.2 if acts[0] == self.hint[0] else 0.0)
        self.t += 1; self.hint = np.random.randint(0, 3, 2)
        return self.obs(), r, self.t == T

class Agent(nn.Module):
    def __init__(self, h=32):
        super().__init__()
        self.fc1, self.rnn, self.out, self.h = nn.Linear(OBS + N, h), nn.GRUCell(h, h), nn.Linear(h, ACT), h
    def init_hidden(self, n): return torch.zeros(n, self.h)
    def forward(self, x, h):
        h = self.rnn(F.relu(self.fc1(x)), h)
        return self.out(h), h

class Mixer(nn.Module):
    def __init__(self, e=16):
        super().__init__()
        self.e = e
        self.w1, self.w2 = nn.Linear(STATE, N * e), nn.Linear(STATE, e)
        self.b1, self.b2 = nn.Linear(STATE, e), nn.Sequential(nn.Linear(STATE, e), nn.ReLU(), nn.Linear(e, 1))
    def forward(self, q, s):                       # q [B,N], s [B,S]
        w1 = self.w1(s).abs().view(-1, N, self.e)
        hidden = F.elu(torch.bmm(q.unsqueeze(1), w1).squeeze(1) + self.b1(s))
        return (hidden * self.w2(s).abs()).sum(-1, keepdim=True) + self.b2(s)

agent, mixer = Agent(), Mixer()
t_agent, t_mixer = copy.deepcopy(agent), copy.deepcopy(mixer)
params = list(agent.parameters()) + list(mixer.parameters())
opt = torch.optim.RMSprop(params, lr=2e-3, alpha=0.99, eps=1e-5)
env, memory = Env(), []
ids = torch.eye(N)

def unroll(a, obs):                               # obs [B,T,N,OBS] -> [B,T,N,ACT]
    B, L = obs.shape[:2]
    h, outs = a.init_hidden(B * N), []
    for t in range(L):
        q, h = a(torch.cat([obs[:, t], ids.expand(B, N, N)], -1).reshape(B * N, -1), h)
        outs.append(q.view(B, N, ACT))
    return torch.stack(outs, 1)

for ep in range(250):
    eps = max(0.05, 1 - ep / 120)
    o = env.reset(); h = agent.init_hidden(N)
    O, S, A, R = [o], [env.state()], [], []
    done = False
    while not done:
        with torch.no_grad():
            q, h = agent(torch.cat([torch.from_numpy(o), ids], -1), h)
        acts = [random.randrange(ACT) if random.random() < eps else int(q[i].argmax()) for i in range(N)]
        o, r, done = env.step(acts)
        O.append(o); S.append(env.state()); A.append(acts); R.append(r)
    memory.append((np.stack(O), np.stack(S), np.array(A), np.array(R, np.float32)))
    memory = memory[-200:]
    if len(memory) < 32: continue
    b = random.sample(memory, 32)
    O_, S_, A_, R_ = (torch.from_numpy(np.stack([x[i] for x in b])) for i in range(4))
    q = unroll(agent, O_)
    chosen = q[:, :-1].gather(-1, A_.unsqueeze(-1)).squeeze(-1)
    with torch.no_grad():
        best = q[:, 1:].argmax(-1, keepdim=True)
        nxt = unroll(t_agent, O_)[:, 1:].gather(-1, best).squeeze(-1)
        alive = torch.ones(32, T); alive[:, -1] = 0
        y = R_ + 0.9 * alive * t_mixer(nxt.reshape(-1, N), S_[:, 1:].reshape(-1, STATE)).view(32, T)
    total = mixer(chosen.reshape(-1, N), S_[:, :-1].reshape(-1, STATE)).view(32, T)
    loss = F.mse_loss(total, y)
    opt.zero_grad(); loss.backward()
    nn.utils.clip_grad_norm_(params, 10.0)
    opt.step()
    if ep % 25 == 0:
        t_agent.load_state_dict(agent.state_dict()); t_mixer.load_state_dict(mixer.state_dict())
        print(ep, f"loss {loss.item():.4f} return {np.mean([m[3].sum() for m in memory[-25:]]):.2f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
