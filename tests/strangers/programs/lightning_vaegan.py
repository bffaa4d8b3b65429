"""Lightning with manual optimisation: VAE-GAN style two optimizers, toggle_optimizer, validation hook, BYOL-like target by callback."""
import warnings, logging, torch, copy
import lightning as L
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import torch.nn.functional as F

warnings.filterwarnings("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
L.seed_everything(3, verbose=False)


def mlp(*d):
    out = []
    for a, b in zip(d, d[1:]):
        out += [nn.Linear(a, b), nn.LeakyReLU(.2)]
    return nn.Sequential(*out[:-1])


class VAEGAN(L.LightningModule):
    def __init__(self, d=12, z=4):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.enc, self.dec, self.disc = mlp(d, 48, 2 * z), mlp(z, 48, d), mlp(d, 48, 1)
        self.log_ = []

    def forward(self, x):
        mu, lv = self.enc(x).chunk(2, 1)
        z = mu + (.5 * lv).exp() * torch.randn_like(mu) if self.training else mu
        return self.dec(z), mu, lv

    def training_step(self, batch, i):
        x, = batch
        og, od = self.optimizers()
        self.toggle_optimizer(og)
        r, mu, lv = self(x)
        rec = F.mse_loss(r, x, reduction="none").sum(1).mean()
        kl = -.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean()
        adv = F.softplus(-self.disc(r)).mean()
        og.zero_grad()
        self.manual_backward(rec + .1 * kl + .05 * adv)
        self.clip_gradients(og, gradient_clip_val=5., gradient_clip_algorithm="norm")
        og.step()
        self.untoggle_optimizer(og)
        self.toggle_optimizer(od)
        d = F.softplus(-self.disc(x)).mean() + F.softplus(self.disc(r.detach())).mean()
        od.zero_grad()
        self.manual_backward(d)
        od.step()
        self.untoggle_optimizer(od)
        self.log_.append((rec.item(), kl.item(), d.item()))

    def on_train_epoch_end(self):
        print(self.current_epoch, "rec kl disc", torch.tensor(self.log_).mean(0).tolist()); self.log_.clear()
        for s in self.lr_schedulers():
            s.step()

    def validation_step(self, batch, i):
        r, *_ = self(batch[0])
        self.log("val_rec", F.mse_loss(r, batch[0]))

    def configure_optimizers(self):
        g = torch.optim.Adam([*self.enc.parameters(), *self.dec.parameters()], 2e-3)
        d = torch.optim.Adam(self.disc.parameters(), 5e-4, betas=(.5, .999))
        return [g, d], [torch.optim.lr_scheduler.ExponentialLR(o, .9) for o in (g, d)]


def train():
    W = torch.randn(4, 12)
    x = torch.tanh(torch.randn(1200, 4) @ W) + .05 * torch.randn(1200, 12)
    net = VAEGAN()
    tr = L.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    tr.fit(net, DataLoader(TensorDataset(x[:1000]), 50, shuffle=True), DataLoader(TensorDataset(x[1000:]), 100))
    print(tr.callback_metrics)


WATCH = ()
