"""Requirements for the validation metrics of several processes. Runs in the grader's process; judges data only.

The reference is the healthy policy in one process: it computes the loss of each frame of both processes, and takes the
means. Two processes must log the same numbers, whichever of them has frames of a robot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_frames_to_be_independent, listed, padded_batch
from labs.policy_comparison import with_louder_head
from labs.process_endings import BOTH_FINISHED, endings
from labs.stock_policy import expect_stock_parameters, expect_stock_prediction
from labs.validation_means import (
    ABSENT,
    ALL,
    BATCHES,
    COUNTED,
    EVEN,
    EVERY,
    LEARNING_RATE,
    NAMES,
    NO_NUMBER,
    NOBODY,
    ONLY_0,
    ONLY_1,
    ROUNDED,
    SHARES,
    TURNS,
    WHOLE,
    Losses,
    Run,
    by_name,
    described,
    drawn,
    expect_mean,
    in_order,
    mean_of_all,
    reference_training,
    with_robots,
)
from labs.vla.policy import Policy
from labs.vla.training import learning_rate_at

EPOCHS = 2
OPTIMIZER = {"type": "AdamW", "initial_lr": LEARNING_RATE, "betas": (0.9, 0.95), "weight_decay": 0.01}
LOSS_BAR = 1.0
LOUDER = 30.0
"""Outputs this large exceed the range of the demonstrated actions. Nothing may limit them."""


@check(
    kind="behaviour",
    title="Training in two processes goes on after each validation",
    property=f"Whichever process has no frames of a robot, both processes must train {EPOCHS} epochs, and log the same validation losses after each: the means over the frames of this validation alone.",
    instrument="lab run 92",
)
def test_both_processes_finish(submission: Submission, rng: Rng) -> None:
    seed, order = rng.seed(), rng.permutation(3)
    shares = {case: drawn(rng, SHARES[case], order) for case in (ONLY_0, ONLY_1)}
    training = [[with_robots(rng, [0] * rng.integer(2, 5)) for _ in range(2)] for _ in (0, 1)]
    asked = [{"training": training, "validation": share, "epochs": EPOCHS} for share in shares.values()]
    seen = submission.observe("fitted", runs=asked, seed=seed)
    for case, ranks in zip(shares, seen, strict=True):
        said = case.format(robot="one robot")
        expect(endings(ranks), f"how two processes ended that train and validate, where {said},").equals(BOTH_FINISHED)
        for rank, result in enumerate(ranks):
            expect(len(result["values"]), f"the number of validations of process {rank}, where {said},").equals(EPOCHS)
    for case, ranks in zip(shares, seen, strict=True):
        for epoch in range(EPOCHS):
            of_0, of_1 = ({name: rank["values"][epoch].get(name) for name in NAMES} for rank in ranks)
            lacking = {name for name in NAMES if of_0[name] is None or of_1[name] is None}
            said = f"after epoch {epoch}, where {case.format(robot='one robot')},"
            expect(listed(lacking), f"what a process did not log {said}").equals("nothing")
            expect(of_1, f"what process 1 logged {said}").close_to(of_0, rtol=1e-6)
    for case, ranks in zip(shares, seen, strict=True):
        losses = [[by_name(with_weights(ranks[0]["weights"]), batch) for batch in share] for share in shares[case]]
        said = f"after epoch {EPOCHS - 1}, where {case.format(robot='one robot')},"
        wanted = {name: mean_of_all(losses, name) for name in NAMES}
        given = {name: ranks[0]["values"][-1][name] for name in NAMES}
        expect(given, f"what process 0 logged {said}").close_to(wanted, rtol=1e-3)


@check(
    kind="behaviour",
    title="A validation loss is the mean over the frames of both processes",
    property="Every process must log the mean over all frames of both processes, for all frames and for each robot. A robot without any frame has no number: NaN, or no entry.",
    instrument='python -c \'from policy import *; from labs.lightning_processes import *; from labs.processes import in_processes; from labs.vla.dataset import collate, demonstrations; b = [collate(demonstrations(n, n), range(n)) | {"robot": torch.arange(n) % r} for n, r in ((9, 3), (3, 2))]; print(*((one.how, one.results) for one in in_processes(lambda rank, report: report(trainer_of(rank, 2, logger=False).validate(build_module(0), ready([b[rank]]), verbose=False)), 2)), torch.cat([build_module(0).frame_losses(x) for x in b]).mean(), sep="\\n")\'',
)
def test_logs_the_mean_of_all_frames(submission: Submission, rng: Rng) -> None:
    seed, order = rng.seed(), rng.permutation(3)
    policy = Policy.from_base(seed=seed).eval()
    shares = {case: drawn(rng, share, order) for case, share in SHARES.items()}
    nan, robot_of_nan = with_a_nan(rng, drawn(rng, SHARES[EVERY], order))
    *seen, with_nan = submission.observe("validated", runs=[*shares.values(), nan], seed=seed)
    told = {}
    for case, ranks in zip(shares, seen, strict=True):
        losses = [[by_name(policy, batch) for batch in share] for share in shares[case]]
        logged = [rank["values"][0] if rank["values"] else {} for rank in ranks]
        told[case] = {name: [described(one.get(name), losses, name) for one in logged] for name in in_order(order)}
        expect(endings(ranks), f"how they ended, where {case}")
        expect(told[case], f"the means, where {case}")
    for case, ranks in zip(shares, seen, strict=True):
        robot = NAMES[1 + int(order[2])].partition("/")[2]
        losses = [[by_name(policy, batch) for batch in share] for share in shares[case]]
        said = case.format(robot=f"`{robot}`")
        expect(endings(ranks), f"how two processes ended that validate, where {said},").equals(BOTH_FINISHED)
        for name, words in told[case].items():
            for rank, word in enumerate(words):
                expect_mean(word, ranks[rank]["values"][0].get(name), mean_of_all(losses, name), name, rank, said)
        kept = {name: value for row in ranks[0]["recorded"] for name, value in row.items() if name in NAMES}
        finite = {name: mean_of_all(losses, name) for name in NAMES if mean_of_all(losses, name) is not None}
        expect({name: kept.get(name) for name in finite}, f"what the logger of process 0 got, where {said},").close_to(
            finite, rtol=1e-4
        )
    expect(endings(with_nan), "how two processes ended that validate, where the loss of one frame is NaN,").equals(
        BOTH_FINISHED
    )
    losses = [[by_name(policy, batch) for batch in share] for share in nan]
    for rank, result in enumerate(with_nan):
        expect_nan_in_its_own_means(result["values"][0], losses, robot_of_nan, f"process {rank}")


@check(
    kind="behaviour",
    title="One process logs the same numbers",
    property="One process that validates on the frames of both must log the same means. If the loss of one frame is NaN, `validation_loss` must be NaN, and the losses of the other robots must be their means.",
    instrument="python -c 'from policy import *; from labs.lightning_processes import *; from labs.vla.dataset import collate, demonstrations; b = [collate(demonstrations(n, n), range(n)) | {\"robot\": torch.arange(n) % r} for n, r in ((9, 3), (3, 2))]; print(trainer_of(0, 1, logger=False).validate(build_module(0), ready(b), verbose=False), torch.cat([build_module(0).frame_losses(x) for x in b]).mean())'",
)
def test_one_process_logs_the_same(submission: Submission, rng: Rng) -> None:
    seed, order = rng.seed(), rng.permutation(3)
    policy = Policy.from_base(seed=seed).eval()
    cases = (EVERY, TURNS, ONLY_0, NOBODY)
    shares = {case: [batch for share in drawn(rng, SHARES[case], order) for batch in share] for case in cases}
    seen = submission.observe("alone", runs=list(shares.values()), seed=seed)
    told: list[tuple[str, list[Any]]] = []
    for (case, batches), result in zip(shares.items(), seen, strict=True):
        losses = [[by_name(policy, batch) for batch in batches]]
        said = "where no frame is of one robot" if case == NOBODY else f"of {len(batches)} batches"
        for name in in_order(order):
            value = result["values"][0].get(name)
            told.append((described(value, losses, name), [value, mean_of_all(losses, name), name, None, said]))
    expect([word for word, _ in told], "the means in one process")
    others = {name for result in seen for name in result["values"][0] if name not in NAMES}
    expect(sorted(others), "the other names in one process")
    for word, rest in told:
        expect_mean(word, *rest)
    (spoiled,), robot_of_nan = with_a_nan(rng, [shares[EVERY]])
    (result,) = submission.observe("alone", runs=[spoiled], seed=seed)
    losses = [[by_name(policy, batch) for batch in spoiled]]
    expect_nan_in_its_own_means(result["values"][0], losses, robot_of_nan, "one process")


@check(
    kind="invariant",
    title="Training is unchanged",
    property="Both processes must take the same steps: AdamW with warm-up and a cosine schedule on the mean of both batches' losses. Each logs its own training loss, and process 0 the learning rate.",
    instrument="debugkit.watch(module, select=['DK802'])",
)
def test_training_equals_the_reference(submission: Submission, rng: Rng) -> None:
    seed, steps = rng.seed(), rng.integer(3, 5)
    training = [[with_robots(rng, [0] * rng.integer(2, 5)) for _ in range(steps)] for _ in (0, 1)]
    run = {"training": training, "validation": drawn(rng, SHARES[EVERY], rng.permutation(3)), "epochs": 1}
    ranks = submission.observe("fitted", runs=[run], seed=seed)[0]
    expect(endings(ranks), "how two processes ended that both have frames of every robot").equals(BOTH_FINISHED)
    start = dict(Policy.from_base(seed=seed).named_parameters())
    policy, losses = reference_training(training, seed)
    for rank, result in enumerate(ranks):
        expect(torch.tensor(result["losses"]), f"the losses of process {rank}'s steps").close_to(
            torch.tensor(losses[rank]), rtol=1e-3
        )
    logged = torch.tensor([row["loss"] for row in ranks[0]["recorded"] if "loss" in row])
    expect(logged, "the training losses that process 0 logged").close_to(torch.tensor(losses[0]), rtol=1e-3)
    last = ranks[1]["values"][0].get("loss")
    expect(last, "the training loss that process 1 logged last").close_to(losses[1][-1], rtol=1e-3)
    rates = [row["learning_rate"] for row in ranks[0]["recorded"] if "learning_rate" in row]
    wanted = [learning_rate_at(steps, steps, LEARNING_RATE)]
    expect(rates, "the learning rates that process 0 logged").close_to(wanted, rtol=1e-4, atol=0.0)
    expect(" and ".join(ranks[0]["modes"]), "the mode of the module in a training step").equals("training")
    for name, value in OPTIMIZER.items():
        expect(ranks[0]["optimizer"][name], f"the optimizer's {name}").equals(value)
    first, second = (rank["weights"] for rank in ranks)
    apart = {name for name in first if not torch.equal(first[name], second[name])}
    expect(listed(apart), "what differs between the weights of the two processes").equals("nothing")
    moving = {name for name, value in policy.named_parameters() if not torch.equal(value, start[name])}
    still = {name for name in moving if torch.equal(first[name], start[name])}
    expect(listed(still), f"the weights that did not move in {steps} steps").equals("nothing")
    # In one norm: AdamW steps by the gradient's sign, and rounding alone decides it for an entry that is nearly zero.
    moved = sum(float((value - start[name]).square().sum()) for name, value in policy.named_parameters())
    off = sum(float((first[name] - value).square().sum()) for name, value in policy.named_parameters())
    expect(
        (off / moved) ** 0.5, f"the weights' distance from the reference after {steps} steps, as a share of the way,"
    ).at_most(0.02)


@check(
    kind="invariant",
    title="The policy is the base policy",
    property="The module must train the base policy's parameters and no others, and predict what it predicts; image and instruction must matter, and no frame may depend on another.",
    instrument="debugkit.check(module.policy, batch, select=['DK113', 'DK305', 'DK306'])",
)
def test_policy_is_the_base(submission: Submission, rng: Rng) -> None:
    expect_stock_parameters(submission)
    expect_stock_prediction(submission, rng, rtol=1e-4, atol=1e-5)
    seed, batch = rng.seed(), padded_batch(rng, 3)
    loud = with_louder_head(Policy.from_base(seed=seed), LOUDER).eval().predict(batch)
    given = submission.observe("action", batch=batch, seed=seed, louder=LOUDER)
    expect(given, "the chunks predicted with larger weights in the head").close_to(loud, rtol=1e-3, atol=1e-3)
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="outcome",
    title="Two processes learn, and log each robot",
    property=f"After {EPOCHS} epochs of demonstrations in two processes, of which only one holds out frames of every robot, each robot's validation loss must be below {LOSS_BAR}.",
    instrument="lab run 92",
)
def test_training_gets_through(submission: Submission, seed: int) -> None:
    ranks = submission.observe("trained", seed=seed)
    expect(endings(ranks), "how the two processes ended").equals(BOTH_FINISHED)
    last = ranks[1]["values"][-1]
    expect(max(last.get(name, torch.inf) for name in NAMES), "the largest validation loss").below(LOSS_BAR)


MEANS = "test_logs_the_mean_of_all_frames/the means, where "
ONE = "test_one_process_logs_the_same"
ALONE = f"{ONE}/the means in one process"


@wrong_fix(
    "drop_the_log",
    says="Nothing is logged for a robot any more, so no process has to wait for it. The number for which the log was made is gone, in one process too.",
)
def recognise_dropped(evidence: Mapping[str, Any]) -> bool:
    alone = [word for number, word in enumerate(evidence[ALONE]) if number % len(NAMES)]
    nowhere = set(alone) == {ABSENT} == set(of_robots(evidence, EVERY))
    return nowhere and finished(evidence) and evidence[f"{ONE}/the other names in one process"] == []


@wrong_fix(
    "not_synchronised",
    says="No process waits any more, because none asks the others: each logs the mean of its own frames, and the logger keeps that of process 0. A callback that decides by it decides differently in each process.",
)
def recognise_own(evidence: Mapping[str, Any]) -> bool:
    own = [f"the mean of process {rank}'s frames" for rank in (0, 1)]
    return of_robots(evidence, EVERY) == own * 3


@wrong_fix(
    "guard_removed",
    says="Both processes now log each robot, so none waits. But the mean of no losses is NaN, and one batch without frames of a robot makes the mean of the whole epoch NaN.",
)
def recognise_nan(evidence: Mapping[str, Any]) -> bool:
    return set(of_robots(evidence, EVERY)) == {ALL} and set(of_robots(evidence, TURNS)) == {NO_NUMBER}


@wrong_fix(
    "zero_counts",
    says="Both processes now log each robot, so none waits. But a batch without frames of a robot counts as one more frame, with a loss of zero: the fewer frames a robot has, the better it seems.",
)
def recognise_zero(evidence: Mapping[str, Any]) -> bool:
    return all(word.startswith(COUNTED) for word in of_robots(evidence, TURNS))


@wrong_fix(
    "whole_batches",
    says="Without `batch_size`, Lightning weights each value by the size of the whole batch. A batch with one frame of a robot then counts as much as one with many.",
)
def recognise_whole_batches(evidence: Mapping[str, Any]) -> bool:
    return set(of_robots(evidence, TURNS)) == {BATCHES}


@wrong_fix(
    "integer_weight",
    says="The weights are integers again. This version of Lightning averages them over the processes and rounds down, so where the number of frames is odd, the logged mean is too large.",
)
def recognise_integers(evidence: Mapping[str, Any]) -> bool:
    words = [word for case in SHARES for means in evidence[MEANS + case].values() for word in means]
    return set(words) - {ABSENT, NO_NUMBER} == {ALL, ROUNDED}


@wrong_fix(
    "mean_of_means",
    says="This averages the two processes' means, and each counts alike. A process with one frame of a robot then weighs as much as one with a hundred.",
)
def recognise_even(evidence: Mapping[str, Any]) -> bool:
    words = {word for case in (EVERY, TURNS, ONLY_0, ONLY_1) for word in of_robots(evidence, case)}
    return words == {ALL, EVEN}


@wrong_fix(
    "common_robots_only",
    says="The processes now agree on what they log, so none waits. But they agree to leave out a robot as soon as one of them has no frame of it, and the frames of the other are in no number.",
)
def recognise_common(evidence: Mapping[str, Any]) -> bool:
    lacking = [words for case in (ONLY_0, ONLY_1) for words in list(evidence[MEANS + case].values())[-1]]
    return finished(evidence) and set(of_robots(evidence, EVERY)) == {ALL} and set(lacking) == {ABSENT}


def with_weights(weights: Mapping[str, Tensor]) -> Policy:
    """The base policy with these weights, in evaluation mode."""
    policy = Policy.from_base(seed=0).eval()
    with torch.no_grad():
        for name, value in policy.named_parameters():
            value.copy_(weights[name])
    return policy


def with_a_nan(rng: Rng, shares: Run) -> tuple[Run, int]:
    """The batches of each process, with a NaN in the action of one frame; and the robot of this frame."""
    spoiled = [[dict(batch) for batch in share] for share in shares]
    share = spoiled[rng.integer(0, len(spoiled))]
    batch = share[rng.integer(0, len(share))]
    frame = rng.integer(0, len(batch["action"]))
    batch["action"] = batch["action"].clone()
    batch["action"][frame, 0] = torch.nan  # the first step is never padding
    return spoiled, int(batch["robot"][frame])


def expect_nan_in_its_own_means(values: Mapping[str, float], losses: Losses, robot: int, who: str) -> None:
    """The mean of all frames must be NaN, and the means of the robots other than `robot` must be those of their frames."""
    value = values.get(WHOLE)
    expect(
        value is not None and value != value, f"`{WHOLE}` of {who} is NaN where the loss of one frame is NaN,"
    ).is_true()
    for name in (name for number, name in enumerate(NAMES[1:]) if number != robot):
        said = f"what {who} logged as `{name}`, where the loss of one frame of another robot is NaN,"
        expect(values.get(name), said).close_to(mean_of_all(losses, name), rtol=1e-4)


def of_robots(evidence: Mapping[str, Any], case: str) -> list[str]:
    """What each process logged for the three robots, in words."""
    return [word for name, words in evidence[MEANS + case].items() if name != WHOLE for word in words]


def finished(evidence: Mapping[str, Any]) -> bool:
    """Whether both processes finished every validation."""
    return all(
        evidence[f"test_logs_the_mean_of_all_frames/how they ended, where {case}"] == BOTH_FINISHED for case in SHARES
    )
