"""Implicit behaviour cloning (InfoNCE energy, derivative-free inference); encoder trained first for all, then frozen with its batch-norm statistics in the last third."""
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(144, 32))
    def forward(self, x): return self.net(x)
class EBM(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder(); self.head = nn.Sequential(nn.Linear(34, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)); self.frozen = False
    def train(self, mode=True):
        super().train(mode)
        if self.frozen: self.encoder.eval()
        return self
    def forward(self, im, acts):                          # acts [B,N,2]
        z = self.encoder(im)[:, None].expand(-1, acts.size(1), -1)
        return self.head(torch.cat([z, acts], -1)).squeeze(-1)
def data(n):
    pos = torch.randint(1, 11, (n, 2)); im = 0.1 * torch.randn(n, 1, 12, 12)
    for i in range(n): im[i, 0, pos[i, 0] - 1:pos[i, 0] + 2, pos[i, 1] - 1:pos[i, 1] + 2] += 1
    target = (pos.float() - 5.5) / 5.5
    side = torch.where(torch.rand(n, 1) < 0.5, 1.0, -1.0)   # two modes
    return im, torch.cat([target[:, :1], target[:, 1:] * side], 1) + 0.01 * torch.randn(n, 2)
net = EBM(); opt = torch.optim.Adam(net.parameters(), 2e-3)
sched = torch.optim.lr_scheduler.MultiStepLR(opt, [140], 0.3)
IM, AC = data(1500); IV, AV = data(200)
step = 0
while step < 210:
    for idx in torch.randperm(1500).split(50):
        if step == 140:
            net.frozen = True; net.encoder.requires_grad_(False)
        net.train()
        neg = torch.rand(len(idx), 63, 2) * 2.4 - 1.2
        e = net(IM[idx], torch.cat([AC[idx][:, None], neg], 1))
        loss = F.cross_entropy(-e, torch.zeros(len(idx), dtype=torch.long))
        opt.zero_grad(set_to_none=True); loss.backward(); opt.step(); sched.step(); step += 1
    net.eval()
    with torch.no_grad():
        c = torch.rand(200, 256, 2) * 2.4 - 1.2; sd = 0.33
        for _ in range(3):
            p = (-net(IV, c)).softmax(-1); i = torch.multinomial(p, 256, replacement=True)
            c = torch.gather(c, 1, i[..., None].expand(-1, -1, 2)) + sd * torch.randn(200, 256, 2); sd *= 0.5
        a = c[torch.arange(200), (-net(IV, c)).argmax(1)]
        err = torch.minimum((a - AV).norm(dim=1), (a - AV * torch.tensor([1., -1.])).norm(dim=1)).mean()
    print(step, round(loss.item(), 4), "error", round(err.item(), 3))


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
