"""Masked autoencoder on small synthetic images: 75% of the patches are hidden, per-patch normalised pixel targets.

fault loss_on_visible: none
fault no_unshuffle: none
fault pos_missing: none
fault patch_by_reshape: none
"""
import torch
from torch import nn

P, G, D = 4, 4, 48          # patch side, patches per side, width
L, KEEP = G * G, 4


def images(n, gen):
    """One of eight smooth motifs, mirrored or not, with random contrast and a little noise."""
    side = P * G
    coarse = torch.randn(8, 1, 6, 6, generator=torch.Generator().manual_seed(7))
    motifs = nn.functional.interpolate(coarse, size=(side, side), mode="bicubic", align_corners=True)
    img = motifs[torch.randint(8, (n,), generator=gen)]
    mirror = (torch.rand(n, 1, 1, 1, generator=gen) < 0.5).expand_as(img)
    img = torch.where(mirror, img.flip(-1), img)
    return img * (0.6 + 0.8 * torch.rand(n, 1, 1, 1, generator=gen)) + 0.05 * torch.randn(n, 1, side, side, generator=gen)


def patchify(x):
    n = len(x)
    return x.view(n, 1, G, P, G, P).permute(0, 2, 4, 3, 5, 1).reshape(n, L, P * P)  #! patch_by_reshape: return x.reshape(n, L, P * P)


def transformer(depth):
    layer = nn.TransformerEncoderLayer(D, 4, 2 * D, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(D), enable_nested_tensor=False)


class MAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(P * P, D)
        self.enc_pos = nn.Parameter(torch.randn(1, L, D) * 0.02)
        self.encoder, self.bridge = transformer(2), nn.Linear(D, D)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, D))
        self.dec_pos = nn.Parameter(torch.randn(1, L, D) * 0.02)
        self.decoder, self.pixels = transformer(1), nn.Linear(D, P * P)
        nn.init.normal_(self.mask_token, std=0.02)

    def encode(self, patches, kept=None):
        x = self.embed(patches) + self.enc_pos  #! pos_missing: x = self.embed(patches)
        if kept is not None:
            x = x.gather(1, kept[..., None].expand(-1, -1, D))
        return self.encoder(x)

    def forward(self, img):
        patches = patchify(img)
        order = torch.rand(len(img), L).argsort(1)
        restore = order.argsort(1)  #! no_unshuffle: restore = order
        code = self.bridge(self.encode(patches, order[:, :KEEP]))
        full = torch.cat([code, self.mask_token.expand(len(img), L - KEEP, -1)], 1)
        full = full.gather(1, restore[..., None].expand(-1, -1, D))
        pred = self.pixels(self.decoder(full + self.dec_pos))
        hidden = (order.argsort(1) >= KEEP).float()  #! loss_on_visible: hidden = (order.argsort(1) < KEEP).float()
        with torch.no_grad():
            mean = patches.mean(-1, keepdim=True)
            var = patches.var(-1, keepdim=True)
            target = (patches - mean) / (var + 1e-4).sqrt()
        per_patch = (pred - target).square().mean(-1)
        return (per_patch * hidden).sum() / hidden.sum()


def train():
    torch.manual_seed(91)
    gen = torch.Generator().manual_seed(92)
    data = images(384, gen)
    model = MAE()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.05)
    epochs, history = 20, []
    total = epochs * 6
    lr_at = lambda s: min((s + 1) / 12, 1.0) * (0.05 + 0.95 * (1 - s / total))
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lr_at)
    for _ in range(epochs):
        for rows in torch.randperm(384, generator=gen).split(64):
            loss = model(data[rows])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            schedule.step()
            history.append(loss.item())
    model.eval()
    with torch.no_grad():
        train.features = model.encode(patchify(data[:16])).mean(1)
    return history


WATCH = ()
