"""Two processes; one of them does not come to the all_reduce. What the other one says."""

import logging
import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist

# --8<-- [start:use]
import debugkit


def train():
    if dist.get_rank() == 1:
        time.sleep(4)  # writes a checkpoint, and forgets that the others wait
    dist.all_reduce(torch.ones(3))


def main():
    dist.init_process_group("gloo")
    with debugkit.explain_hang(after=1):  # seconds; for a real run, say 60
        train()


# --8<-- [end:use]

if "RANK" in os.environ:  # one of the two processes that are started below
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    main()
    dist.destroy_process_group()
    sys.exit()

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
ranks = [
    subprocess.Popen([sys.executable, __file__], env={**os.environ, **address, "RANK": rank}, stdout=subprocess.PIPE)
    for rank in ("0", "1")
]
said = [rank.communicate(timeout=60)[0].decode() for rank in ranks]
print(said[0])
assert "rank 1 never came" in said[0]
