"""VideoMAE pre-training (tubes of masked patches) with float16 autocast on the CPU and GradScaler, then fine-tuning of the encoder with layer decay."""
import numpy as np, torch
from transformers import VideoMAEConfig, VideoMAEForPreTraining, VideoMAEForVideoClassification

def clips(n, rng):
    y = rng.integers(0, 2, n); v = rng.normal(0, 0.3, (n, 4, 3, 16, 16)).astype("float32")
    for i in range(n):
        r = rng.integers(1, 10)
        for t in range(4):
            c = 2 * t + 2 if y[i] else 10 - 2 * t
            v[i, t, :, r:r + 4, c:c + 4] += 2
    return torch.from_numpy(v), torch.from_numpy(y)

torch.manual_seed(0); rng = np.random.default_rng(0)
cfg = VideoMAEConfig(image_size=16, patch_size=4, num_frames=4, tubelet_size=2, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
                     decoder_hidden_size=32, decoder_num_hidden_layers=1, decoder_num_attention_heads=4, decoder_intermediate_size=64, norm_pix_loss=True, num_labels=2)
pre = VideoMAEForPreTraining(cfg)
X, Y = clips(256, rng)
opt = torch.optim.AdamW(pre.parameters(), 1.5e-3, betas=(0.9, 0.95), weight_decay=0.05)
scaler = torch.amp.GradScaler("cpu")
per_frame = (16 // 4) ** 2
for epoch in range(5):
    for idx in torch.randperm(len(X)).split(32):
        keep = torch.rand(len(idx), per_frame).argsort(1) < per_frame // 2       # the same number in each sample
        mask = keep.repeat(1, 2)                                                 # tubes: same patches in both time slots
        with torch.autocast("cpu", dtype=torch.float16):
            loss = pre(X[idx] * 0.25 + 0.0, bool_masked_pos=mask).loss
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(pre.parameters(), 1.0)
        scaler.step(opt); scaler.update()
    print("pretrain", epoch, round(loss.item(), 4))

clf = VideoMAEForVideoClassification(cfg)
missing = clf.videomae.load_state_dict(pre.videomae.state_dict(), strict=False)
assert not missing.missing_keys, missing
def depth(name):
    if name.startswith("videomae.embeddings"): return 0
    if name.startswith("videomae.encoder.layer"): return 1 + int(name.split(".")[3])
    return 3
groups = {}
for n, p in clf.named_parameters():
    if p.requires_grad: groups.setdefault(depth(n), []).append(p)
opt = torch.optim.AdamW([{"params": ps, "lr": 3e-3 * 0.75 ** (3 - d)} for d, ps in groups.items()], weight_decay=0.02)
Xt, Yt = clips(100, rng)
for epoch in range(5):
    clf.train()
    for idx in torch.randperm(len(X)).split(32):
        loss = clf(pixel_values=X[idx] * 0.25, labels=Y[idx]).loss
        opt.zero_grad(); loss.backward(); opt.step()
    clf.eval()
    with torch.no_grad(): acc = (clf(pixel_values=Xt * 0.25).logits.argmax(-1) == Yt).float().mean()
    print("finetune", epoch, round(loss.item(), 4), f"acc {acc:.3f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
