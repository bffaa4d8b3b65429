"""Lesson 82's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("82").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from hashlib import sha256
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from labs.vla.dataset import batches, demonstrations
from policy import build_policy, train, unwrap, wrap


def take_one_step(rank, folder, hashes):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    policy = wrap(build_policy(seed=rank))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    train(policy, optimizer, batches(demonstrations(32, seed=rank), 32, steps=1, seed=rank))
    values = unwrap(policy).named_parameters()
    hashes.put({name: sha256(value.detach().numpy().tobytes()).hexdigest() for name, value in values})
    dist.destroy_process_group()


with TemporaryDirectory() as folder:
    hashes = mp.get_context("fork").SimpleQueue()
    mp.start_processes(take_one_step, args=(folder, hashes), nprocs=2, start_method="fork")
    first, second = hashes.get(), hashes.get()

for part in ("backbone", "head"):
    names = [name for name in first if name.startswith(part)]
    different = [name for name in names if first[name] != second[name]]
    print(f"{part:<9} {len(names):2d} parameters, {len(different)} differ")
# --8<-- [end:measure]
assert len(different) == 4
sys.path.pop(0)
