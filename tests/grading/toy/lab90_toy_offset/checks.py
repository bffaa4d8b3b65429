"""The toy lab's checks."""

from labs.grading import check, expect, facts, wrong_fix


@check(
    kind="outcome",
    title="The head learns the sum",
    property="After 50 steps the loss is below 0.05.",
    instrument="debugkit.overfit_one_batch(head, batch)",
)
def test_the_head_learns(submission, seed):
    losses = submission.observe("fitted", seed=seed, steps=50)["losses"]
    expect(losses[-1], "the loss after 50 steps").below(0.05)


@check(
    kind="behaviour",
    title="The loss equals the reference",
    property="The loss is the mean squared error over the batch.",
    instrument="debugkit.trace_shapes(head, batch)",
)
def test_the_loss_equals_the_reference(submission, rng):
    for batch in (2, 7):
        prediction, target = rng.normal(batch), rng.normal(batch, 1)
        measured = submission.call("gripper_loss", prediction, target)
        expect(measured, "the loss").close_to((prediction - target[:, 0]).pow(2).mean())


@check(
    kind="invariant",
    title="Both parameters train",
    property="The head's weight gets a gradient and its parameters keep their names.",
    instrument="debugkit.gradient_table(head)",
)
def test_both_parameters_train(submission, rng):
    report = submission.observe("gradients", seed=rng.seed())
    expect(report["parameters"], "the parameters").equals(["linear.weight", "linear.bias"])
    expect(report["weight"].abs().sum(), "the weight's gradient").above(1e-6)
    expect(facts(report["loss"]).requires_grad, "that the loss has a graph").is_true()


@wrong_fix("summed_instead", says="The loss is summed over the batch, so it grows with the batch.")
def recognise_sum(evidence):
    found = evidence["test_the_loss_equals_the_reference"]
    return abs(found["measured"] / found["expected"] - 2) < 1e-3  # the first batch has two frames
