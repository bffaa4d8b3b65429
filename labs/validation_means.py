"""Validation in two processes for checks: batches of several robots, the documented means, and other means in words.

The losses of a run are nested lists, `losses[process][batch][name]`, each the losses (N,) of the frames that belong to
a name; N may be 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, expect
from labs.invariants import padded_batch
from labs.vla.policy import OBSERVATION_KEYS, Policy
from labs.vla.training import learning_rate_at

Batch = dict[str, Tensor]
Run = list[list[Batch]]
Losses = Sequence[Sequence[Mapping[str, Tensor]]]

LEARNING_RATE = 1e-3
ROBOTS = ("bench", "cart", "gantry")
WHOLE = "validation_loss"
NAMES = (WHOLE, *(f"{WHOLE}/{robot}" for robot in ROBOTS))
ALL = "the mean of all frames"
ABSENT, NO_NUMBER, ZERO, ANOTHER = "missing", "NaN", "zero", "another number"
ROUNDED, BATCHES = "the mean with a rounded weight", "the mean weighted by whole batches"
COUNTED, EVEN = "the mean in which a batch without frames counts as zero", "the mean of the two processes' means"


EVERY = "every batch has frames of every robot"
TURNS = "each process has frames of every robot, but begins with another one"
ONLY_0, ONLY_1 = "only process 0 has frames of {robot}", "only process 1 has frames of {robot}"
NOBODY = "no process has frames of {robot}"
SHARES: dict[str, list[list[list[int]]]] = {
    EVERY: [[[0, 1, 2, 0], [1, 2, 0]], [[2, 1, 0], [0, 2, 1, 1, 1]]],
    TURNS: [[[0, 0], [1, 2, 2]], [[2, 2, 1], [0, 1]]],
    ONLY_0: [[[0, 1, 2], [1, 2]], [[0, 0, 1, 0], [1]]],
    ONLY_1: [[[0, 0, 1, 0], [1]], [[0, 1, 2], [1, 2, 2, 0]]],
    NOBODY: [[[0], [1]], [[0, 0, 1], [0, 1, 1]]],
}
"""For each process and batch, the robots of the frames; robot 2 is the one that may be lacking."""


def expect_mean(word: str, value: Any, wanted: float | None, name: str, rank: int | None, said: str) -> None:
    """A described value must be the mean of all frames; without any frame, no number."""
    who = "one process" if rank is None else f"process {rank}"
    what = f"what {who} logged as `{name}`, {'where ' * (rank is not None)}{said},"
    if wanted is None:
        expect(word, what).one_of((ABSENT, NO_NUMBER))
    elif word == ANOTHER:
        expect(value, what).close_to(wanted, rtol=1e-4)
    else:
        expect(word, what).equals(ALL)


def in_order(order: Tensor) -> list[str]:
    """The names, with those of the robots in the order of `SHARES`: the last one may be lacking."""
    return [WHOLE, *(NAMES[1 + int(robot)] for robot in order)]


def with_robots(rng: Rng, robots: list[int]) -> Batch:
    """A padded batch with these robots, in random order."""
    return {**padded_batch(rng, len(robots)), "robot": torch.tensor(robots)[rng.permutation(len(robots))]}


def drawn(rng: Rng, share: list[list[list[int]]], order: Tensor) -> Run:
    """The batches of each process; `order` are the robots that take the places 0, 1 and 2."""
    return [[with_robots(rng, order[torch.tensor(robots)].tolist()) for robots in process] for process in share]


def reference_training(streams: Sequence[Sequence[Batch]], seed: int) -> tuple[Policy, list[list[float]]]:
    """One process that takes the steps of both: the trained policy, and the losses of each process's batches."""
    policy = Policy.from_base(seed=seed).train()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    losses: list[list[float]] = [[] for _ in streams]
    for step, both in enumerate(zip(*streams, strict=True)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, len(streams[0]), LEARNING_RATE)
        found = [frame_losses(policy, batch).mean() for batch in both]
        optimizer.zero_grad()
        torch.stack(found).mean().backward()
        optimizer.step()
        for own, loss in zip(losses, found, strict=True):
            own.append(loss.item())
    return policy, losses


def frame_losses(policy: Policy, batch: Batch) -> Tensor:
    """The mean squared error of each normalised chunk without its padding, (B,), chunk by chunk."""
    predicted = policy.head(policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS}))
    error = predicted - policy.action_statistics.normalize(batch["action"])
    kept = [chunk[~padded] for chunk, padded in zip(error, batch["action_is_pad"], strict=True)]
    return torch.stack([chunk.square().mean() for chunk in kept])


def by_name(policy: Policy, batch: Batch) -> dict[str, Tensor]:
    """The losses of the frames that belong to each name."""
    losses = frame_losses(policy, batch).detach()
    return {WHOLE: losses} | {f"{WHOLE}/{robot}": losses[batch["robot"] == i] for i, robot in enumerate(ROBOTS)}


def mean_of_all(losses: Losses, name: str) -> float | None:
    """The documented value; None if no process has a frame."""
    found = torch.cat([batch[name] for process in losses for batch in process])
    return found.double().mean().item() if len(found) else None


def described(value: float | None, losses: Losses, name: str) -> str:
    """What a logged value is the mean of; None is a value that was not logged."""
    if value is None:
        return ABSENT
    if math.isnan(value):
        return NO_NUMBER
    if value == 0:
        return ZERO
    wanted = mean_of_all(losses, name)
    if wanted is not None and math.isclose(value, wanted, rel_tol=1e-4):
        return ALL
    for words, candidate in _candidates(losses, name):
        if math.isclose(value, candidate, rel_tol=1e-4):
            return words
    return ANOTHER


def _candidates(losses: Losses, name: str) -> Iterator[tuple[str, float]]:
    """Other means that are finite."""
    found = [
        *_of_this_name(losses, name),
        *((f"the mean of the frames of `{robot}`", mean_of_all(losses, f"{WHOLE}/{robot}")) for robot in ROBOTS),
        *_of_two_robots(losses),
    ]
    yield from ((words, value) for words, value in found if value is not None and math.isfinite(value))


def _of_this_name(losses: Losses, name: str) -> Iterator[tuple[str, float | None]]:
    parts = [[batch[name].double() for batch in process] for process in losses]
    every = [part for process in parts for part in process]
    for rank in range(len(losses)):
        yield f"the mean of process {rank}'s frames", mean_of_all([losses[rank]], name)
    count, total = sum(map(len, every)), sum(float(part.sum()) for part in every)
    yield ROUNDED, _ratio(total / len(losses), count // len(losses))
    means = [mean_of_all([process], name) for process in losses]
    known = [mean for mean in means if mean is not None]
    yield EVEN, _ratio(sum(known), len(known))
    yield f"{EVEN}, with zero for one that has no frame", sum(known) / len(means)
    yield COUNTED, _ratio(total, sum(max(len(part), 1) for part in every))
    yield f"{COUNTED}, and with a rounded weight", _ratio(total / 2, sum(max(len(part), 1) for part in every) // 2)
    sizes = [len(batch[WHOLE]) for process in losses for batch in process]
    weighted = [size * float(part.mean()) for size, part in zip(sizes, every, strict=True) if len(part)]
    present = [size for size, part in zip(sizes, every, strict=True) if len(part)]
    for total_size in (sum(sizes), sum(present)):
        yield BATCHES, _ratio(sum(weighted), total_size)
        yield BATCHES, _ratio(sum(weighted) / len(losses), total_size // len(losses))
    filled = [float(part.mean()) for part in every if len(part)]
    yield "the mean of the batches' means", _ratio(sum(filled), len(filled))
    yield "the mean of the batches' means, with zero for one without frames", sum(filled) / len(every)


def _of_two_robots(losses: Losses) -> Iterator[tuple[str, float | None]]:
    """The mean of one robot's frames in process 0 and another robot's in process 1."""
    if len(losses) == 2:
        for first, second in permutations(ROBOTS, 2):
            pairs = zip((first, second), losses, strict=True)
            mixed = [[{WHOLE: batch[f"{WHOLE}/{robot}"]} for batch in process] for robot, process in pairs]
            yield f"the mean of process 0's `{first}` and process 1's `{second}`", mean_of_all(mixed, WHOLE)


def _ratio(total: float, count: int) -> float | None:
    return total / count if count else None
