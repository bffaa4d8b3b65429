"""A character LSTM that reads one long text in contiguous pieces; the state is carried over the pieces of an epoch and detached.

fault state_never_reset: none
fault lr_decays_per_batch: DK503|DK509|DK206 at "ExponentialLR"
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(1)
TEXT = ("the quick brown fox jumps over the lazy dog and runs away . " * 40)
CHARS = sorted(set(TEXT))
data = torch.tensor([CHARS.index(c) for c in TEXT])
B, T = 8, 16
stream = data[: len(data) // B * B].view(B, -1)

class CharLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), 16)
        self.lstm = nn.LSTM(16, 32, batch_first=True)
        self.head = nn.Linear(32, len(CHARS))
        self.state = None
    def reset(self):
        self.state = None
    def forward(self, x):
        out, state = self.lstm(self.embed(x), self.state)
        self.state = tuple(s.detach() for s in state)
        return self.head(out)

model = CharLSTM()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)

def loss_fn(m, batch):
    x, y = batch
    return F.cross_entropy(m(x).flatten(0, 1), y.flatten())

def train():
    for epoch in range(4):
        model.reset()  #! state_never_reset: pass
        for i in range(0, stream.shape[1] - T - 1, T):
            batch = (stream[:, i:i + T], stream[:, i + 1:i + T + 1])
            loss = loss_fn(model, batch)
            opt.zero_grad()
            loss.backward(retain_graph=False)
            opt.step()
            pass  #! lr_decays_per_batch: sched.step(); sched.step()
        sched.step()

def CHECK():
    model.reset()
    return dict(model=model, batch=(stream[:, :T], stream[:, 1:T + 1]), loss_fn=loss_fn, optimizer=opt)
WATCH = (model, opt)
