"""DDP training of a causal transformer on a Markov-chain corpus, with gradient accumulation under
no_sync, clipping, a warmup-cosine schedule and a checkpoint written by rank 0 and reloaded by all ranks.

fault sync_never: DK802|DK803
    No_sync also covers the last micro-batch, so gradients are never averaged over ranks.
fault clip_after_step: DK504
    The gradient norm is clipped only after the optimizer has stepped, so clipping has no effect.
fault unshifted_targets: DK325|DK304|DK314
    The targets are the inputs themselves, so the model learns to copy instead of to predict.
"""
import contextlib
import math
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCAB, CTX, DIM, HEADS, LAYERS = 32, 32, 48, 4, 2
STEPS, WARMUP, ACCUM, MICRO_BS = 40, 6, 3, 8
PEAK_LR, MIN_LR, CLIP = 4e-3, 4e-4, 1.0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, DIM))
        return x + self.mlp(self.ln2(x))


class TinyGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(CTX, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1)))
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.norm(x))


def build_corpus(n_tokens, seed):
    """Each symbol is followed by one of four favourites, drawn with fixed odds."""
    table = torch.stack([torch.randperm(VOCAB, generator=torch.Generator().manual_seed(i))[:4] for i in range(VOCAB)])
    g = torch.Generator().manual_seed(seed)
    picks = torch.multinomial(torch.tensor([0.6, 0.2, 0.1, 0.1]), n_tokens, True, generator=g).tolist()
    rows, cur, out = table.tolist(), 0, []
    for p in picks:
        cur = rows[cur][p]
        out.append(cur)
    return torch.tensor(out)


def get_batch(data, gen):
    ix = torch.randint(0, len(data) - CTX - 1, (MICRO_BS,), generator=gen)
    chunk = torch.stack([data[i:i + CTX + 1] for i in ix])
    inp, tgt = chunk[:, :-1], chunk[:, 1:]  #! unshifted_targets: inp, tgt = chunk[:, :-1], chunk[:, :-1]
    return inp, tgt


def lr_lambda(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    frac = (step - WARMUP) / max(1, STEPS - WARMUP)
    floor = MIN_LR / PEAK_LR
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * frac))


def ce(logits, targets):
    return nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


@torch.no_grad()
def evaluate(model, data, gen, iters=6):
    was_training = model.training
    model.eval()
    total = torch.zeros(())
    for _ in range(iters):
        inp, tgt = get_batch(data, gen)
        total += ce(model(inp), tgt)
    model.train(was_training)
    total /= iters
    dist.all_reduce(total)
    return (total / dist.get_world_size()).item()


def main():
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    train_data, val_data = build_corpus(20_000, seed=11), build_corpus(4_000, seed=12)
    model = DistributedDataParallel(TinyGPT())
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],
        lr=PEAK_LR, betas=(0.9, 0.95))
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_lambda)
    gen = torch.Generator().manual_seed(100 + rank)

    model.train()
    for step in range(STEPS):
        opt.zero_grad(set_to_none=True)
        step_loss = torch.zeros(())
        for micro in range(ACCUM):
            inp, tgt = get_batch(train_data, gen)
            sync_now = micro == ACCUM - 1  #! sync_never: sync_now = micro == ACCUM
            with contextlib.nullcontext() if sync_now else model.no_sync():
                loss = ce(model(inp), tgt) / ACCUM
                loss.backward()
            step_loss += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)  #! clip_after_step: opt.step()
        opt.step()  #! clip_after_step: nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        sched.step()
        if (step + 1) % 20 == 0:
            dist.all_reduce(step_loss)
            val = evaluate(model, val_data, torch.Generator().manual_seed(500 + rank))
            if rank == 0:
                print(f"step {step + 1:3d} loss {step_loss.item() / dist.get_world_size():.4f} "
                      f"val {val:.4f} lr {sched.get_last_lr()[0]:.2e}", flush=True)

    # every rank must use the same path: rank 0 chooses it and tells the others
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    path = os.path.join(box[0], "ckpt.pt")
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "opt": opt.state_dict(), "step": STEPS}, path)
    dist.barrier()
    ckpt = torch.load(path, map_location="cpu", weights_only=True)
    model.module.load_state_dict(ckpt["model"])
    opt.load_state_dict(ckpt["opt"])
    final = evaluate(model, val_data, torch.Generator().manual_seed(900 + rank), iters=10)
    dist.barrier()
    if rank == 0:
        os.remove(path)
        os.rmdir(box[0])
        print(f"reloaded step {ckpt['step']} val {final:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
