import contextlib
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

import debugkit


def main(rank, store):
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=5),
    )
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = debugkit.watch(model, optimizer, select="DK804")
    with contextlib.suppress(RuntimeError), run:
        for step in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 3)).square().mean()
            loss.backward()
            optimizer.step()
            dist.all_reduce(loss.detach())
    if rank == 0:
        for finding in run.report.errors:
            print(finding.code, finding.message)
        print(run.report.to_text().splitlines()[-1])
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(main, (f"{folder}/store",), nprocs=2)
