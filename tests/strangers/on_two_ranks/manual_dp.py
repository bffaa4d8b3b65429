"""Data parallelism by hand: every rank owns a shard, gradients are all-reduced in one flat bucket after
backward and divided by the world size; weights are broadcast from rank 0 at the start.

fault not_divided: none
    Summed gradients are used without division by the world size.
fault no_initial_broadcast: DK802
    The ranks are seeded apart and never agree on initial weights.
fault reduce_after_step: DK802
    Gradients are reduced only after the optimizer has stepped, so each rank steps on its own.
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def spirals(n, g):
    """Three interleaved spirals in the plane, with radial features left for the net to find."""
    label = torch.randint(0, 3, (n,), generator=g)
    t = torch.rand(n, generator=g) * 2.5 + 0.3
    ang = 1.6 * t + label * (2 * torch.pi / 3) + 0.12 * torch.randn(n, generator=g)
    return torch.stack([t * ang.cos(), t * ang.sin()], 1), label


def broadcast_weights(net):
    for t in list(net.parameters()) + list(net.buffers()):
        dist.broadcast(t.data, src=0)


def average_gradients(net, world):
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    flat = torch.cat([g.reshape(-1) for g in grads])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    flat.div_(world)  #! not_divided: pass
    offset = 0
    for g in grads:
        g.copy_(flat[offset:offset + g.numel()].view_as(g))
        offset += g.numel()


@torch.no_grad()
def test(net, x, y, rank, world):
    net.eval()
    out = net(x[rank::world])
    tgt = y[rank::world]
    s = torch.stack([F.cross_entropy(out, tgt, reduction="sum"),
                     (out.argmax(1) == tgt).sum().float(), torch.tensor(float(len(tgt)))])
    net.train()
    dist.all_reduce(s)
    return (s[0] / s[2]).item(), (s[1] / s[2]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(100 + rank)  # per-rank stream (dropout); weights are made equal below
    net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.05), nn.Linear(64, 3))
    broadcast_weights(net)  #! no_initial_broadcast: pass
    opt = torch.optim.SGD(net.parameters(), lr=0.15, momentum=0.9, nesterov=True)
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, milestones=[70, 100], gamma=0.3)

    data_gen = torch.Generator().manual_seed(0)  # same on all ranks: the full set, then a shard of it
    x_all, y_all = spirals(2048, data_gen)
    x_test, y_test = spirals(600, data_gen)
    x, y = x_all[rank::world], y_all[rank::world]
    order = torch.Generator().manual_seed(50 + rank)

    step = 0
    net.train()
    while step < 120:
        perm = torch.randperm(len(x), generator=order)
        for idx in perm.split(64):
            opt.zero_grad()
            loss = F.cross_entropy(net(x[idx]), y[idx])
            loss.backward()
            average_gradients(net, world)  #! reduce_after_step: opt.step()
            opt.step()  #! reduce_after_step: average_gradients(net, world)
            sched.step()
            step += 1
            if step % 30 == 0:
                nll, acc = test(net, x_test, y_test, rank, world)
                if rank == 0:
                    print(f"step {step} test nll {nll:.4f} acc {acc:.3f}", flush=True)
            if step == 120:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
