"""What must hold for data sets that read from videos. Runs in the grader's process, without the learner's code.

Two numbers decide. How many decoded images are alive after every read: each storage counts, whatever refers to it. And
how many segments were decoded for these reads: a simulation here says how many the docstring allows.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labs import eviction
from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, listed, padded_batch
from labs.reference_training import train_step, with_dropout
from labs.stock_policy import expect_stock_prediction
from labs.vla.language import COLOURS, INSTRUCTION_TEMPLATES, tokenize
from labs.vla.policy import Policy
from labs.vla.randomness import private_randomness
from labs.vla.vision import normalize_pixels

HORIZON, SEGMENT = 4, 8
ALLOWED = 8 * 2 * SEGMENT
"""Images: 8 readers with 2 segments each."""
TOGETHER = 6
HEAD_SCALE = 30.0
"""Makes the gradients longer than the norm to which they are clipped."""
LEARNT = 0.75
"""The loss on other recordings, after an epoch as a fraction of that before: 0.56 for the solution, with a deviation of 0.03."""
Reads = list[tuple[int, int]]


@check(
    kind="behaviour",
    title="Memory does not depend on the number of episodes",
    property="After every read at most 16 decoded segments (128 images) may be alive, for a thousand episodes, for a long one, and when episodes are read again.",
    instrument="lab run 64",
)
def test_memory_is_bounded(submission: Submission, rng: Rng) -> None:
    many, long, again = [rng.integer(1, 25) for _ in range(1000)], [900, 12], [24] * 20
    situations = {
        "1,000 episodes": (many, [one_of(rng, many, int(episode)) for episode in rng.permutation(1000)]),
        "a long episode": (long, [one_of(rng, long, int(rng.integer(0, 8) == 0)) for _ in range(150)]),
        "20 episodes, again and again": (again, [one_of(rng, again, turn % 20) for turn in range(160)]),
    }
    seen = {
        name: submission.observe("reads", lengths=[lengths], order=[(0, index) for index in order])
        for name, (lengths, order) in situations.items()
    }
    expect({name: int(one["alive"].max()) for name, one in seen.items()}, "most alive")  # for the recognisers
    for name, one in seen.items():
        for reads in (100, len(one["alive"])):
            said = f"the largest number of decoded images alive in {reads:,} reads from {name}"
            expect(int(one["alive"][:reads].max()), said).at_most(ALLOWED)


@check(
    kind="behaviour",
    title="What was used last is not decoded again",
    property="Images of the 8 episodes read last, from the 2 segments of each that were read last, must be returned without decoding, whatever else was read before.",
    instrument="python -c 'from policy import *; decode = Recording.decode; Recording.decode = lambda *given: print(given[1]) or decode(*given); from labs.recordings import record; data = RecordedFrames(record(2, 0)); [data[0] for _ in range(3)]'",
)
def test_kept_images_are_not_decoded_again(submission: Submission, rng: Rng) -> None:
    seen = {name: decoded(submission, lengths, order) for name, (lengths, order) in access_patterns(rng).items()}
    expect(seen, "patterns")  # for the recognisers
    for name, counts in seen.items():
        said = f"the number of segments decoded for {counts['reads']} reads of {name}"
        expect(counts["found"], said).at_most(counts["first"])


@check(
    kind="invariant",
    title="Data sets share nothing, and leave nothing behind",
    property="Each data set must keep its own 8 readers, also beside another one of the same recordings, return its own images, and free all images as soon as it is dropped, without the garbage collector.",
    instrument="python -c 'import weakref; from policy import *; from labs.recordings import record; data = RecordedFrames(record(2, 0)); data[0]; ref = weakref.ref(data); del data; print(ref())'",
)
def test_datasets_are_separate(submission: Submission, rng: Rng) -> None:
    lengths = [[16] * 8, [16] * 8]
    order = [(which, one_of(rng, lengths[which], turn % 8)) for turn in range(48) for which in (0, 1)]
    seen = submission.observe("reads", lengths=lengths, order=order)
    wanted = eviction.decoded(lengths, order)[-1]
    expect({"decoded": int(seen["decoded"][-1]), "wanted": wanted, "left": seen["left"][-1]}, "two data sets")
    # Each data set reads two of an episode's four segments, and the same two again.
    order = [
        (which, 32 * episode + 16 * which + 8 * segment + rng.integer(0, 8))
        for _ in range(2)
        for episode in range(8)
        for which in (0, 1)
        for segment in (0, 1)
    ]
    same = submission.observe("reads", lengths=[[32] * 8] * 2, order=order, same=True)
    said = "the number of segments decoded for 64 reads from two data sets of the same recordings in turn"
    expect(int(same["decoded"][-1]), said).at_most(eviction.decoded([[32] * 8] * 2, order)[-1])
    said = "the number of segments decoded for 96 reads from two data sets in turn, 8 episodes each,"
    expect(int(seen["decoded"][-1]), said).at_most(wanted)
    expect(
        seen["left"][0],
        "the number of images alive after the first of two data sets was dropped, before garbage is collected,",
    ).at_most(ALLOWED)
    expect(
        seen["left"][-1], "the number of images alive after both data sets were dropped, before garbage is collected,"
    ).equals(0)


@check(
    kind="invariant",
    title="An item is the recorded frame",
    property="Image, instruction, state, actions and padding must be those of the recorded frame, also after the data set was pickled; an index outside of it must raise IndexError.",
    instrument="python -c 'from policy import *; from labs.recordings import record; print(RecordedFrames(record(1, 0))[0])'",
)
def test_items_are_the_recorded_frames(submission: Submission, rng: Rng) -> None:
    recordings = [[random_recording(rng, rng.integer(1, 12)) for _ in range(10)] for _ in range(2)]
    lengths = [[len(one["state"]) for one in own] for own in recordings]
    every = [(which, index) for which, own in enumerate(lengths) for index in range(sum(own))]
    order = [every[int(number)] for number in rng.permutation(len(every))]
    for pickled_at in (None, 0, len(order) // 2):
        seen = submission.observe("items", recordings=recordings, order=order, pickled_at=pickled_at)
        when = {None: "", 0: "before the first read"}.get(pickled_at, "after reading from it")
        expect(seen["raised"] or "nothing", f"what pickling a data set {when} raised").equals("nothing")
        expect(len(seen["items"]), "the number of items").equals(len(order))
        for (which, index), item in zip(order, seen["items"], strict=True):
            episode, step = place(lengths[which], index)
            said = f"of step {step} of {len(recordings[which][episode]['state'])}{' after pickling' * bool(when)}"
            for name, value in row(recordings[which][episode], step).items():
                expect(item[name], f"`{name}` {said}").close_to(value, rtol=1e-5, atol=1e-6)
            extra = item.keys() ^ row(recordings[which][episode], step).keys()
            expect(listed(extra), "what an item lacks or has too many").equals("nothing")
    for own in (lengths[0], [2 * SEGMENT]):  # of one episode of whole segments, -1 is the last frame if nothing raises
        total = sum(own)
        seen = submission.observe("bounds", lengths=own)
        expect(seen["length"], "the length of a data set").equals(total)
        for index, raised in seen["raised"].items():
            wanted = "nothing" if 0 <= index < total else "IndexError"
            expect(raised or "nothing", f"what the index {index} of a data set of {total} frames raises").equals(wanted)


@check(
    kind="invariant",
    title="Every worker is bounded, and stays",
    property="In each of the loader's processes at most 128 decoded images may be alive. The number of processes must be the requested one, and the same processes must read every epoch.",
    instrument="lab run 64",
)
def test_workers_are_bounded(submission: Submission, rng: Rng) -> None:
    lengths = [rng.integer(9, 25) for _ in range(20)]
    for asked, workers in ((None, 2), (3, 3), (1, 1), (0, 0)):
        seen = submission.observe("loaded", lengths=lengths, batch_size=8, seed=rng.seed(), epochs=2, workers=asked)
        said = f"a loader with {workers} worker{'s' * (workers != 1)}"
        for worker, alive in sorted(seen["alive"].items()):
            expect(alive, f"the most decoded images alive in worker {worker} of {said}").at_most(ALLOWED)
        expect(seen["running"], f"the number of processes behind {said}, after an epoch").equals(workers)
        first, second = seen["processes"]
        expect(len(first), f"the number of processes that read for {said}").equals(max(workers, 1))
        new = len(set(second) - set(first))
        expect(new, f"the number of new processes in the second epoch of {said}").equals(0)
        expect(seen["main"] in first, f"the training process reads, in {said},").equals(workers == 0)


@check(
    kind="invariant",
    title="Six episodes at a time, every frame once",
    property="An epoch must have every frame once, six random episodes at a time, their frames in random order. Epochs must differ, and the same seed must repeat them.",
    instrument="python -c 'from policy import *; from labs.recordings import record; print(list(FewEpisodesAtATime(RecordedFrames(record(9, 0)), 0)))'",
)
def test_episodes_are_shuffled_six_at_a_time(submission: Submission, rng: Rng) -> None:
    # The last group has four episodes: the share below varies too much in a group of two.
    lengths = [rng.integer(12, 25) for _ in range(3 * TOGETHER + 4)]
    seed, size = rng.integer(0, 1000), rng.integer(5, 9)
    asked = {"lengths": lengths, "batch_size": size, "workers": 0}
    seen = submission.observe("loaded", seed=seed, epochs=2, **asked)
    total, orders = sum(lengths), []
    for epoch, frames in enumerate(seen["frames"], start=1):
        there = set(frames.tolist())
        expect(len(set(range(total)) - there), f"the number of frames that epoch {epoch} leaves out").equals(0)
        expect(len(frames) - total, f"the number of frames that epoch {epoch} repeats").equals(0)
        episodes = [place(lengths, int(index))[0] for index in frames]
        orders.append(list(dict.fromkeys(episodes)))
        first = 0
        for start in range(0, len(lengths), TOGETHER):
            length = sum(lengths[episode] for episode in orders[-1][start : start + TOGETHER])
            mixed = len(set(episodes[first : first + length]))
            expect(mixed, f"the number of episodes in {length} frames of epoch {epoch}, from {first} on,").equals(
                min(TOGETHER, len(lengths) - start)
            )
            runs = sum(before != after for before, after in itertools.pairwise(episodes[first : first + length]))
            if mixed > 1:
                expect(runs / length, f"the share of frames of epoch {epoch} that follow another episode").above(0.3)
            first += length
        *full, rest = seen["sizes"][epoch - 1]
        expect(sorted({*full}), f"the sizes of all batches but the last, for batches of {size},").equals([size])
        expect(rest, f"the size of the last batch of {total} frames").equals((total - 1) % size + 1)
    expect(seen["length"], "the number of batches that the loader announces").equals(-(-total // size))
    expect(sorted(orders[0]) != orders[0], "the episodes come in random order,").is_true()
    expect(bool((seen["frames"][0] != seen["frames"][1]).any()), "the second epoch has another order,").is_true()
    again, other = (submission.observe("loaded", seed=one, epochs=2, **asked)["frames"] for one in (seed, seed + 1))
    for epoch in (0, 1):
        expect(again[epoch], f"the frames of epoch {epoch + 1} with the same seed").equals(seen["frames"][epoch])
    expect(bool((other[0] != seen["frames"][0]).any()), "another seed gives another order,").is_true()


@check(
    kind="invariant",
    title="Training is as before",
    property="Losses, clipped gradients and weights must be those of the reference's loop in training mode.",
    instrument="with debugkit.watch(policy, optimizer) as run: fine_tune(policy, loader, 1)",
)
def test_training_equals_the_reference(submission: Submission, rng: Rng) -> None:
    for epochs, scale in ((rng.integer(2, 4), 1.0), (1, HEAD_SCALE)):
        batches, seed = [padded_batch(rng, size) for size in (5, rng.integer(2, 7), 1)], rng.seed()
        seen = submission.observe("tuned", batches=batches, epochs=epochs, seed=seed, head_scale=scale)
        wanted = reference_training(batches * epochs, seed, scale)
        said = f"in a training of {3 * epochs} steps{' with long gradients' * (scale > 1)}"
        expect(len(seen["losses"]), f"the number of losses {said}").equals(3 * epochs)
        for step, (loss, norms) in enumerate(zip(seen["losses"], seen["norms"], strict=True), start=1):
            expect(loss, f"the loss of step {step} {said}").close_to(wanted.losses[step - 1], rtol=5e-3)
            other = {
                name
                for name, norm in wanted.norms[step - 1].items()
                if not abs(norms.get(name, 0.0) - norm) <= 2e-2 * norm + 1e-4
            }
            expect(listed(other), f"what has another gradient at step {step} {said}").equals("nothing")
        # In one norm: AdamW steps by the gradient's sign, and rounding alone decides it for an entry that is nearly zero.
        off = sum(float((seen["weights"][name] - after).square().sum()) for name, after in wanted.after.items())
        way = sum(float((after - wanted.before[name]).square().sum()) for name, after in wanted.after.items())
        share = (off / way) ** 0.5
        expect(share, f"the weights' distance from the reference, as a share of how far they moved, {said},").at_most(
            0.02
        )


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="The policy must be the pretrained base with a head drawn from the seed; another image and another instruction must each change its actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_stock_prediction(submission, rng, rtol=1e-4, atol=1e-5)
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="Training on recordings learns, and the workers stay small",
    property=f"Over an epoch of 60 episodes no worker may have more than {ALLOWED} decoded images alive, and the loss on other recordings must fall to at most {LEARNT:.0%}.",
    instrument="lab run 64",
)
def test_training_learns_and_stays_small(submission: Submission, seed: int) -> None:
    run = submission.observe("trained", seed=seed, episodes=60)
    for worker, alive in sorted(run["alive"].items()):
        expect(alive, f"the most decoded images alive in worker {worker}").at_most(ALLOWED)
    share = run["after"] / run["before"]
    expect(share, "the loss on other recordings after training, as a fraction of that before,").at_most(LEARNT)


@dataclass
class Training:
    """The losses and gradient norms of all steps, and the weights before the first and after the last."""

    losses: list[float]
    norms: list[dict[str, float]]
    before: dict[str, Tensor]
    after: dict[str, Tensor]


def reference_training(batches: list[dict[str, Tensor]], seed: int, scale: float) -> Training:
    """The training that the probe `tuned` observes, by the reference's loop."""
    policy = with_dropout(Policy.from_base(seed=seed))
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(scale)
    before = {name: value.detach().clone() for name, value in policy.named_parameters()}
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    losses, norms = [], []
    with private_randomness(seed):
        for batch in batches:
            losses.append(train_step(policy, optimizer, batch))  # leaves the clipped gradients
            norms.append({name: float(p.grad.norm()) for name, p in policy.named_parameters() if p.grad is not None})
    return Training(losses, norms, before, {name: value.detach() for name, value in policy.named_parameters()})


def access_patterns(rng: Rng) -> dict[str, tuple[list[int], list[int]]]:
    """By name the lengths of a data set's episodes, and the frames that are read."""
    eight, many = [16] * 8, [16] * 31
    long, mixed = [64], [rng.integer(1, 25) for _ in range(12)]
    home, away = 3, [episode for episode in range(31) if episode != 3]
    visits = [int(episode) for turn in away for episode in (home, turn)]
    back = [
        *range(9),
        *range(7, 0, -1),
    ]  # the last eight of nine, and with whatever else is evicted, one is decoded again
    beside = [16] * 7 + [8 * 20]
    seven = [one_of(rng, beside, episode) for episode in range(7)]
    through = [16 * 7 + 8 * segment + rng.integer(0, 8) for segment in range(20)]
    walk = torch.tensor([rng.choice([-1, 0, 0, 1]) for _ in range(80)]).cumsum(0) % 8
    return {
        "8 episodes in turn": (eight, [one_of(rng, eight, turn % 8) for turn in range(96)]),
        "an episode between visits to 30 others": (many, [16 * episode + rng.integer(0, 8) for episode in visits]),
        "9 episodes and 7 of them backwards": (many, [16 * episode + rng.integer(0, 8) for episode in back]),
        "7 episodes before and after 20 segments of an eighth": (beside, [*seven, *through, *seven]),
        "neighbouring segments of one episode": (long, [8 * int(segment) + rng.integer(0, 8) for segment in walk]),
        "12 episodes in random order": (mixed, [one_of(rng, mixed, rng.integer(0, 12)) for _ in range(160)]),
    }


def decoded(submission: Submission, lengths: list[int], frames: list[int]) -> dict[str, int]:
    """How many segments were decoded, and how many it would be with each way to evict."""
    order = [(0, index) for index in frames]
    seen = submission.observe("reads", lengths=[lengths], order=order)
    ways = {"first": eviction.first, "last": eviction.last, "everything": eviction.everything}
    return {
        "reads": len(order),
        "found": int(seen["decoded"][-1]),
        "as opened": eviction.decoded([lengths], order, reorder=False)[-1],
        **{name: eviction.decoded([lengths], order, way)[-1] for name, way in ways.items()},
    }


def one_of(rng: Rng, lengths: Sequence[int], episode: int) -> int:
    """A random frame of that episode, as an index in the data set."""
    return sum(lengths[:episode]) + rng.integer(0, lengths[episode])


def place(lengths: Sequence[int], index: int) -> tuple[int, int]:
    """The episode of a frame, and its step there."""
    for episode, length in enumerate(lengths):
        if index < length:
            return episode, index
        index -= length
    raise IndexError(index)


def random_recording(rng: Rng, length: int) -> dict[str, Any]:
    """The fields of a recording with random images."""
    sentence = rng.choice(INSTRUCTION_TEMPLATES).format(colour=rng.choice(COLOURS))
    images = rng.integers(0, 256, length, 64, 64, 3).to(torch.uint8)
    return {
        "instruction": sentence,
        "state": rng.normal(length, 3),
        "action": rng.normal(length, 3),
        "images": images,
    }


def row(recording: Mapping[str, Any], step: int) -> dict[str, Tensor]:
    """The item of a recording's step."""
    input_ids, attention_mask = tokenize([recording["instruction"]])
    length = len(recording["state"])
    steps = [min(step + ahead, length - 1) for ahead in range(HORIZON)]
    return {
        "pixel_values": normalize_pixels(recording["images"][step : step + 1])[0],
        "input_ids": input_ids[0],
        "attention_mask": attention_mask[0],
        "state": recording["state"][step],
        "action": recording["action"][steps],
        "action_is_pad": torch.tensor([step + ahead >= length for ahead in range(HORIZON)]),
    }


BOUNDED = "test_memory_is_bounded/most alive"
PATTERNS = "test_kept_images_are_not_decoded_again/patterns"
SEPARATE = "test_datasets_are_separate/two data sets"


def bounded(evidence: Mapping[str, Any]) -> bool:
    """Whether the memory of one data set does not grow."""
    return max(evidence[BOUNDED].values()) <= ALLOWED


def decodes_as(evidence: Mapping[str, Any], way: str) -> bool:
    """Whether each pattern was decoded as often as with that way to evict, and some more often than allowed."""
    patterns = evidence[PATTERNS].values()
    return all(one["found"] == one[way] for one in patterns) and any(one["found"] > one["first"] for one in patterns)


@wrong_fix(
    "no_cache",
    says="Memory no longer grows because nothing is kept: each image that is read decodes its whole segment, eight images for one.",
)
def recognise_no_cache(evidence: Mapping[str, Any]) -> bool:
    return bounded(evidence) and all(one["found"] == one["reads"] for one in evidence[PATTERNS].values())


@wrong_fix(
    "first_opened_first_closed",
    says="Memory is bounded, but the reader that is closed is the one that was opened first, even if it was used a moment ago.",
)
def recognise_first_in(evidence: Mapping[str, Any]) -> bool:
    return bounded(evidence) and decodes_as(evidence, "as opened")


@wrong_fix(
    "newest_closed",
    says="Memory is bounded, but the reader that is closed is the one that was used last. The others stay open, needed or not, and all further episodes share one place.",
)
def recognise_newest(evidence: Mapping[str, Any]) -> bool:
    return bounded(evidence) and decodes_as(evidence, "last")


@wrong_fix(
    "all_closed_when_full",
    says="Memory is bounded, but the ninth episode closes all eight readers, also those that are in use: their segments are decoded once more.",
)
def recognise_all_closed(evidence: Mapping[str, Any]) -> bool:
    return bounded(evidence) and decodes_as(evidence, "everything")


@wrong_fix(
    "outlives_the_dataset",
    says="Memory is bounded, but the readers belong to the class or the module, as those of an `lru_cache` on a method do: all data sets share one bound, and a data set that is no longer used stays in memory.",
)
def recognise_outlives(evidence: Mapping[str, Any]) -> bool:
    found = evidence[SEPARATE]
    return bounded(evidence) and found["left"] > 0 and found["decoded"] > found["wanted"]
