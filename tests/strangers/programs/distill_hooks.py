"""Feature distillation from a frozen teacher by forward hooks in a loss module that owns a projector; the loss module is trained too."""
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(47)
teacher = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4)).eval().requires_grad_(False)
student = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
class Distil(nn.Module):
    def __init__(self, s, t):
        super().__init__()
        self.proj = nn.Linear(16, 64); self.seen = {}
        s[1].register_forward_hook(lambda m, i, o: self.seen.__setitem__("s", o))
        t[1].register_forward_hook(lambda m, i, o: self.seen.__setitem__("t", o))
    def forward(self, logits, x, y, T=2.0):
        with torch.no_grad(): t = teacher(x)
        kd = F.kl_div(F.log_softmax(logits / T, -1), F.log_softmax(t / T, -1), log_target=True, reduction="batchmean") * T * T
        feat = F.mse_loss(self.proj(self.seen["s"]), self.seen["t"])
        return F.cross_entropy(logits, y) + 0.5 * kd + 0.1 * feat
criterion = Distil(student, teacher)
opt = torch.optim.Adam([*student.parameters(), *criterion.parameters()], 2e-3)
X = torch.randn(128, 8); Y = X[:, :4].argmax(1)
loss_fn = lambda m, b: criterion(m(b[0]), b[0], b[1])
def train():
    for _ in range(30):
        i = torch.randint(0, 128, (16,)); opt.zero_grad(); loss_fn(student, (X[i], Y[i])).backward(); opt.step()
CHECK = lambda: dict(model=student, batch=(X[:16], Y[:16]), loss_fn=loss_fn, optimizer=opt)
WATCH = (student, opt)
