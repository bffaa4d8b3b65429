"""What must hold for a gated activation with its own backward. Runs in the grader's process; never sees the learner's code.

The reference is the derivative of silu(gate) * up in float64, written out below. A plain gradcheck does not test the layout
and the buffer of the incoming gradient, nor a second use: those are compared with what the same backward gives without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, facts, wrong_fix
from labs.stock_policy import expect_stock_parameters, expect_stock_prediction

EXACT = {"rtol": 1e-12, "atol": 1e-13}
"""A few float64 roundings; the error of a finite difference is a thousand times larger."""
STEPS = 30
CURVE_BAR = 1e-4
LAYOUTS = ("transposed", "sliced", "expanded")


@check(
    kind="behaviour",
    title="Backward is the derivative of forward",
    property="In float64 the gradients of gate and up must be the derivative of silu(gate) * up, to the last digits.",
    instrument="debugkit.gradcheck(GatedActivation, gate, up)",
)
def test_gradient_is_the_derivative(submission: Submission, rng: Rng) -> None:
    for shape in ((rng.integer(2, 5), rng.integer(5, 9), 12), (rng.integer(20, 40), 3)):
        gate, up, incoming = (rng.normal(*shape, std=2.0, dtype=torch.float64) for _ in range(3))
        seen = submission.observe("gradients", gate=gate, up=up, incoming=incoming)
        for_gate, for_up = derivative(gate, up, incoming)
        found = formula(seen["gate"], gate, up, incoming)
        expect(found, "formula")
        if found != "the derivative":
            transposed = submission.observe("gradients", gate=gate, up=up, incoming=incoming, layout="transposed")
            expect(lies_contiguous(transposed["gate"]), "contiguous whatever comes in")
        expect(seen["output"], "silu(gate) * up").close_to(gate * torch.sigmoid(gate) * up, rtol=1e-12, atol=1e-13)
        expect(seen["up"], "the gradient of up").close_to(for_up, **EXACT)
        expect(seen["gate"], "the gradient of gate").close_to(for_gate, **EXACT)


@check(
    kind="behaviour",
    title="The incoming gradient is only read",
    property="Backward must not change the incoming buffer: if outputs are added, another branch of the graph reads it too.",
    instrument="debugkit.gradcheck(GatedActivation, gate, up)",
)
def test_incoming_gradient_is_only_read(submission: Submission, rng: Rng) -> None:
    shape = (rng.integer(3, 6), rng.integer(6, 9))
    gate, up, skip, incoming = (rng.normal(*shape, dtype=torch.float64) for _ in range(4))
    seen = submission.observe("gradients", gate=gate, up=up, incoming=incoming)
    expect(torch.equal(seen["incoming"], incoming), "the buffer of the incoming gradient is unchanged,").is_true()
    both = submission.observe("gradients_of_a_residual", gate=gate, up=up, skip=skip, incoming=incoming)
    expect(both["skip"], "the gradient of the other branch of a residual connection").close_to(incoming, **EXACT)
    expect(both["up"], "the gradient of up, in a residual connection").close_to(seen["up"], **EXACT)
    expect(both["gate"], "the gradient of gate, in a residual connection").close_to(seen["gate"], **EXACT)


@check(
    kind="behaviour",
    title="The memory layout of the incoming gradient does not matter",
    property="A transposed, a sliced and an expanded incoming gradient must give the same gradients as a contiguous one.",
    instrument="debugkit.gradcheck(GatedActivation, gate, up)",
)
def test_layout_of_the_gradient_does_not_matter(submission: Submission, rng: Rng) -> None:
    shape = (rng.integer(3, 6), rng.integer(6, 9), rng.integer(10, 13))
    gate, up = rng.normal(*shape, dtype=torch.float64), rng.normal(*shape, dtype=torch.float64)
    for layout in LAYOUTS:
        incoming = rng.normal(*shape, dtype=torch.float64)
        if layout == "expanded":
            incoming = incoming[..., :1].repeat(1, 1, shape[-1])
        plain = submission.observe("gradients", gate=gate, up=up, incoming=incoming)
        found = submission.observe("gradients", gate=gate, up=up, incoming=incoming, layout=layout)
        expect(found["up"], f"the gradient of up, from a {layout} gradient").close_to(plain["up"], **EXACT)
        expect(found["gate"], f"the gradient of gate, from a {layout} gradient").close_to(plain["gate"], **EXACT)


@check(
    kind="behaviour",
    title="Two uses in one graph are independent",
    property="With two activations in one graph, each must give the same gradients as alone.",
    instrument="debugkit.gradcheck(GatedActivation, gate, up)",
)
def test_two_uses_are_independent(submission: Submission, rng: Rng) -> None:
    shape = (2, rng.integer(3, 6), rng.integer(6, 9))
    gate, up, incoming = (rng.normal(*shape, dtype=torch.float64) for _ in range(3))
    together = submission.observe("gradients_of_two_uses", gate=gate, up=up, incoming=incoming)
    for use in range(2):
        alone = submission.observe("gradients", gate=gate[use], up=up[use], incoming=incoming[use])
        expect(together["up"][use], f"the gradient of up in use {use}").close_to(alone["up"], **EXACT)
        expect(together["gate"][use], f"the gradient of gate in use {use}").close_to(alone["gate"], **EXACT)


@check(
    kind="behaviour",
    title="The activation keeps two tensors",
    property="After forward the activation may keep no more than gate and up alive, and the whole MLP one tensor more.",
    instrument="debugkit.memory_profile(policy, batch)",
)
def test_two_tensors_are_kept(submission: Submission, rng: Rng) -> None:
    kept = submission.observe("kept_for_backward", frames=rng.integer(4, 12))
    expect(kept["activation"], "the number of tensors the activation keeps").at_most(2.0)
    expect(kept["mlp"], "the number of tensors the MLP keeps").at_most(3.0)


@check(
    kind="invariant",
    title="The forward pass is that of the stock policy",
    property="The predicted actions must be those of the stock policy, and image and instruction must change them.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_forward_is_the_stock_policys(submission: Submission, rng: Rng) -> None:
    expect_stock_prediction(submission, rng, rtol=1e-5, atol=1e-6)


@check(
    kind="invariant",
    title="The same parameters are trained as before",
    property="The policy must have the stock policy's trainable parameters, with the same names and shapes.",
    instrument="debugkit.check(policy, batch, select=['DK113'])",
)
def test_parameters_are_the_stock_policys(submission: Submission) -> None:
    expect_stock_parameters(submission)


@check(
    kind="outcome",
    title="Training follows the stock policy's loss curve",
    property=f"Over {STEPS} steps on the same batches, no loss may differ from the stock policy's by more than {CURVE_BAR:g}.",
    instrument="lab run 18",
)
def test_training_takes_the_same_course(submission: Submission, seed: int) -> None:
    curves = submission.observe("loss_curves", seed=seed, steps=STEPS)
    expect(curves["stock"], "the stock policy's losses").has_shape(STEPS)
    expect(curves["stock"][-1] - curves["stock"][0], "the change of the stock policy's loss").below(-0.05)
    apart = (curves["memory_saving"] - curves["stock"]).abs().max()
    expect(float(apart), "the largest distance between the two loss curves").at_most(CURVE_BAR)


FORMULA = "test_gradient_is_the_derivative/formula"


@wrong_fix(
    "finite_difference",
    says="This is a finite difference: the derivative to nine digits. It costs two more forwards, and in float32, where training runs, its rounding error is far too large. Write the derivative out.",
)
def recognise_finite_difference(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "nearly the derivative"


@wrong_fix(
    "contiguous_only",
    says="The layout of the incoming gradient is handled now, but it was not the fault: the gradient of gate still lacks a term.",
)
def recognise_contiguous(evidence: Mapping[str, Any]) -> bool:
    contiguous = evidence.get("test_gradient_is_the_derivative/contiguous whatever comes in")
    return evidence[FORMULA] == "without the sigmoid's own change" and contiguous is True


@wrong_fix(
    "slope_of_the_sigmoid",
    says="This is only the other term of the product rule: gate times the derivative of the sigmoid. The two terms must be added.",
)
def recognise_other_half(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the sigmoid's own change alone"


@wrong_fix(
    "in_place",
    says="The formula is correct, but it is written into the incoming gradient's own memory. Everything else that reads that buffer now reads your result; gradcheck does not test that.",
)
def recognise_in_place(evidence: Mapping[str, Any]) -> bool:
    name = "test_incoming_gradient_is_only_read/the buffer of the incoming gradient is unchanged,"
    return evidence[FORMULA] == "the derivative" and evidence.get(name) is False


@wrong_fix(
    "leave_it_to_autograd",
    says="The gradient is correct, because autograd computes it, but the memory is no longer saved: silu(gate) is kept as a third tensor.",
)
def recognise_autograd(evidence: Mapping[str, Any]) -> bool:
    kept = evidence.get("test_two_tensors_are_kept/kept_for_backward")
    return kept is not None and evidence[FORMULA] == "the derivative" and kept["activation"] > 2.5


def derivative(gate: Tensor, up: Tensor, incoming: Tensor) -> tuple[Tensor, Tensor]:
    """The reference: the gradients of gate and up for silu(gate) * up."""
    sigmoid = torch.sigmoid(gate)
    return incoming * up * (sigmoid + gate * sigmoid * (1 - sigmoid)), incoming * gate * sigmoid


def formula(measured: Any, gate: Tensor, up: Tensor, incoming: Tensor) -> str:
    """Which formula explains the gradient of gate."""
    if not isinstance(measured, Tensor) or measured.shape != gate.shape:
        return "another"
    sigmoid = torch.sigmoid(gate)
    right, _ = derivative(gate, up, incoming)
    candidates = {
        "the derivative": right,
        "without the sigmoid's own change": incoming * up * sigmoid,
        "the sigmoid's own change alone": incoming * up * gate * sigmoid * (1 - sigmoid),
    }
    for name, value in candidates.items():
        if torch.allclose(measured, value, **EXACT):
            return name
    return "nearly the derivative" if torch.allclose(measured, right, rtol=1e-4, atol=1e-4) else "another"


def lies_contiguous(tensor: Any) -> bool:
    """Whether the tensor was contiguous in memory where it was created."""
    return isinstance(tensor, Tensor) and facts(tensor).stride == tensor.stride()
