"""Lightning, manual optimisation: adversarial auto-encoder (two optimizers, toggles, accumulation for the critic), bf16-mixed."""
import logging, warnings; warnings.filterwarnings("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning as L, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

class AAE(L.LightningModule):
    def __init__(self, d=12, z=2):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.enc = nn.Sequential(nn.Linear(d, 64), nn.GELU(), nn.Linear(64, z))
        self.dec = nn.Sequential(nn.Linear(z, 64), nn.GELU(), nn.Linear(64, d))
        self.critic = nn.Sequential(nn.Linear(z, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    def configure_optimizers(self):
        a = torch.optim.Adam([*self.enc.parameters(), *self.dec.parameters()], 2e-3)
        c = torch.optim.Adam(self.critic.parameters(), 1e-3, betas=(0.5, 0.9))
        return [a, c], [torch.optim.lr_scheduler.ExponentialLR(a, 0.9)]
    def training_step(self, batch, i):
        x, = batch
        oa, oc = self.optimizers()
        self.toggle_optimizer(oa)
        z = self.enc(x)
        rec = F.mse_loss(self.dec(z), x)
        fool = F.softplus(-self.critic(z)).mean()
        oa.zero_grad(); self.manual_backward(rec + 0.05 * fool); self.clip_gradients(oa, 1.0, "norm"); oa.step()
        self.untoggle_optimizer(oa)
        self.toggle_optimizer(oc)
        with torch.no_grad(): zf = self.enc(x)
        zr = torch.randn_like(zf)
        lc = (F.softplus(self.critic(zf)) + F.softplus(-self.critic(zr))).mean() / 2
        self.manual_backward(lc)
        if (i + 1) % 2 == 0:
            oc.step(); oc.zero_grad()
        self.untoggle_optimizer(oc)
        self.log_dict({"rec": rec, "critic": lc}, on_epoch=True, on_step=False)
    def on_train_epoch_end(self):
        self.lr_schedulers().step()
        print(self.current_epoch, {k: round(v.item(), 3) for k, v in self.trainer.callback_metrics.items()})
    def validation_step(self, batch, i):
        x, = batch
        self.log("val_rec", F.mse_loss(self.dec(self.enc(x)), x))

if __name__ == "__main__":
    L.seed_everything(0, verbose=False)
    t = torch.rand(1200, 2) * 2 - 1
    W = torch.randn(2, 12)
    X = torch.tanh(t @ W) + 0.02 * torch.randn(1200, 12)
    tr = L.Trainer(max_epochs=6, accelerator="cpu", precision="bf16-mixed", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    tr.fit(AAE(), DataLoader(TensorDataset(X[:1000]), 25, shuffle=True), DataLoader(TensorDataset(X[1000:]), 100))


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
