"""What must hold for an epoch that keeps averages. Runs in the grader's process, without the learner's code.

A leak is detected by counting what is alive at the same point of every step. Averages and weights are compared with those of
the healthy policy, trained here by a loop without a log.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, padded_batch, random_batch
from labs.reference_training import train_step, with_dropout
from labs.vla.policy import Policy
from labs.vla.randomness import private_randomness

Batch = dict[str, Tensor]
SHARE_LEFT = 0.9
METRICS_EVERY = 10
LONG = 200
"""Steps of an epoch that is too long for a window of recent steps."""
GROUPS = {
    "head": {"lr": 0.1},
    "language_model": {"lr": 0.05, "weight_decay": 0.1},
    "proprioception": {"lr": 0.05, "weight_decay": 0.02},
    "vision": {"lr": 0.03},
}
"""The parts that are trained, and their settings in the optimizer. The projector is frozen."""
WITHOUT, WITH = "without on_step", "with on_step"


@check(
    kind="behaviour",
    title="Graphs do not accumulate",
    property="From the second step on, the same autograd nodes and tensors must be alive after every step, with `on_step` and without it.",
    instrument="debugkit.watch(policy, optimizer)",
)
def test_graphs_do_not_pile_up(submission: Submission, rng: Rng) -> None:
    stream, steps, seed = [random_batch(rng, 2) for _ in range(3)], rng.integer(12, 15), rng.seed()
    alive = {
        when: submission.observe("alive", batches=stream, steps=steps, seed=seed, logged=when == WITH)
        for when in (WITHOUT, WITH)
    }
    expect(alive, "alive")  # recorded for the recognisers before any comparison fails
    for when, counts in alive.items():
        for what in ("nodes of autograd graphs", "tensors", "bytes of tensors"):
            after = dict(enumerate(counts[what], start=1))
            expect(len(after), f"the number of steps {when}").equals(steps)
            for step in range(steps, 2, -1):
                named = f"the number of {what} alive after {step} steps {when}, compared with 2 steps,"
                expect(after[step], named).equals(after[2])


@check(
    kind="behaviour",
    title="Averages are over frames",
    property="After each step the log must have the average loss over all frames so far, and the averages of both metrics over the frames of every tenth step, in evaluation mode. No frame may be left out, however long the epoch is, nor a loss that is NaN: the average is then NaN. Each dictionary that `on_step` gets must stay as it was in that step.",
    instrument="lab run 61",
)
def test_averages_are_over_frames(submission: Submission, rng: Rng) -> None:
    for batches, logged in ((uneven_batches(rng, rng.integer(22, 30)), True), ([padded_batch(rng, 1)], False)):
        seed = rng.seed()
        seen = observe_epoch(submission, batches, seed, logged=logged, training=not logged)
        wanted = reference(batches, seed)
        if logged:
            expect({"running": seen["running"], "losses": wanted.losses}, "log")
        expect(seen["steps"], "the list of step numbers that on_step was called with").equals(
            list(range(len(batches))) if logged else []
        )
        for step, (averages, correct) in enumerate(zip(seen["running"], wanted.running, strict=False)):
            expect_averages(averages, correct, f"logged after step {step}")
        for step, (averages, correct) in enumerate(zip(seen["kept"], wanted.running, strict=False)):
            expect_averages(
                averages, correct, f"in the dictionary that on_step got after step {step}, read after the epoch,"
            )
        expect_averages(seen["averages"], wanted.running[-1], f"returned by an epoch of {count(batches)}")
    losses = rng.uniform(LONG)
    losses[0] += LONG
    given = {"batch": random_batch(rng, 2), "losses": losses}
    expect(submission.observe("epoch_with_losses", **given)["loss"], f"`loss` of an epoch of {LONG} batches").close_to(
        float(losses.double().mean()), rtol=1e-3
    )
    losses[rng.integer(1, 12)] = torch.nan
    average = submission.observe("epoch_with_losses", **given | {"losses": losses[:12]})["loss"]
    expect(str(float(average)), "`loss` of an epoch in which one batch's loss is NaN").equals("nan")


@check(
    kind="invariant",
    title="Logging does not affect training",
    property="The weights after an epoch must be those of a loop without logging, and the policy must be in evaluation mode. `Meter.update` must leave the values that it adds as they are, with their graphs.",
    instrument="with debugkit.watch(policy, optimizer) as run: train_epoch(policy, stream, optimizer)",
)
def test_log_changes_nothing(submission: Submission, rng: Rng) -> None:
    situations: tuple[tuple[list[Batch], bool], ...] = (
        (uneven_batches(rng, rng.integer(12, 16)), False),
        ([padded_batch(rng, 1)], True),
        ([], True),
    )
    for batches, training in situations:
        seed = rng.seed()
        seen = observe_epoch(submission, batches, seed, logged=not training, training=training)
        wanted = reference(batches, seed).weights
        expect(sorted(seen["weights"]), "the list of the policy's parameters").equals(sorted(wanted))
        for name, weights in wanted.items():
            expect(seen["weights"][name], f"`{name}` after an epoch of {count(batches)}").close_to(
                weights, rtol=1e-5, atol=1e-6
            )
        expect(seen["training"], f"the policy's `training` after an epoch of {count(batches)}").equals(False)
    roots = {name: rng.uniform(1)[0] + 1.0 for name in ("loss", "movement_error")}
    seen = submission.observe("metered", values=roots, frames=rng.integer(2, 6))
    for name, root in roots.items():
        expect(seen["values"][name], f"the value of `{name}` that a meter has added").close_to(root.square(), rtol=1e-5)
        expect(seen["graphs"][name], f"whether `{name}` still has its graph after a meter has added it").is_true()
        expect(seen["gradients"][name], f"the gradient of `{name}`, which a meter added before backward(),").close_to(
            2 * root, rtol=1e-5
        )


@check(
    kind="invariant",
    title="The image and the instruction matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="The logged loss falls",
    property=f"The third epoch's average loss must be at most {SHARE_LEFT:.0%} of the first one's.",
    instrument="lab run 61",
)
def test_logged_loss_falls(submission: Submission, seed: int) -> None:
    seen = submission.observe("trained", seed=seed)
    expect(seen["last"] / seen["first"], "the third epoch's average loss, as a fraction of the first one's,").at_most(
        SHARE_LEFT
    )


LOG = "test_averages_are_over_frames/log"
ALIVE = "test_graphs_do_not_pile_up/alive"
NODES, LARGEST = "nodes of autograd graphs", "nodes of the largest graph"
GRAPH = 100
"""Fewer nodes than one step's graph has."""


@wrong_fix(
    "last_loss_only",
    says="Memory is constant because nothing is summed any more: what the log calls an average is the last batch's loss.",
)
def recognise_last_loss(evidence: Mapping[str, Any]) -> bool:
    return steady(evidence, WITHOUT) and every_logged_loss_is(evidence, lambda losses: losses[-1])


@wrong_fix(
    "mean_of_batches",
    says="Memory is constant, but the average is now over batches: a last batch with a single frame counts as much as a full one.",
)
def recognise_mean_of_batches(evidence: Mapping[str, Any]) -> bool:
    return steady(evidence, WITHOUT) and every_logged_loss_is(evidence, lambda losses: sum(losses) / len(losses))


@wrong_fix(
    "kept_in_a_list",
    says="Each loss is now kept on its own, and each refers to the graph of its step: many small graphs instead of one large graph, and just as many nodes.",
)
def recognise_list(evidence: Mapping[str, Any]) -> bool:
    return all(
        rises(counts[NODES]) and counts[LARGEST][-1] <= counts[LARGEST][1] for counts in evidence[ALIVE].values()
    )


@wrong_fix(
    "released_when_read",
    says="The graphs are released when the averages are read. An epoch without `on_step` reads them only at its end, and keeps every graph until then.",
)
def recognise_released_when_read(evidence: Mapping[str, Any]) -> bool:
    return steady(evidence, WITH) and rises(evidence[ALIVE][WITHOUT][NODES])


def steady(evidence: Mapping[str, Any], when: str) -> bool:
    """Whether the number of live nodes is the same after every step from the second on."""
    return len(set(evidence[ALIVE][when][NODES][1:])) == 1


def rises(nodes: list[int]) -> bool:
    """Whether every step after the second adds a graph."""
    return all(after - before > GRAPH for before, after in itertools.pairwise(nodes[1:]))


def every_logged_loss_is(evidence: Mapping[str, Any], average: Callable[[list[float]], float]) -> bool:
    """Whether each logged loss is that `average` of the losses of all batches so far."""
    running, losses = evidence[LOG]["running"], evidence[LOG]["losses"]
    return len(running) == len(losses) and all(
        abs(averages["loss"] - average(losses[: step + 1])) < 1e-5 for step, averages in enumerate(running)
    )


def expect_averages(averages: Any, wanted: dict[str, float], where: str) -> None:
    """The averages must have the names of the wanted ones, and their values, as Python numbers."""
    expect(sorted(averages), f"the list of names {where}").equals(sorted(wanted))
    for name, value in wanted.items():
        expect(averages[name], f"`{name}` {where}").close_to(value, rtol=2e-5, atol=1e-6)
        expect(isinstance(averages[name], Tensor), f"whether `{name}` {where} is a tensor").is_false()


def observe_epoch(submission: Submission, batches: list[Batch], seed: int, *, logged: bool, training: bool) -> Any:
    """What the probe `epoch` returns for these batches."""
    return submission.observe("epoch", batches=batches, seed=seed, groups=GROUPS, logged=logged, training=training)


@dataclass
class Reference:
    """Each batch's loss, the averages after each step, and the weights at the end."""

    losses: list[float] = field(default_factory=list)
    running: list[dict[str, float]] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)


def reference(batches: list[Batch], seed: int) -> Reference:
    """The same epoch of the healthy policy: the loop trains, and the averages are computed from what it leaves."""
    policy = with_dropout(Policy.from_base(seed=seed))
    policy.projector.requires_grad_(False)
    settings = [{"params": list(policy.get_submodule(part).parameters()), **own} for part, own in GROUPS.items()]
    optimizer = torch.optim.SGD(settings, momentum=0.5)
    found = Reference()
    measured: dict[str, list[tuple[float, int]]] = {}
    with private_randomness(seed):
        for step, batch in enumerate(batches):
            found.losses.append(train_step(policy, optimizer, batch))
            values = {"loss": found.losses[-1]}
            if step % METRICS_EVERY == 0:
                values |= metrics(policy, batch)
            for name, value in values.items():
                measured.setdefault(name, []).append((value, len(batch["state"])))
            found.running.append({name: mean(pairs) for name, pairs in measured.items()})
    found.weights = {name: parameter.detach() for name, parameter in policy.named_parameters()}
    return found


def metrics(policy: Policy, batch: Batch) -> dict[str, float]:
    """Movement error and grip accuracy of each chunk's first action, in evaluation mode."""
    predicted, target = policy.eval().predict(batch)[:, 0].double(), batch["action"][:, 0].double()  # (B, A)
    distance = torch.hypot(predicted[:, 0] - target[:, 0], predicted[:, 1] - target[:, 1])
    correct = predicted[:, 2].sign() == target[:, 2].sign()
    return {"movement_error": float(distance.mean()), "grip_accuracy": float(correct.double().mean())}


def mean(pairs: list[tuple[float, int]]) -> float:
    """The mean over frames of values that are each a mean over so many frames."""
    return sum(value * frames for value, frames in pairs) / sum(frames for _, frames in pairs)


def uneven_batches(rng: Rng, steps: int) -> list[Batch]:
    """Batches of 1 to 6 frames, some steps of which are padding; the first has five frames and the last one."""
    sizes = [5, *(rng.integer(1, 7) for _ in range(steps - 2)), 1]
    return [padded_batch(rng, size) for size in sizes]


def count(batches: list[Batch]) -> str:
    """How many batches there are, in words."""
    return f"{len(batches)} batch" if len(batches) == 1 else f"{len(batches)} batches"
