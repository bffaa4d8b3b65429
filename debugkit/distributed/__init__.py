"""Support for training in several processes.

    wrappers.py        DistributedDataParallel and FullyShardedDataParallel around a model, and passes without them
    collectives.py     the names of the collectives
    launch.py          this process's rank, by the variables that torchrun sets
    digests.py         numbers by which ranks compare tensors
    digest_exchange.py the digests of each step on all ranks
    message_store.py   messages between ranks through the store of the process group; no rank waits for another

Nothing here calls a collective in a training loop, because it would hang where the loop hangs.
"""
