"""Denoising autoencoder with a linear probe as a LightningModule, trained with strategy="ddp" on two CPU processes.

fault noisy_target: none
    The reconstruction is compared to the corrupted input instead of the clean one.
fault encoder_detached: DK105|DK107|DK115
    The code is detached for the decoder also, so the encoder gets only zero gradients.
fault unsynced_metric: none
    The validation metrics are logged without sync_dist, so rank 0's shard stands for all.
"""
import logging
import warnings

import lightning as L
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

DIM, CODE, CLASSES = 40, 6, 5


class Blobs(L.LightningDataModule):
    def __init__(self, n_train=1024, n_val=256, batch_size=32):
        super().__init__()
        self.n_train, self.n_val, self.batch_size = n_train, n_val, batch_size

    def setup(self, stage=None):
        g = torch.Generator().manual_seed(31)
        centers = torch.randn(CLASSES, CODE, generator=g)
        lift = torch.randn(CODE, DIM, generator=g) / CODE ** 0.5
        def draw(n):
            y = torch.randint(0, CLASSES, (n,), generator=g)
            z = centers[y] + 0.35 * torch.randn(n, CODE, generator=g)
            return TensorDataset(torch.tanh(z @ lift), y)
        self.train_ds, self.val_ds = draw(self.n_train), draw(self.n_val)

    # Lightning puts a DistributedSampler into each of these and calls set_epoch
    def train_dataloader(self):
        return DataLoader(self.train_ds, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_ds, batch_size=64)


class DenoisingAE(L.LightningModule):
    def __init__(self, lr=1e-2, noise=0.3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(DIM, 48), nn.ReLU(), nn.Linear(48, CODE))
        self.decoder = nn.Sequential(nn.Linear(CODE, 48), nn.ReLU(), nn.Linear(48, DIM))
        self.probe = nn.Linear(CODE, CLASSES)

    def losses(self, x, y, corrupt):
        noisy = x + self.hparams.noise * torch.randn_like(x) if corrupt else x
        code = self.encoder(noisy)
        recon = self.decoder(code)  #! encoder_detached: recon = self.decoder(code.detach()) + 0.0 * code.sum()
        recon_loss = F.mse_loss(recon, x)  #! noisy_target: recon_loss = F.mse_loss(recon, noisy)
        logits = self.probe(code.detach())  # the probe only reads the code
        return recon_loss, F.cross_entropy(logits, y), logits

    def training_step(self, batch, batch_idx):
        x, y = batch
        recon_loss, probe_loss, _ = self.losses(x, y, corrupt=True)
        loss = recon_loss + 0.1 * probe_loss
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        recon_loss, _, logits = self.losses(x, y, corrupt=False)
        acc = (logits.argmax(-1) == y).float().mean()
        self.log_dict({"val_mse": recon_loss, "val_acc": acc}, sync_dist=True, batch_size=len(x))  #! unsynced_metric: self.log_dict({"val_mse": recon_loss, "val_acc": acc}, batch_size=len(x))

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking and self.trainer.is_global_zero:
            m = self.trainer.callback_metrics
            self.print(f"epoch {self.current_epoch}", {k: round(float(v), 4) for k, v in m.items()}, flush=True)

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        total = int(self.trainer.estimated_stepping_batches)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=total)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def main():
    L.seed_everything(8, workers=True, verbose=False)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=5, num_sanity_val_steps=0,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        gradient_clip_val=1.0,
    )
    trainer.fit(DenoisingAE(), datamodule=Blobs())
    res = trainer.validate(trainer.lightning_module, datamodule=trainer.datamodule, verbose=False)[0]
    if trainer.is_global_zero:
        print("final", {k: round(v, 4) for k, v in res.items()}, flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
