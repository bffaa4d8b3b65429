"""Two ranks that divide the data, or have a reason for equal batches."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import debugkit
from two_ranks import alone, leave, two_ranks


def _prepare():
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def _train(model, optimizer, batches):
    for state in batches:
        optimizer.zero_grad()
        model(state).square().mean().backward()
        optimizer.step()


def _program(batches, train=_train, watched_on_both=True, **expect):
    def beside(model, optimizer):
        if not watched_on_both:
            train(model, optimizer, batches(1))
            return
        with debugkit.watch(model, optimizer, select="DK806"):
            train(model, optimizer, batches(1))

    (model, optimizer), join = two_ranks(_prepare, beside)

    def loop(model, optimizer):
        train(model, optimizer, batches(0))
        assert join() == 0

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def distributed_sampler():
    def batches(rank):
        torch.manual_seed(7)
        data = TensorDataset(torch.randn(64, 3))
        loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, num_replicas=2, rank=rank))
        return (state for (state,) in loader)

    return _program(batches)


def one_batch_on_purpose():
    """A model is fitted to one batch, to see whether it can learn at all."""

    def batches(_rank):
        torch.manual_seed(7)
        return [torch.randn(4, 3)] * 8

    return _program(batches)


def equal_at_first():
    """Both ranks begin with the same demonstration, and each goes on with its own."""

    def batches(rank):
        torch.manual_seed(7)
        first = [torch.randn(4, 3) for _ in range(2)]
        torch.manual_seed(rank)
        return [*first, *(torch.randn(4, 3) for _ in range(6))]

    return _program(batches)


def all_ranks_evaluate_the_same():
    """The validation set is whole on every rank, and the model is also called in training mode without gradients."""

    def train(model, optimizer, batches):
        validation = torch.randn(8, 3, generator=torch.Generator().manual_seed(3))
        for number, state in enumerate(batches):
            with torch.no_grad():
                model(validation + number)
            model.eval()
            model(validation - number)
            model.train()
            _train(model, optimizer, [state])

    def batches(rank):
        torch.manual_seed(rank)
        return [torch.randn(4, 3) for _ in range(8)]

    return _program(batches, train)


def watched_on_one_rank_only():
    def batches(_rank):
        torch.manual_seed(7)
        return [torch.randn(4, 3) for _ in range(6)]

    return _program(batches, watched_on_both=False, not_examined="enter watch() on every rank")


def too_few_steps():
    def batches(_rank):
        torch.manual_seed(7)
        return [torch.randn(4, 3) for _ in range(2)]

    return _program(batches, not_examined="Fewer than 3 steps")


def one_process():
    alone()
    model, optimizer = _prepare()

    def loop(model, optimizer):
        _train(model, optimizer, [torch.randn(4, 3)])
        leave()

    expect = {"not_examined": "no other ranks"}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}
