import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import debugkit


def main(rank, store):
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with debugkit.watch(model, optimizer, select="DK802") as run:
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
    if rank == 0:
        print(run.report)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(main, (f"{folder}/store",), nprocs=2)
