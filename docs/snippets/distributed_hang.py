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
        time.sleep(600)  # writes a checkpoint, and forgets that the others wait
    dist.all_reduce(torch.ones(3))


def main():
    dist.init_process_group("gloo")
    with debugkit.explain_hang(after=2):  # seconds; for a real run, say 60
        train()


# --8<-- [end:use]

if "RANK" in os.environ:  # one of the two processes that are started below
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    assert callable(debugkit.explain_hang)  # imported now: from init_process_group() on, both are at the same line
    main()

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
ranks = [
    subprocess.Popen([sys.executable, __file__], env={**os.environ, **address, "RANK": rank}, stdout=subprocess.PIPE)
    for rank in ("0", "1")
]
try:
    said = next(line.decode() for line in ranks[0].stdout if b"DK804" in line)
finally:
    for rank in ranks:
        rank.kill()
        rank.communicate()
print(said)
assert "rank 1 never made this call" in said
