"""What must hold for a gated activation with its own backward. Runs in the grader's process; never sees the learner's code.

The reference is the derivative of silu(gate) * up in float64, written out below, also where a plain gradcheck does not
look: the layout and the buffer of the incoming gradient, a second use, and float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, facts, wrong_fix
from labs.invariants import random_batch
from labs.stock_policy import expect_stock_parameters, expect_stock_prediction
from labs.vla.dataset import demonstrations
from labs.vla.policy import Policy
from labs.vla.training import fit

EXACT = {"rtol": 1e-12, "atol": 1e-13}
"""A few float64 roundings; the error of a finite difference is a thousand times larger."""
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.06, torch.float16: 0.008}
"""Of a gradient between 1 and 4, with each operation rounded: a fifth of this or less."""
STEPS, BATCH_SIZE = 30, 32
CURVE_BAR = 1e-4
LAYOUTS = ("transposed", "sliced", "expanded")
PRECISIONS = (
    (torch.float64, False, (-800.0, -60.0, 60.0, 800.0)),
    (torch.float32, False, (-100.0, -60.0, 60.0, 100.0)),
    (torch.float32, True, (-100.0, -60.0, 60.0, 100.0)),
    (torch.bfloat16, False, (-100.0, -60.0, 60.0, 100.0)),
    (torch.bfloat16, True, (-100.0, -60.0, 60.0, 100.0)),
    (torch.float16, False, (-20.0, -12.0, -6.0, 6.0, 12.0, 20.0)),
    (torch.float16, True, (-20.0, -12.0, -6.0, 6.0, 12.0, 20.0)),
)
"""The dtype of gate and up, whether forward runs under autocast, and the largest gates: their exponentials overflow."""


@check(
    kind="behaviour",
    title="Backward is the derivative of forward",
    property="The gradients of gate and up must be the derivative of silu(gate) * up to the last digits, in float64 and in float32, for any shape, also at a gate of 0, of 60 and of -60, and if the other input is frozen; and forward must be bit for bit silu(gate) * up.",
    instrument="python -c 'from policy import *; import debugkit; print(debugkit.gradcheck(GatedActivation, torch.randn(2, 3), torch.randn(2, 3)))'",
)
def test_gradient_is_the_derivative(submission: Submission, rng: Rng) -> None:
    shapes = ((rng.integer(2, 5), rng.integer(5, 9), 12), (rng.integer(20, 40), 3), (1,), (2, 3))
    for shape, dtype in zip(shapes, (torch.float64, torch.float64, torch.float64, torch.float32), strict=True):
        gate, up, incoming = (rng.normal(*shape, std=2.0, dtype=dtype) for _ in range(3))
        if shape == shapes[1]:
            gate[:3, 0] = torch.tensor([0.0, 60.0, -60.0])
        seen = submission.observe("gradients", gate=gate, up=up, incoming=incoming)
        if shape == shapes[0]:
            expect(formula(seen.get("gate"), gate, up, incoming), "formula")
            expect(in_float32(submission, rng), "error in float32")
            expect(seen["custom"], "whether a custom Function computes it")
            transposed = submission.observe("gradients", gate=gate, up=up, incoming=incoming, layout="transposed")
            expect(lies_contiguous(transposed.get("gate")), "contiguous whatever comes in")
        of = f"of shape {list(shape)} in {str(dtype).removeprefix('torch.')}"
        expect(seen["raised"], f"the error that backward {of} raises").equals(None)
        expect(seen["output"], f"silu(gate) * up {of}").equals(F.silu(gate) * up)
        expect_gradients(seen, gate, up, incoming, of)
        if shape == shapes[1]:
            alone = submission.observe("gradient_of_one", gate=gate, up=up, incoming=incoming)
            expect_gradients(alone, gate, up, incoming, "with the other input frozen")


@check(
    kind="behaviour",
    title="The incoming gradient is only read",
    property="Backward must not change the incoming buffer, nor gate and up: if outputs are added, another branch of the graph reads it too.",
    instrument="python -c 'from policy import *; gate, up = (torch.randn(2, 3, requires_grad=True) for _ in range(2)); incoming = torch.ones(2, 3); gated_activation(gate, up).backward(incoming); print(incoming)'",
)
def test_incoming_gradient_is_only_read(submission: Submission, rng: Rng) -> None:
    shape = (rng.integer(3, 6), rng.integer(6, 9))
    gate, up, skip, incoming = (rng.normal(*shape, dtype=torch.float64) for _ in range(4))
    seen = submission.observe("gradients", gate=gate, up=up, incoming=incoming)
    expect(
        torch.equal(seen["incoming"], incoming), "backward leaves the incoming gradient's buffer as it was:"
    ).is_true()
    for name, before, after in zip(("gate", "up"), (gate, up), seen["inputs"], strict=True):
        expect(torch.equal(after, before), f"backward leaves {name} as it was:").is_true()
    both = submission.observe("gradients_of_a_residual", gate=gate, up=up, skip=skip, incoming=incoming)
    expect(both["skip"], "the gradient of the other branch of a residual connection").close_to(incoming, **EXACT)
    expect_gradients(both, gate, up, incoming, "in a residual connection")


@check(
    kind="behaviour",
    title="The memory layout of the incoming gradient does not matter",
    property="A transposed, a sliced and an expanded incoming gradient must give the same gradients as a contiguous one.",
    instrument="python -c 'from policy import *; x = [torch.randn(3, 3, requires_grad=True) for _ in range(2)]; g = torch.randn(3, 3).t(); print([(a - b).abs().max() for a, b in zip(*(torch.autograd.grad(gated_activation(*x), x, i) for i in (g, g.contiguous())))])'",
)
def test_layout_of_the_gradient_does_not_matter(submission: Submission, rng: Rng) -> None:
    shape = (rng.integer(3, 6), rng.integer(6, 9), rng.integer(10, 13))
    gate, up = rng.normal(*shape, dtype=torch.float64), rng.normal(*shape, dtype=torch.float64)
    for layout in LAYOUTS:
        incoming = rng.normal(*shape, dtype=torch.float64)
        if layout == "expanded":
            incoming = incoming[..., :1].repeat(1, 1, shape[-1])
        seen = submission.observe("gradients", gate=gate, up=up, incoming=incoming, layout=layout)
        expect(seen["raised"], f"the error that backward raises with a {layout} gradient").equals(None)
        expect_gradients(seen, gate, up, incoming, f"from a {layout} gradient")


@check(
    kind="behaviour",
    title="Two uses in one graph are independent",
    property="With two activations in one graph, and a forward without a graph between them and backward, each must give the same gradients as alone.",
    instrument="python -c 'from policy import *; x, y = ([torch.randn(3, requires_grad=True) for _ in range(2)] for _ in range(2)); print(torch.autograd.grad((gated_activation(*x) + gated_activation(*y)).sum(), x), torch.autograd.grad(gated_activation(*x).sum(), x))'",
)
def test_two_uses_are_independent(submission: Submission, rng: Rng) -> None:
    shape = (2, rng.integer(3, 6), rng.integer(6, 9))
    gate, up, incoming = (rng.normal(*shape, dtype=torch.float64) for _ in range(3))
    together = submission.observe("gradients_of_two_uses", gate=gate, up=up, incoming=incoming)
    latest, _ = derivative(gate[0] + 1.0, up[0] + 1.0, incoming[0])
    expect(torch.allclose(together["gate"][0], latest, **EXACT), "the first use has the latest forward's gradient")
    for use in range(2):
        seen = {name: value[use] for name, value in together.items()}
        expect_gradients(seen, gate[use], up[use], incoming[use], f"in use {use + 1} of 2")


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
    kind="behaviour",
    title="Half precision, autocast and large gates make no difference",
    property="In every floating-point dtype, and under autocast, the output must be bit for bit silu(gate) * up in the dtype of the inputs, the gradients must be the derivative at any gate, and no more than two tensors of the inputs' size may be kept. Each MLP must give the stock MLP's output, bit for bit.",
    instrument="python -c 'from policy import *; x = [torch.tensor([-100.0, 0.0, 100.0], requires_grad=True) for _ in range(2)]; print(torch.autograd.grad(gated_activation(*x).sum(), x)); print(gated_activation(*(i.bfloat16() for i in x)).dtype)'",
)
def test_precision_and_large_gates(submission: Submission, rng: Rng) -> None:
    for dtype, autocast, large in PRECISIONS:
        shape = (len(large), rng.integer(5, 9))
        gate, up, incoming = rng.normal(*shape, std=2.0), *(rng.uniform(*shape, low=1.0, high=2.0) for _ in range(2))
        gate[:, 0] = torch.tensor(large)
        gate, up, incoming = (x.to(dtype) for x in (gate, up, incoming))
        seen = submission.observe("precise", gate=gate, up=up, incoming=incoming, autocast=autocast)
        of = f"in {str(dtype).removeprefix('torch.')}{' under autocast' * autocast}"
        expect(seen["output"], f"silu(gate) * up {of}").equals(F.silu(gate) * up)
        expect(seen["kept"], f"the number of tensors that the activation keeps {of}").at_most(2.0)
        rounding = ROUNDING[dtype]
        wanted = dict(zip(("gate", "up"), derivative(gate.double(), up.double(), incoming.double()), strict=True))
        for name in ("up", "gate"):
            said = f"the gradient of {name} {of}, at gates from {min(large):g} to {max(large):g},"
            expect(seen[name], said).close_to(wanted[name].to(dtype), rtol=rounding, atol=rounding)
    for autocast in (False, True):
        hidden, seed = rng.normal(3, rng.integer(4, 8), 64), rng.seed()
        found = submission.observe("mlps", hidden=hidden, seed=seed, autocast=autocast)
        expect(len(found["ours"]), "the number of MLPs").equals(len(Policy.from_base(seed=seed).language_model.layers))
        for layer, (ours, stock) in enumerate(zip(found["ours"], found["stock"], strict=True)):
            expect(
                ours, f"the output of the MLP of layer {layer} {'under' if autocast else 'without'} autocast"
            ).equals(stock)


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
    property="The policy must have the stock policy's weights under the stock policy's names, and the gradient of each must be the stock policy's.",
    instrument="debugkit.check(policy, batch, select=['DK113'])",
)
def test_parameters_are_the_stock_policys(submission: Submission, rng: Rng) -> None:
    expect_stock_parameters(submission)
    seed = rng.seed()
    seen = submission.observe("exchanged", seed=seed)
    names = sorted(Policy.from_base(seed=seed).state_dict())
    batch, stock = random_batch(rng, 4), Policy.from_base(seed=seed).train()
    stock(**batch).loss.backward()
    wanted = {name: value.grad for name, value in stock.named_parameters() if value.grad is not None}
    found = submission.observe("policy_gradients", batch=batch, seed=seed)
    smallest = 1e-3 * max(float(value.norm()) for value in wanted.values())
    others = [
        name
        for name, value in wanted.items()
        if not distance(found[name], value) < 1e-3 * float(value.norm()) + 1e-2 * smallest
    ]
    expect(others, "the list of parameters with another gradient than the stock policy's").equals([])
    expect(seen["own"], "the list of tensors in the checkpoint").equals(names)
    expect(seen["same"], "the list of tensors in the checkpoint that are those of the stock policy").equals(names)


@check(
    kind="outcome",
    title="Training follows the stock policy's loss curve",
    property=f"Over {STEPS} steps on the same batches, no loss may differ from the stock policy's by more than {CURVE_BAR:g}.",
    instrument="lab run 18",
)
def test_training_takes_the_same_course(submission: Submission, seed: int) -> None:
    measured = submission.observe("loss_curve", seed=seed, steps=STEPS)
    expect(measured, "the losses").has_shape(STEPS)
    frames = demonstrations(STEPS * BATCH_SIZE, seed)
    stock = fit(Policy.from_base(seed=seed), frames, steps=STEPS, seed=seed, batch_size=BATCH_SIZE)
    apart = (measured - torch.tensor(stock, dtype=torch.float64)).abs().max()
    expect(float(apart), "the largest distance between the two loss curves").at_most(CURVE_BAR)


DERIVATIVE = "test_gradient_is_the_derivative"
FORMULA = f"{DERIVATIVE}/formula"
ERROR = f"{DERIVATIVE}/error in float32"
KEPT = "test_two_tensors_are_kept/the number of tensors the activation keeps"
READ = "test_incoming_gradient_is_only_read/backward leaves the incoming gradient's buffer as it was:"
LATEST = "test_two_uses_are_independent/the first use has the latest forward's gradient"
LAYOUT = "test_layout_of_the_gradient_does_not_matter/the error that backward raises with a transposed gradient"


@wrong_fix(
    "finite_difference",
    says="This is a finite difference: the derivative to nine digits. It costs two more forwards, and in float32, where training runs, its rounding error is far too large. Write the derivative out.",
)
def recognise_finite_difference(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "nearly the derivative" and evidence[ERROR] > 1e-3


@wrong_fix(
    "contiguous_only",
    says="The layout of the incoming gradient is handled now, but it was not the fault: the gradient of gate still lacks a term.",
)
def recognise_contiguous(evidence: Mapping[str, Any]) -> bool:
    contiguous = evidence[f"{DERIVATIVE}/contiguous whatever comes in"]
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
    return evidence[FORMULA] == "the derivative" and evidence[READ] is False


@wrong_fix(
    "leave_it_to_autograd",
    says="The gradient is correct, because autograd computes it, but the memory is no longer saved: silu(gate) is kept as a third tensor.",
)
def recognise_autograd(evidence: Mapping[str, Any]) -> bool:
    by_autograd = evidence[f"{DERIVATIVE}/whether a custom Function computes it"] is False
    return by_autograd and evidence[FORMULA] == "the derivative" and evidence[KEPT] > 2.5


@wrong_fix(
    "kept_on_the_class",
    says="What backward needs is kept where there is room for one forward: the latest one overwrites it, and all uses get its gradient. Keep it in ctx, which each use has for itself.",
)
def recognise_kept_on_class(evidence: Mapping[str, Any]) -> bool:
    return evidence[LATEST] is True and evidence[FORMULA] == "the derivative"


@wrong_fix(
    "flat_view",
    says="The formula is correct, but `view` needs a gradient that is contiguous in memory. Autograd also passes transposed and expanded ones; elementwise arithmetic needs no view.",
)
def recognise_flat_view(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the derivative" and "view size is not compatible" in (evidence[LAYOUT] or "")


def expect_gradients(seen: Mapping[str, Any], gate: Tensor, up: Tensor, incoming: Tensor, where: str) -> None:
    """The gradients of gate and up must be the derivative, to a few roundings."""
    wanted = dict(zip(("gate", "up"), derivative(gate.double(), up.double(), incoming.double()), strict=True))
    exact = EXACT if gate.dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
    for name in ("up", "gate"):
        expect(seen[name], f"the gradient of {name} {where}").close_to(wanted[name].to(gate.dtype), **exact)


def distance(gradient: Any, wanted: Tensor) -> float:
    """How far a gradient is from the one wanted; infinitely far if there is none."""
    return float((gradient - wanted).norm()) if isinstance(gradient, Tensor) else math.inf


def in_float32(submission: Submission, rng: Rng) -> float:
    """The largest error of the gradient of gate in float32; infinite if there is none."""
    gate, up, incoming = (rng.normal(8, 16) for _ in range(3))
    seen = submission.observe("gradients", gate=gate, up=up, incoming=incoming)
    if seen["raised"] is not None:
        return math.inf
    return float((seen["gate"] - derivative(gate, up, incoming)[0]).abs().max())


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
