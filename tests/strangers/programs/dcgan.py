"""A small GAN on 2-d points: two optimizers, two critic steps for one generator step, losses by BCE with logits.

fault critic_never_steps: DK502 at "opt_d = "
fault generator_detached: DK105|DK502|DK119 at here
fault sigmoid_twice: DK308 at here
"""
import torch
from torch import nn

torch.manual_seed(3)
netG = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
netD = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()

def real(n):
    a = torch.rand(n) * 6.283
    return torch.stack([a.cos(), a.sin()], 1) + 0.05 * torch.randn(n, 2)

def train():
    for it in range(40):
        for _ in range(2):
            x = real(32)
            with torch.no_grad():
                fake = netG(torch.randn(32, 8))
            d_real, d_fake = netD(x), netD(fake)
            loss_d = bce(d_real, torch.ones_like(d_real)) + bce(d_fake, torch.zeros_like(d_fake))
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()  #! critic_never_steps: pass
        fake = netG(torch.randn(32, 8))
        score = netD(fake)  #! sigmoid_twice: score = netD(fake).sigmoid()
        loss_g = bce(score, torch.ones_like(score))
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()

class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.g, self.d = netG, netD
    def forward(self, z):
        x = self.g(z)
        return self.d(x)  #! generator_detached: return self.d(x.detach())

def generator_loss(m, z):
    s = m(z)
    return bce(s, torch.ones_like(s))

CHECK = lambda: dict(model=Both(), batch=torch.randn(32, 8), loss_fn=generator_loss, optimizer=[opt_g, opt_d])
WATCH = (nn.ModuleList([netG, netD]), [opt_g, opt_d])
