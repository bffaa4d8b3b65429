"""Two ranks that train on the same batches. The line that a finding must name ends in `# DK806`."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import debugkit
from two_ranks import two_ranks


def _prepare():
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def _program(batches, **expect):
    """Both ranks train on `batches(rank)`, each under its own watch()."""

    def train(model, optimizer, rank):
        for state in batches(rank):
            optimizer.zero_grad()
            model(state).square().mean().backward()  # DK806
            optimizer.step()

    def beside(model, optimizer):
        with debugkit.watch(model, optimizer, select="DK806"):
            train(model, optimizer, rank=1)

    (model, optimizer), join = two_ranks(_prepare, beside)

    def loop(model, optimizer):
        train(model, optimizer, rank=0)
        assert join() == 0

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def loader_without_a_distributed_sampler():
    """Every rank has set the same seed, so every rank shuffles the whole data set in the same order."""

    def batches(_rank):
        torch.manual_seed(7)
        loader = DataLoader(TensorDataset(torch.randn(64, 3)), batch_size=4, shuffle=True)
        return (state for _ in range(2) for (state,) in loader)

    return _program(batches, severity="warning", message="Ranks 0 and 1 had the same training batch in each of 8 steps")


def same_seed_for_the_environment_of_each_rank():
    def batches(_rank):
        draw = torch.Generator().manual_seed(5)
        return (torch.randn(4, 3, generator=draw) for _ in range(4))

    return _program(batches, message="in each of 4 steps")
