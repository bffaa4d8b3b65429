"""What any right un-normalisation does, judged from what it returned."""

from __future__ import annotations

from labs.grading import check, expect, wrong_fix


@check(
    kind="behaviour",
    title="actions come out in the robot's units",
    property="unnormalise(a, mean, std) is a * std + mean",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_equals_the_reference(submission, rng):
    for batch in (1, 5):
        action, mean, std = rng.normal(batch, 3), rng.normal(3), rng.uniform(3, low=0.5, high=2.0)
        measured = submission.call("unnormalise", action, mean, std)
        expect(measured).close_to(action * std + mean, rtol=1e-5, atol=1e-6)


@check(
    kind="invariant",
    title="normalise is its inverse",
    property="an action that is normalised and un-normalised is the same action",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_round_trip(submission, rng):
    there = submission.observe("round_trip", seed=rng.seed())
    expect(there["after"]).close_to(there["before"], rtol=1e-4, atol=1e-5)


@check(
    kind="outcome",
    title="the arm arrives",
    property="a seeded reach ends where it was sent",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_reaches(submission, seed):
    there = submission.observe("round_trip", seed=seed)
    expect((there["after"] - there["before"]).abs().max().item()).at_most(1e-3)


@wrong_fix("drop_the_mean", says="the mean is no longer added, so the arm always moves about the origin")
def recognise_dropped_mean(evidence):
    there = evidence.get("round_trip")
    if there is None:
        return False
    return bool((there["after"] - there["before"] + there["mean"]).abs().max() < 1e-4)
