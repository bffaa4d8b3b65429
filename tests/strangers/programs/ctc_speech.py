"""A speech recogniser with CTC, time first, lengths of inputs and targets, BatchNorm over channels.

fault logits_to_ctc: DK316 at "ctc("
"""
import torch
from torch import nn

torch.manual_seed(34)
class ASR(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(10, 24, 3, padding=1), nn.BatchNorm1d(24), nn.ReLU())
        self.rnn = nn.LSTM(24, 24, bidirectional=True)
        self.out = nn.Linear(48, 9)
    def forward(self, mel):
        h = self.conv(mel).permute(2, 0, 1)
        h, _ = self.rnn(h)
        return self.out(h).log_softmax(-1)  #! logits_to_ctc: return self.out(h)
model = ASR(); ctc = nn.CTCLoss(blank=0, zero_infinity=True)
opt = torch.optim.Adam(model.parameters(), 2e-3)
def batch(n=6):
    y = torch.randint(1, 9, (n, 5)); ylen = torch.randint(3, 6, (n,))
    mel = torch.randn(n, 10, 30) * 0.3
    for i in range(n):
        for j in range(int(ylen[i])): mel[i, int(y[i, j]), 5 * j + 1:5 * j + 4] += 2
    return {"mel": mel, "y": y, "xlen": torch.full((n,), 30), "ylen": ylen}
def loss_fn(m, b): return ctc(m(b["mel"]), b["y"], b["xlen"], b["ylen"])
def train():
    for _ in range(30):
        opt.zero_grad(); loss_fn(model, batch()).backward(); nn.utils.clip_grad_norm_(model.parameters(), 5.0); opt.step()
CHECK = lambda: dict(model=model, batch=batch(), loss_fn=loss_fn, optimizer=opt)
WATCH = (model, opt)
