"""TODO(author): in one sentence, what every correct fix does; the checks judge what the code returns and never read its source."""

from __future__ import annotations

from labs.grading import check, expect


@check(
    kind="behaviour",
    title="TODO(author): what a learner reads next to the mark",
    property="TODO(author): a sentence that is true of every correct fix",
    instrument="TODO(author): the debugkit call to use next, which runs as printed",
)
def test_equals_the_reference(submission, rng):
    for batch in (1, 5):
        action, mean, std = rng.normal(batch, 3), rng.normal(3), rng.uniform(3, low=0.5, high=2.0)
        expect(submission.call("unnormalise", action, mean, std)).close_to(action * std + mean)


@check(
    kind="invariant",
    title="TODO(author): what every correct fix keeps",
    property="TODO(author): for instance, the image still matters",
    instrument="TODO(author): the debugkit call to use next",
)
def test_is_linear_in_the_action(submission, rng):
    mean, std = rng.normal(3), rng.uniform(3, low=0.5, high=2.0)
    one, other = rng.normal(4, 3), rng.normal(4, 3)
    middle = submission.call("unnormalise", (one + other) / 2, mean, std)
    ends = [submission.call("unnormalise", action, mean, std) for action in (one, other)]
    expect(middle).close_to((ends[0] + ends[1]) / 2, rtol=1e-4)


@check(
    kind="outcome",
    title="TODO(author): what the robot does once it is fixed",
    property="TODO(author): a short seeded training or rollout, its bar three standard errors below the solution's mean",
    instrument="TODO(author): the debugkit call to use next",
)
def test_the_arm_arrives(submission, seed):
    seen = submission.observe("actions", seed=seed)
    error = (seen["result"] - (seen["action"] * seen["std"] + seen["mean"])).abs().max().item()
    expect(error, "the distance from the goal").at_most(1e-3)
