"""What the checks of several labs compare with the healthy policy itself, as `labs.vla` builds it."""

from __future__ import annotations

from labs.grading import Rng, Submission, expect
from labs.invariants import expect_image_and_instruction_to_matter, random_batch
from labs.vla.policy import Policy


def expect_stock_parameters(submission: Submission) -> None:
    """The trained parameters must have the stock policy's names and shapes. Probe: `parameters`, name to shape."""
    stock = {name: list(parameter.shape) for name, parameter in Policy.from_base().named_parameters()}
    expect(submission.observe("parameters"), "the trained parameters").equals(stock)


def expect_stock_prediction(submission: Submission, rng: Rng, *, rtol: float, atol: float) -> None:
    """The chunk must be the stock policy's of the same seed, and depend on image and instruction. Probe: `action`."""
    batch, seed = random_batch(rng, 3), rng.seed()
    predicted = submission.observe("action", batch=batch, seed=seed)
    stock = Policy.from_base(seed=seed).eval().predict(batch)
    expect(predicted, "the action chunk").close_to(stock, rtol=rtol, atol=atol)
    expect_image_and_instruction_to_matter(submission, rng, batch=batch)
