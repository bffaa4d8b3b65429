"""GAN on a ring of eight Gaussians: generator and discriminator are each wrapped in DDP with an optimizer of their own.

fault same_noise: DK806
    Real samples and latent noise come from a generator seeded alike on both ranks, so both compute the same batch.
fault d_not_cleared: DK501
    The discriminator's gradients are never cleared and keep what the generator's step left in them.
fault g_bypasses_ddp: DK803
    The generator's update uses generator.module, so its gradients aren't reduced and the ranks' generators drift apart.
"""
import math

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.nn.parallel import DistributedDataParallel as DDP

Z, BS, ITERS = 8, 64, 110


def mlp(i, o, h=64):
    return nn.Sequential(nn.Linear(i, h), nn.LeakyReLU(0.2), nn.Linear(h, h), nn.LeakyReLU(0.2), nn.Linear(h, o))


def real_batch(n, rng):
    k = torch.randint(0, 8, (n,), generator=rng)
    ang = k * (2 * math.pi / 8)
    return 2 * torch.stack([ang.cos(), ang.sin()], 1) + 0.08 * torch.randn(n, 2, generator=rng)


@torch.no_grad()
def radius_error(G, rng):
    """Mean distance of samples to the ring of radius 2, over all ranks."""
    G.eval()
    r = G(torch.randn(256, Z, generator=rng)).norm(dim=1)
    err = (r - 2).abs().mean()
    G.train()
    dist.all_reduce(err)
    return err.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    # buffers: there are none, so broadcasting them would only cost time
    G = DDP(mlp(Z, 2), broadcast_buffers=False)
    D = DDP(mlp(2, 1), broadcast_buffers=False)
    opt_g = optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.99))
    opt_d = optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.99))
    rng = torch.Generator().manual_seed(1000 + rank)  #! same_noise: rng = torch.Generator().manual_seed(1000)
    eval_rng = torch.Generator().manual_seed(9000 + rank)

    G.train(); D.train()
    for it in range(1, ITERS + 1):
        # ---- discriminator: one forward on the joined batch, one backward
        opt_d.zero_grad(set_to_none=True)  #! d_not_cleared: pass
        with torch.no_grad():
            fake = G(torch.randn(BS, Z, generator=rng))
        scores = D(torch.cat([real_batch(BS, rng), fake]))
        target = torch.cat([torch.full((BS, 1), 0.9), torch.zeros(BS, 1)])  # one-sided smoothing
        loss_d = bce(scores, target)
        loss_d.backward()
        opt_d.step()

        # ---- generator: D's plain module only passes the signal on; what this leaves in D's
        # .grad is unreduced, and is cleared at the top of the next iteration
        opt_g.zero_grad(set_to_none=True)
        z = torch.randn(BS, Z, generator=rng)
        fake = G(z)  #! g_bypasses_ddp: fake = G.module(z)
        loss_g = bce(D.module(fake), torch.ones(BS, 1))
        loss_g.backward()
        opt_g.step()

        if it % 22 == 0:
            both = torch.stack([loss_d.detach(), loss_g.detach()])
            dist.all_reduce(both)
            both /= dist.get_world_size()
            err = radius_error(G, eval_rng)
            if rank == 0:
                print(f"[{it:3d}] D {both[0]:.3f}  G {both[1]:.3f}  radius err {err:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
