import time

import torch
import torch.distributed as dist

import debugkit


def train():
    if dist.get_rank() == 1:
        time.sleep(600)  # writes a checkpoint, and forgets that the others wait
    dist.all_reduce(torch.ones(3))


def main():
    dist.init_process_group("gloo")
    with debugkit.explain_hang(after=2):  # seconds; for a real run, say 60
        train()


if __name__ == "__main__":
    main()
