"""A VQ autoencoder: codebook in the module, straight-through estimate, commitment term, loss inside of the module.

fault no_straight_through: none
fault commitment_detached: DK121 at here
fault codebook_never_learns: DK105|DK101|DK107 at module:codes
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(18)

class VQ(nn.Module):
    def __init__(self, n=16, d=8):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, d))
        self.codes = nn.Embedding(n, d)
        nn.init.uniform_(self.codes.weight, -1 / n, 1 / n)
        self.dec = nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 20))
    def forward(self, x):
        z = self.enc(x)
        idx = torch.cdist(z, self.codes.weight).argmin(1)
        e = self.codes(idx)
        st = z + (e - z).detach()  #! no_straight_through: st = self.codes(idx)
        recon = self.dec(st)
        return F.mse_loss(recon, x) + F.mse_loss(e, z.detach()) + 0.25 * F.mse_loss(z, e.detach())  #! commitment_detached: return F.mse_loss(recon, x) + F.mse_loss(e, z.detach()) + 0.25 * F.mse_loss(z.detach(), e.detach())  #! codebook_never_learns: return F.mse_loss(recon, x) + 0.25 * F.mse_loss(z, e.detach())

model = VQ()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
basis = torch.randn(4, 20)

def batch(): return torch.randn(32, 4) @ basis / 2

def train():
    for _ in range(40):
        loss = model(batch())
        opt.zero_grad(); loss.backward(); opt.step()

CHECK = lambda: dict(model=model, batch=batch(), loss_fn=lambda m, x: m(x), optimizer=opt)
WATCH = (model, opt)
