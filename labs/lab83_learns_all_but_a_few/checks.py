"""What must hold for the epochs of several processes. Runs in the grader's process, without the learner's code.

Which frames a process trains on is read from the batches that its model gets, whatever makes these batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, combinations, pairwise
from typing import Any

import torch

from labs.epoch_orders import Batches, begins, by_epoch, different, kept, used_twice
from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import TOLERANCE, expect_equal, listed, relative_error
from labs.policy_comparison import with_louder_head
from labs.process_endings import BOTH_FINISHED
from labs.reference_training import train_step
from labs.stock_policy import expect_stock_parameters, expect_stock_prediction
from labs.vla.dataset import collate, demonstrations
from labs.vla.policy import Policy
from labs.vla.training import learning_rate_at

EPOCHS, MANY = 5, 20
LEAST_FRAMES = 40
KEPT = 0.5
"""At most so many of the neighbours in an epoch's batches may share a batch in another epoch.

By chance it is about a tenth. Shifted, reversed and with its batches in another order, an order keeps two thirds or more.
"""
WORLDS = (1, 2, 3)
UNLEARNT, LOSS_BAR = 6, 0.3
"""An epoch leaves out six of the thirty frames of the outcome."""
ORDER = "test_every_epoch_has_an_order_of_its_own"
DIVIDED = "test_processes_divide_the_frames"
CONTINUED = "test_continued_run_gets_the_same_batches/where continued runs begin"
UNEVEN = "test_no_process_waits_for_another"
UNEVEN_EPOCHS = 3
ADDRESS = "tcp://127.0.0.1:29500"
LOUDER = 30.0
"""Makes the gradients longer than the norm to which they are clipped."""
LOUDEST = 1000.0
"""Makes the loss of a frame larger than fifty."""


@check(
    kind="behaviour",
    title="Every epoch has an order of its own",
    property="No two epochs may have the same order: frames that share a batch in one epoch must be spread over the batches of another, and each frame must be used in some epoch.",
    instrument="debugkit.check(policy, batch, dataloader=loader, select=['DK703'])",
)
def test_every_epoch_has_an_order_of_its_own(submission: Submission, rng: Rng) -> None:
    measured = []
    for world_size in WORLDS:
        asked = sizes(rng, world_size)
        found = by_epoch(orders(submission, rng, asked), EPOCHS)
        pairs = list(pairwise(found))
        expect([kept(*pair) for pair in pairs], f"neighbours kept by {processes(world_size)}")
        expect([different(*pair) for pair in pairs], f"batches that are not those of the epoch before, {world_size}")
        measured.append((world_size, found))
    for world_size, found in measured:
        for first, second in combinations(range(EPOCHS), 2):
            share = kept(found[first], found[second])
            where = f"of epoch {first} and share a batch again in epoch {second}, with {processes(world_size)},"
            expect(share, f"the share of frames that are neighbours in a batch {where}").at_most(KEPT)
    found = by_epoch(orders(submission, rng, {**sizes(rng, 2), "seed": 0}), EPOCHS)
    for epoch, pair in enumerate(pairwise(found)):
        where = f"of epoch {epoch} and share a batch again in the next one, with two processes and the seed 0,"
        expect(kept(*pair), f"the share of frames that are neighbours in a batch {where}").at_most(KEPT)
    asked = sizes(rng, 2)
    used = set(chain.from_iterable(chain(*orders(submission, rng, asked, epochs=MANY))))
    unused = asked["frames"] - len(used)
    expect(unused, f"the number of frames, of {asked['frames']}, that no process uses in {MANY} epochs").equals(0)


@check(
    kind="behaviour",
    title="The processes divide the frames in every epoch",
    property="In every epoch, each frame must be used by at most one process and at most once, all processes must have equally many full batches, and only frames that do not fill a round of them may be left out, also where a single frame is lacking.",
    instrument="python -c 'from policy import *; from labs.vla.dataset import *; frames = demonstrations(30, 0); print(*(list(build_loader(frames, 4, rank=rank, world_size=2, seed=0).batch_sampler) for rank in (0, 1)), sep=\"\\n\")'",
)
def test_processes_divide_the_frames(submission: Submission, rng: Rng) -> None:
    measured = []
    for world_size in WORLDS:
        asked = sizes(rng, world_size)
        ranks = orders(submission, rng, asked)
        found = by_epoch(ranks, EPOCHS)
        expect([used_twice(batches) for batches in found], f"frames used twice by {processes(world_size)}")
        short = [[len(batch) for batch in batches if len(batch) != asked["batch_size"]] for batches in ranks]
        expect(short, f"sizes of incomplete batches with {processes(world_size)}")
        measured.append((asked, ranks, found, short))
    for world_size, seed in (*((world_size, rng.integer(1, 10_000)) for world_size in WORLDS), (2, 0)):
        asked = {**one_too_few(sizes(rng, world_size)), "seed": seed}
        ranks = orders(submission, rng, asked)
        short = [[len(batch) for batch in batches if len(batch) != asked["batch_size"]] for batches in ranks]
        measured.append((asked, ranks, by_epoch(ranks, EPOCHS), short))
    for asked, ranks, found, short in measured:
        for rank, batches in enumerate(ranks):
            who = f"process {rank} of {asked['world_size']}"
            frames = f"{asked['frames']} frames in batches of {asked['batch_size']} with the seed {asked['seed']}"
            steps = EPOCHS * rounds(asked)
            expect(len(batches), f"the number of steps of {who} in {EPOCHS} epochs of {frames}").equals(steps)
            expect(len(short[rank]), f"the number of incomplete batches of {who}, for {frames},").equals(0)
        for epoch, batches in enumerate(found):
            who = processes(asked["world_size"])
            expect(used_twice(batches), f"the number of frames used twice in epoch {epoch} by {who}").equals(0)


@check(
    kind="behaviour",
    title="No process waits for a batch that another one does not have",
    property="Two real processes must both finish, with equally many steps, also where the frames give one process a batch more. DistributedDataParallel sends something in every step: a process that has a step more than the others waits in it forever.",
    instrument="lab run 83",
)
def test_no_process_waits_for_another(submission: Submission, rng: Rng) -> None:
    batch_size, whole = rng.integer(2, 5), rng.integer(2, 4)
    frames = (2 * whole + 1) * batch_size + rng.integer(0, batch_size)
    asked = {"frames": frames, "batch_size": batch_size, "world_size": 2, "seed": 0}
    expected = orders(submission, rng, asked, epochs=UNEVEN_EPOCHS)
    batches = [len(found) // UNEVEN_EPOCHS for found in expected]
    ranks = submission.observe("uneven_rounds", epochs=UNEVEN_EPOCHS, **asked)
    expect(batches, "the batches of each process in an epoch")
    expect([[rank["ended"], rank["steps"]] for rank in ranks], "how far each process came")
    where = f"where two processes have {2 * whole + 1} full batches of {batch_size} frames in an epoch"
    for number, rank in enumerate(ranks):
        other = ending(ranks[1 - number])
        expect(
            ending(rank), f"what process {number} did in {UNEVEN_EPOCHS} epochs, {where} and the other {other},"
        ).equals(f"finished its {UNEVEN_EPOCHS * whole} batches")
        for name, wanted in (("rank", number), ("world_size", 2), ("init_method", ADDRESS)):
            expect(rank["joined"].get(name), f"the `{name}` with which process {number} joins the others").equals(
                wanted
            )
        other = different(rank["batches"], expected[number])
        expect(
            other,
            f"the number of batches of process {number} in `fine_tune` that are not those of `train`, with the seed 0,",
        ).equals(0)
    for epoch, batches in enumerate(by_epoch([rank["batches"] for rank in ranks], UNEVEN_EPOCHS)):
        who = "two real processes"
        expect(used_twice(batches), f"the number of frames used twice in epoch {epoch} by {who}").equals(0)


@check(
    kind="behaviour",
    title="A run that continues gets the same batches",
    property="The batches of an epoch must follow from the seed and the epoch's number alone. A run with the same seed must have the same ones, and a run that continues after any step must have those that it would have had.",
    instrument="python -c 'from policy import *; from labs.vla.dataset import *; loader = build_loader(demonstrations(30, 0), 4, rank=0, world_size=2, seed=0); print(*(list(epoch_of(loader, 1, done).batch_sampler) for done in (0, 2)), sep=\"\\n\")'",
)
def test_continued_run_gets_the_same_batches(submission: Submission, rng: Rng) -> None:
    continued, measured = [], []
    for world_size, one_loader in ((2, False), (1, True), (3, False)):
        asked = sizes(rng, world_size)
        if world_size == 3:
            asked["seed"] = 0
        each, noise = rounds(asked), rng.integer(0, 50)
        middle = rng.integer(1, each)
        starts = [0, middle, each, 2 * each + middle, 3 * each, EPOCHS * each - 1, EPOCHS * each, each + middle]
        runs = submission.observe(
            "trained_on", epochs=EPOCHS, noise=noise, starts=starts, one_loader=one_loader, **asked
        )
        for rank, results in enumerate(runs):
            whole, *others = (run["batches"] for run in results)
            for start, found in zip(starts[1:], others, strict=True):
                epoch, position = divmod(start, each)
                continued.append([world_size, epoch, position > 0, begins(found, whole, start, each)])
                where = f"process {rank} of {world_size} that continues after {start} of {EPOCHS * each} steps"
                measured.append((where, different(found, whole[start:])))
        repeated = orders(submission, rng, asked)
        for rank, batches in enumerate(repeated):
            where = f"process {rank} of {world_size} in a second run with the same seed, {asked['seed']}"
            measured.append((where, different(batches, runs[rank][0]["batches"])))
    expect(continued, "where continued runs begin")
    for where, others in measured:
        expect(others, f"the number of batches that are not those of the first run, for {where},").equals(0)
    reseeded = orders(submission, rng, {**asked, "seed": asked["seed"] + 1})
    share = kept(by_epoch(repeated, EPOCHS)[0], by_epoch(reseeded, EPOCHS)[0])
    expect(share, "the share of neighbours in a batch that share one again with another seed").at_most(KEPT)
    # Loaders of the same frames with the same seed, each in an epoch of its own, beside one in recorded order.
    late, early, middle = rng.integer(3, EPOCHS), rng.integer(1, 3), rng.integer(1, each)
    rank = rng.integer(0, asked["world_size"])
    recorded = {"frames": asked["frames"], "batch_size": asked["batch_size"]}
    loaders = [{**asked, "rank": rank}, {**asked, "rank": rank}, recorded]
    reads = submission.observe("read_in_turns", loaders=loaders, epoch=[late, early, 0], done=[middle, 0, 0])
    for found, epoch, done in ((reads[0], late, middle), (reads[1], early, 0)):
        wanted = repeated[rank][epoch * each + done : (epoch + 1) * each]
        where = f"`epoch_of(loader, {epoch}, {done})`, read in turns with other loaders in other epochs,"
        expect(different(found, wanted), f"the number of batches that are not those of `train`, for {where}").equals(0)


@check(
    kind="invariant",
    title="A step is a step of training",
    property="Each batch must be one clipped step in training mode, with the learning rate of its number among the steps of all epochs, also in a run that continues and in `fine_tune`. One loss is returned for each step.",
    instrument="debugkit.watch(model, optimizer)",
)
def test_each_batch_is_one_step(submission: Submission, rng: Rng) -> None:
    asked = {"frames": rng.integer(7, 9), "batch_size": 3, "seed": rng.integer(0, 1000)}
    recorded = submission.observe("trained_on", world_size=1, epochs=3, noise=1, starts=[0, 3], **asked)[0]
    for start, run in zip((0, 3), recorded, strict=True):
        expect(run["losses"], f"the number of losses of a run from step {start} on").equals(6 - start)
        expect(all(run["training"]), f"whether the model is in training mode from step {start} on").is_true()
    for start, louder in ((0, 1.0), (3, LOUDER)):
        found = submission.observe("trained", epochs=3, start=start, louder=louder, **asked)
        expect_reference(found, recorded[0]["batches"], asked, start, f"training from step {start} on", louder)
    found = submission.observe("fine_tuned", epochs=3, **asked)
    expect(found["ended"], "how `fine_tune` ended as the only process").equals("finished")
    expect_reference(found, recorded[0]["batches"], asked, 0, "`fine_tune`")


@check(
    kind="invariant",
    title="All frames are examined, in the recorded order",
    property="`frame_losses` must give the loss of each frame in evaluation mode and without a graph. A loader without a seed must keep the recorded order in every epoch.",
    instrument="python -c 'from policy import *; from labs.vla.dataset import demonstrations; print(frame_losses(build_policy(0), demonstrations(5, seed=0)))'",
)
def test_all_frames_are_examined(submission: Submission, rng: Rng) -> None:
    some, other = rng.integer(4, 7), rng.integer(1, 1000)
    for count, seed, louder in ((1, 0, 1.0), (some, other, 1.0), (2, other, LOUDEST)):
        found = submission.observe("examined", frames=count, seed=seed, louder=louder)
        policy, frames = with_louder_head(Policy.from_base(seed=seed), louder).eval(), demonstrations(count, seed)
        with torch.no_grad():
            wanted = torch.stack([policy(**collate(frames, [number])).loss for number in range(count)])
        said = f"the losses of {count} frame{'s' * (count > 1)} (mean {float(wanted.mean()):.3g})"
        expect_equal(found["losses"], wanted, said)
        expect(found["graph"], "the losses require a gradient,").is_false()
        expect(any(found["training"]), "the policy is in training mode, during the examination or after it,").is_false()
    for frames, size, epoch, done in ((7, 3, 0, 0), (rng.integer(8, 12), 4, rng.integer(1, 9), 1), (2, 5, 2, 0)):
        seen = submission.observe("recorded_order", frames=frames, batch_size=size, epoch=epoch, done=done)
        found = seen["batches"]
        wanted = [list(range(first, min(first + size, frames))) for first in range(done * size, frames, size)]
        expect(found, f"the batches of {frames} frames in recorded order, in epoch {epoch}").equals(wanted)
        expect(seen["number"], f"how many batches are left of {frames} frames, as the loader tells it,").equals(
            len(wanted)
        )


@check(
    kind="invariant",
    title="The policy is the same",
    property="The policy must be the pretrained base with all its parameters trained, and another image or instruction must change the action.",
    instrument="debugkit.check(policy, batch, select=['DK113', 'DK306'])",
)
def test_policy_is_the_same(submission: Submission, rng: Rng) -> None:
    expect_stock_parameters(submission)
    expect_stock_prediction(submission, rng, rtol=1e-3, atol=1e-5)


@check(
    kind="outcome",
    title="Two processes learn all frames",
    property=f"After a fine-tuning by two processes, both must have the same weights, and the mean loss of the {UNLEARNT} frames that were learnt worst must be at most {LOSS_BAR}.",
    instrument="lab run 83",
)
def test_two_processes_learn_all_frames(submission: Submission, seed: int) -> None:
    ranks = submission.observe("two_processes", seed=seed)
    ended = ", ".join(f"process {rank} {result['ended']}" for rank, result in enumerate(ranks))
    expect(ended, "how the two processes ended").equals(BOTH_FINISHED)
    first, second = (rank["weights"] for rank in ranks)
    apart = sum(not torch.equal(first[name], second[name]) for name in first)
    expect(apart, "the number of parameters that differ between the two processes").equals(0)
    worst = ranks[0]["frame_losses"].sort().values[-UNLEARNT:]
    expect(worst.mean(), f"the mean loss of the {UNLEARNT} frames that were learnt worst").at_most(LOSS_BAR)


def sizes(rng: Rng, world_size: int) -> dict[str, int]:
    """A number of frames that is some rounds of batches, and a few frames more."""
    batch_size = rng.integer(4, 7)
    each = world_size * batch_size
    whole = LEAST_FRAMES // each + rng.integer(1, 3)
    frames = whole * each + rng.integer(1, each)
    return {"frames": frames, "batch_size": batch_size, "world_size": world_size, "seed": rng.integer(0, 10_000)}


def one_too_few(asked: Mapping[str, int]) -> dict[str, int]:
    """The same with one frame less than another round needs."""
    return {**asked, "frames": (rounds(asked) + 1) * asked["batch_size"] * asked["world_size"] - 1}


def rounds(asked: Mapping[str, int]) -> int:
    """The batches that a process has in an epoch."""
    return asked["frames"] // (asked["batch_size"] * asked["world_size"])


def ending(rank: Mapping[str, Any]) -> str:
    """How a process ended, in words."""
    if rank["ended"] == "finished":
        return f"finished its {rank['steps']} batches"
    if rank["ended"] == "still waiting":
        return f"did {rank['steps']} batches and still waits, in `{rank['waits']}`"
    return str(rank["ended"])


def processes(count: int) -> str:
    return "one process" if count == 1 else f"{count} processes"


def orders(submission: Submission, rng: Rng, asked: Mapping[str, int], *, epochs: int = EPOCHS) -> list[Batches]:
    """The batches of each process in a run that is not stopped, with any random states."""
    runs = submission.observe("trained_on", epochs=epochs, noise=rng.integer(0, 50), **asked)
    return [rank[0]["batches"] for rank in runs]


def expect_reference(
    found: Mapping[str, Any],
    batches: Batches,
    asked: Mapping[str, int],
    start: int,
    what: str,
    louder: float = 1.0,
) -> None:
    """Losses, gradients and weights must be those of a healthy loop over the same batches."""
    frames = demonstrations(asked["frames"], asked["seed"])
    policy = with_louder_head(Policy.from_base(seed=asked["seed"]), louder)
    before = {name: value.detach().clone() for name, value in policy.named_parameters()}
    optimizer = torch.optim.AdamW(policy.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    losses, norms = [], []

    def note(*_: Any) -> None:
        norms.append({name: float(p.grad.norm()) for name, p in policy.named_parameters() if p.grad is not None})

    optimizer.register_step_pre_hook(note)
    for step in range(start, len(batches)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, len(batches), 1e-3)
        losses.append(train_step(policy, optimizer, collate(frames, batches[step])))
    expect(len(found["losses"]), f"the number of losses of {what}").equals(len(losses))
    expect_equal(torch.tensor(found["losses"]), torch.tensor(losses), f"the losses of {what}")
    for step, (mine, wanted) in enumerate(zip(found.get("norms", ()), norms, strict=False), start=start):
        other = {name for name in wanted if not abs(mine.get(name, 0.0) - wanted[name]) <= 0.02 * wanted[name] + 1e-4}
        expect(listed(other), f"which gradients are clipped otherwise in step {step} of {what}").equals("nothing")
    moved = [found["weights"][name] - value for name, value in before.items()]
    wanted = [value.detach() - before[name] for name, value in policy.named_parameters()]
    off = relative_error(*(torch.cat([value.flatten() for value in values]) for values in (moved, wanted)))
    expect(off, f"the relative error of how far {what} moves the weights").at_most(10 * TOLERANCE)


def _kept(evidence: Mapping[str, Any], world_size: int) -> list[float]:
    return evidence[f"{ORDER}/neighbours kept by {processes(world_size)}"]


def _orders_are_new(evidence: Mapping[str, Any]) -> bool:
    return all(share <= KEPT for share in _kept(evidence, 1))


def _used_twice(evidence: Mapping[str, Any]) -> list[int]:
    """For each epoch of two and of three processes, the frames that are used twice."""
    return [twice for count in (2, 3) for twice in evidence[f"{DIVIDED}/frames used twice by {processes(count)}"]]


@wrong_fix(
    "own_order_for_each_process",
    says="Each process now has an order of its own, and takes its turns in that. The processes no longer divide one order: in every epoch some frames are used by two of them, and others by none.",
)
def recognise_own_orders(evidence: Mapping[str, Any]) -> bool:
    continued = all(where == "where it should" for *_, where in evidence[CONTINUED])
    return _orders_are_new(evidence) and continued and all(_used_twice(evidence))


@wrong_fix(
    "starts_again_after_a_restart",
    says="The sampler finds its next order from what it did before. A run that continues has a new sampler, which has done nothing yet: it begins with the order of epoch 0 again.",
)
def recognise_new_start(evidence: Mapping[str, Any]) -> bool:
    later = [where for world, epoch, _, where in evidence[CONTINUED] if world > 1 and 0 < epoch < EPOCHS]
    return _orders_are_new(evidence) and not any(_used_twice(evidence)) and set(later) == {"in epoch 0"}


@wrong_fix(
    "keep_the_tail",
    says="The frames at the end of the order are now used, in a batch that is not full. But the order is still the same in every epoch, and so are the batches.",
)
def recognise_kept_tail(evidence: Mapping[str, Any]) -> bool:
    short = evidence[f"{DIVIDED}/sizes of incomplete batches with one process"]
    return all(share == 1 for share in _kept(evidence, 1)) and any(short)


@wrong_fix(
    "order_of_the_batches",
    says="The batches now come in another order in every epoch, but they are the same batches: the same frames share each of them.",
)
def recognise_shuffled_batches(evidence: Mapping[str, Any]) -> bool:
    moved = evidence[f"{ORDER}/batches that are not those of the epoch before, 1"]
    return all(share == 1 for share in _kept(evidence, 1)) and all(moved)


@wrong_fix(
    "number_of_the_step",
    says="The order now follows from the number of the step at which the loop begins to read it. A run that continues in the middle of an epoch begins at another step, so it gets another order for the rest of that epoch.",
)
def recognise_step(evidence: Mapping[str, Any]) -> bool:
    at = {
        middle: {where for _, epoch, inside, where in evidence[CONTINUED] if inside == middle and epoch < EPOCHS}
        for middle in (False, True)
    }
    return at == {False: {"where it should"}, True: {"elsewhere"}}


@wrong_fix(
    "every_batch_of_each_process",
    says="The epoch reaches the order now. But each process keeps all of its batches, also those of a round that is not complete. So one process has a batch more in every epoch, and the other one is done first: the first then waits forever for a process that takes no further step.",
)
def recognise_every_batch(evidence: Mapping[str, Any]) -> bool:
    batches = evidence[f"{UNEVEN}/the batches of each process in an epoch"]
    ends = evidence[f"{UNEVEN}/how far each process came"]
    done = UNEVEN_EPOCHS * min(batches)
    first = batches[0] == batches[1] + 1 and ends == [["still waiting", done], ["finished", done]]
    return first and _orders_are_new(evidence)
