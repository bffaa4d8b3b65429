"""What must hold for a policy that two processes train, each on its own batches. Runs in the grader's process.

The reference is the healthy policy in the grader's process: each step uses the mean of all processes' gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from labs.forked_processes import FINISHED
from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import WORDS, expect_frames_to_be_independent, listed, padded_batch
from labs.joint_training import Exchange, first, mean, of_part, own, sgd, total, trained_replicas
from labs.policy_comparison import with_louder_head
from labs.process_endings import BOTH_FINISHED, endings
from labs.stock_policy import expect_stock_prediction
from labs.vla.dataset import Batch
from labs.vla.policy import Policy

Result = Mapping[str, Any]
Training = dict[str, Any]
THREE = "process 0 finished, process 1 finished, process 2 finished"
STEPS = 4
RATE = 2e-3
SAME = 0.02  # of the largest change of a weight: rounding alone gives a thousandth of it
LOUDER = 30.0  # so large an output is beyond the range of the demonstrated actions: nothing may limit it
TRAINING_STEPS, BAR = 40, 0.42


@check(
    kind="behaviour",
    title="The processes keep the same weights",
    property="Wrapping must give both processes the weights of process 0, and after every step all parameters must be equal in both, to the last bit.",
    instrument="python -c 'from policy import *; from labs.processes import in_processes; from labs.vla.dataset import batches, demonstrations; work = lambda rank, report: (p := wrap(build_policy(rank)), train(p, torch.optim.SGD(p.parameters(), lr=0.1), batches(demonstrations(8, rank), 4, 2, rank)), report([sum(w.double().sum().item() for w in m.parameters()) for m in (p.backbone, p.head)])); print([one.results for one in in_processes(work, 2)])'",
)
def test_processes_keep_the_same_weights(submission: Submission, rng: Rng) -> None:
    seed = rng.seed()
    results = trained(submission, training(rng, processes=2, steps=STEPS), seed)
    stock = as_split(dict(Policy.from_base(seed=seed).named_parameters()))
    for rank, result in enumerate(results):
        other = {name for name in stock if not torch.equal(stock[name], result["before"][name])}
        expect(listed(other), f"where process {rank} does not begin with the weights of process 0").equals("nothing")
        expect(len(result["steps"]), f"the number of steps that process {rank} took on {STEPS} batches").equals(STEPS)
    for step in range(STEPS):
        hashes, others = (result["steps"][step] for result in results)
        other = {name for name in hashes if hashes[name] != others[name]}
        expect(listed(other), f"what differs between the processes after step {step + 1} of {STEPS}").equals("nothing")
    end, ends = (result["end"] for result in results)
    other = {name for name in end if not torch.equal(end[name], ends[name])}
    expect(listed(other), "what differs between the processes when train() has returned").equals("nothing")


@check(
    kind="behaviour",
    title="Several processes take the steps of one",
    property="The weights after training must be those of one process that trains on the mean of all losses, for two processes and for three, with batches of different sizes and with an optimizer that is not linear in the gradient. The returned losses must be the means. The backward pass of `training_loss` must average all gradients, also outside of `train`.",
    instrument="python -c 'from policy import *; from labs.processes import in_processes; from labs.vla.dataset import batches, demonstrations; work = lambda rank, report: (p := wrap(build_policy(0)), train(p, torch.optim.SGD(p.parameters(), lr=0.1), batches(demonstrations(8, rank), 4, 1, rank)), report([sum(w.grad.square().sum().item() for w in m.parameters() if w.grad is not None) for m in (p.backbone, p.head)])); print([one.results for one in in_processes(work, 2)])'",
)
def test_processes_take_the_steps_of_one(submission: Submission, rng: Rng) -> None:
    seed = rng.seed()
    two, three = training(rng, processes=2, steps=STEPS), training(rng, processes=3, steps=1)
    results = trained(submission, two, seed)
    expect(explain(results, two, seed), "whose steps these are")
    expect([result["events"] for result in results], "the reductions and backward passes")
    together = trained(submission, three, seed, without_train=True)
    for given, ranks in ((three, together), (two, results)):
        replicas, losses = reference(given, seed)
        wanted, means = as_split(replicas[0]), [sum(step) / len(step) for step in zip(*losses, strict=True)]
        for rank, result in enumerate(ranks):
            who = f"process {rank} of {len(ranks)}, after {len(means)} step{'s' * (len(means) > 1)},"
            expect(
                departures(result["end"], wanted, result["before"]),
                f"where {who} does not have the weights of one process on all batches",
            ).equals("nothing")
            expect(result["training"], f"whether {who} had trained in training mode").is_true()
            expect(len(result["losses"]), f"the number of losses that {who} returned").equals(len(means))
            expect(torch.tensor(result["losses"]), f"the losses that {who} returned").close_to(
                torch.tensor(means), rtol=1e-3, atol=1e-5
            )
    # The step of the three processes subtracts the gradient.
    wanted = as_split(reference(three, seed)[0][0])
    for rank, result in enumerate(together):
        found = {name: value - result["gradients"][name] for name, value in result["before"].items()}
        expect(
            departures(found, wanted, result["before"]),
            f"where the gradients in process {rank}, after `training_loss` and backward() alone, are not the means",
        ).equals("nothing")


@check(
    kind="behaviour",
    title="A process validates alone",
    property="The validation loss must be that of the whole batch in evaluation mode, without a gradient, also if only one of the two processes validates.",
    instrument="python -c 'from policy import *; from labs.processes import in_processes; from labs.vla.dataset import batches, demonstrations; b = next(batches(demonstrations(8, 0), 8, 1, 0)); work = lambda rank, report: (p := wrap(build_policy(0)), rank or report(validation_loss(p, b))); print([(one.how, one.results) for one in in_processes(work, 2)])'",
)
def test_a_process_validates_alone(submission: Submission, rng: Rng) -> None:
    for alone, size in enumerate((rng.integer(1, 3), rng.integer(3, 7))):
        batch, seed = batch_of(rng, size, far=alone == 1), rng.seed()
        ranks = submission.observe("validated_alone", batch=batch, seed=seed, alone=alone)
        expect(endings(ranks), f"how the processes ended when process {alone} validated {size} frames").equals(
            BOTH_FINISHED
        )
        seen = ranks[alone]["returned"]
        with torch.no_grad():
            wanted = Policy.from_base(seed=seed).eval()(**batch).loss
        expect(
            seen["loss"], f"the validation loss of {size} frames, of a projector that gives zeros in training mode,"
        ).close_to(wanted.item(), rtol=1e-3, atol=1e-5)
        expect(seen["training"], "whether the policy is in training mode after its validation").is_false()
        expect(seen["graph"], "whether a validation computes with a graph").is_false()


@check(
    kind="invariant",
    title="The policy inside the wrappers is the one that is trained",
    property="`unwrap(wrap(policy))` must have all of the policy's parameters, as the same tensors and under the same names.",
    instrument="python -c 'from policy import *; print(*dict(build_policy(0).named_parameters()))'",
)
def test_wrapped_policy_has_the_same_parameters(submission: Submission, rng: Rng) -> None:
    result = submission.observe("unwrapped", seed=rng.seed())
    expect(result["ended"], "how wrapping and unwrapping ended").equals(FINISHED)
    odd = set(result["returned"]["names"]) ^ parameter_names()
    expect(listed(odd), "what an unwrapped policy lacks or has too many").equals("nothing")
    copied = parameter_names() - set(result["returned"]["shared"])
    expect(listed(copied), "what an unwrapped policy does not share with the policy that was wrapped").equals("nothing")


@check(
    kind="invariant",
    title="The policy is the pretrained base, and all of it is trained",
    property="A policy of a seed must have the base's backbone and a head drawn from the seed; all parameters must require a gradient. Image and instruction must matter. A policy with another head must act as that head's `predict` says.",
    instrument="debugkit.check(policy, batch, select=['DK306', 'DK113'])",
)
def test_policy_is_the_pretrained_base(submission: Submission, rng: Rng) -> None:
    expect_stock_prediction(submission, rng, rtol=1e-4, atol=1e-5)
    expect_frames_to_be_independent(submission, rng)
    seed, batch = rng.seed(), batch_of(rng, 3, far=False)
    loud = with_louder_head(Policy.from_base(seed=seed), LOUDER).eval().predict(batch)
    found = submission.observe("action", batch=batch, seed=seed, louder=LOUDER)
    expect(found, "the chunk predicted with larger weights in the head").close_to(loud, rtol=1e-3, atol=1e-3)
    expect(
        submission.observe("predicts_with_a_graph", batch=batch), "whether predict() computes with a graph"
    ).is_false()
    stock = as_split(dict(Policy.from_base(seed=seed).named_parameters()))
    shapes = {name: list(value.shape) for name, value in stock.items()}
    expect(submission.observe("parameters"), "the parameters that require a gradient").equals(shapes)
    found = submission.observe("built", seed=seed)
    other = {name for name, value in stock.items() if not torch.equal(found[name], value)}
    expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals("nothing")
    reference = Policy.from_base(seed=seed).eval()
    half = reference.action_statistics.normalize(reference.predict(batch)) / 2
    found = submission.observe("acted_by_another_head", batch=batch, seed=seed)
    expect(found, "the chunk of a policy with another head, whose `predict` halves what its `forward` gives,").close_to(
        reference.action_statistics.unnormalize(half), rtol=1e-3, atol=1e-4
    )


@check(
    kind="outcome",
    title="Each process has learnt from both halves of the table",
    property=f"After {TRAINING_STEPS} steps in two processes, each with the recordings of one half of the table, the validation loss of each process must be below {BAR} on both halves.",
    instrument="lab run 82",
)
def test_each_process_learns_from_both(submission: Submission, seed: int) -> None:
    ranks = submission.observe("fine_tuned", seed=seed, steps=TRAINING_STEPS)
    expect(endings(ranks), "how the two processes ended").equals(BOTH_FINISHED)
    for rank, (own_side, other) in enumerate((("left", "right"), ("right", "left"))):
        for side in (other, own_side):
            what = f"the validation loss on the {side} half in process {rank}, which reads the {own_side} half,"
            expect(ranks[rank]["returned"][side], what).below(BAR)


def training(rng: Rng, *, processes: int, steps: int) -> Training:
    """What the probe `trained_together` needs: batches of different sizes, the first one of a single frame.

    A single step is one of plain SGD at rate 1, which subtracts the gradient.
    """
    streams = [
        [batch_of(rng, rng.integer(2, 4) + rank if rank or step else 1, far=rank == 1) for step in range(steps)]
        for rank in range(processes)
    ]
    return {"streams": streams, "normalized": steps > 1, "rate": RATE if steps > 1 else 1.0}


def batch_of(rng: Rng, size: int, *, far: bool) -> Batch:
    """A random batch with padded steps and instructions of 3 to 8 words; with `far`, of movements with a large loss."""
    batch = padded_batch(rng, size)
    words = rng.integers(3, WORDS + 1, size)
    mask = (torch.arange(WORDS)[None] < words[:, None]).long()
    return {**batch, "attention_mask": mask, "action": batch["action"] * (20.0 if far else 1.0)}


def trained(submission: Submission, given: Training, seed: int, without_train: bool = False) -> list[dict[str, Any]]:
    """What each process returned. All must have finished."""
    ranks = submission.observe("trained_together", **given, seed=seed, without_train=without_train)
    expect(endings(ranks), f"how {len(ranks)} processes ended").equals(BOTH_FINISHED if len(ranks) == 2 else THREE)
    results = [rank["returned"] for rank in ranks]
    expect(listed(parameter_names() - results[0]["before"].keys()), "what a trained policy lacks").equals("nothing")
    return results


def as_split(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The healthy policy's parameters, under the names that they have in a policy of two parts."""
    return {name if name.startswith("head.") else f"backbone.{name}": value for name, value in values.items()}


def parameter_names() -> set[str]:
    """The names of all parameters in a policy of two parts."""
    return set(as_split(dict(Policy.from_base().named_parameters())))


def reference(given: Training, seed: int, **exchanges: Exchange) -> tuple[list[dict[str, Tensor]], list[list[float]]]:
    """The weights of each replica after a training, and its losses."""
    optimizer = sgd(given["rate"], normalized=given["normalized"])
    return trained_replicas(given["streams"], seed, optimizer, **exchanges)


def departures(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> str:
    """The parameters that differ from those wanted by more than rounding, and by how much; or "nothing"."""
    moved = max(float((wanted[name] - before[name]).abs().max()) for name in wanted)
    off = {name: float((found[name] - wanted[name]).abs().max()) / moved for name in wanted}
    other = [name for name in sorted(off, key=lambda name: -off[name]) if not off[name] <= SAME]
    return f"{other[0]}, by {off[other[0]]:.0%} of the step, and {len(other) - 1} more" if other else "nothing"


CANDIDATES: dict[str, dict[str, Exchange]] = {
    "one process on both batches": {"gradients": mean},
    "each process on its own batch": {"gradients": of_part("head", own)},
    "the sum of both gradients": {"gradients": of_part("head", total)},
    "the gradient of process 0": {"gradients": first},
    "weights averaged at the end": {"gradients": of_part("head", own), "last_weights": mean},
    "weights averaged after each step": {"gradients": of_part("head", own), "weights": mean},
    "weights of process 0 at the end": {"gradients": of_part("head", own), "last_weights": first},
    "weights of process 0 before each step": {"gradients": of_part("head", own), "weights": first, "last_weights": own},
}
"""What a training may have done instead. The backbone's gradients are averaged, or none are."""


def explain(results: Sequence[Result], given: Training, seed: int) -> str:
    """Describes how the weights of all processes came about."""
    for name, exchanges in CANDIDATES.items():
        replicas, _ = reference(given, seed, **exchanges)
        pairs = zip(results, map(as_split, replicas), strict=True)
        if all(departures(found["end"], wanted, found["before"]) == "nothing" for found, wanted in pairs):
            return name
    return "another way"


WHOSE = "test_processes_take_the_steps_of_one/whose steps these are"
EVENTS = "test_processes_take_the_steps_of_one/the reductions and backward passes"


@wrong_fix(
    "loss_only",
    says="This averages the value of the loss before the backward pass. Its gradient still goes only through this process's batch, and the head's gradients are averaged by nobody.",
)
def recognise_reduced_loss(evidence: Mapping[str, Any]) -> bool:
    reduced = [events[:1] == ["one number"] and "numbers" not in events for events in evidence[EVENTS]]
    return all(reduced) and evidence[WHOSE] == "each process on its own batch"


@wrong_fix(
    "not_divided",
    says="The head's gradients are added up and not divided by the number of processes. All processes agree, but their head takes a step as for twice the loss, and a larger one with each process that is added.",
)
def recognise_sum(evidence: Mapping[str, Any]) -> bool:
    return evidence[WHOSE] == "the sum of both gradients"


@wrong_fix(
    "same_data",
    says="Both processes now train on the batch of process 0. They agree because they compute the same twice, and nothing is learnt from the recordings of process 1.",
)
def recognise_same_data(evidence: Mapping[str, Any]) -> bool:
    return evidence[WHOSE] == "the gradient of process 0"


@wrong_fix(
    "average_at_the_end",
    says="The processes train different heads and average them at the end. The mean of two trained heads is not the head of one training on all frames, and until the end the processes differ.",
)
def recognise_mean_at_the_end(evidence: Mapping[str, Any]) -> bool:
    return evidence[WHOSE] == "weights averaged at the end"


@wrong_fix(
    "average_after_each_step",
    says="Averaging the weights after each step is averaging the gradients only for plain SGD. With Adam, each process first normalises a gradient of its own.",
)
def recognise_mean_after_each_step(evidence: Mapping[str, Any]) -> bool:
    return evidence[WHOSE] == "weights averaged after each step"


@wrong_fix(
    "broadcast_at_the_end",
    says="The processes agree at the end because all take the head of process 0. What the others have learnt is overwritten, so this head knows one process's recordings only.",
)
def recognise_broadcast_at_the_end(evidence: Mapping[str, Any]) -> bool:
    return evidence[WHOSE] == "weights of process 0 at the end"


@wrong_fix(
    "wrap_before_each_step",
    says="A new wrapper copies the weights of process 0 to all processes, before each step. The gradients are still each process's own: process 0's head learns as before, and the others' steps are lost.",
)
def recognise_new_wrappers(evidence: Mapping[str, Any]) -> bool:
    return evidence[WHOSE] == "weights of process 0 before each step"
