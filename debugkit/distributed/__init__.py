"""What debugkit knows of a training that runs in several processes.

    wrappers.py      DistributedDataParallel and FullyShardedDataParallel around a model, and passes without them
    mailbox.py       letters between ranks through the process group's store: no rank ever waits for another
    digests.py       a number for the bits of each parameter
    collectives.py   which collectives this rank has called, where, and where the other ranks stand
    network_test.py  `debugkit doctor --distributed`: the smallest program that shows whether ranks reach each other

Nothing here calls a collective in a training loop: a tool that did would hang where the loop does.
"""
