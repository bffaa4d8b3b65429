"""Checks for every hand-written backward in the loss's graph whether it is the derivative of its forward."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from debugkit._torch_private import function_of
from debugkit.finding import SourceLine
from debugkit.frames import one_line, user_line
from debugkit.interventions.losses import losses_of
from debugkit.measurements.autograd_graph.measure import is_custom, walk
from debugkit.measurements.gradient_check import GradientCheck
from debugkit.measurements.gradient_check.measure import gradcheck
from debugkit.randomness import same_randomness
from debugkit.rules.dk108_wrong_custom_backward import CustomFunction, CustomFunctions
from debugkit.rules.dk108_wrong_custom_backward.shrink_inputs import small_inputs
from debugkit.setup import TrainingSetup

FunctionClass = type[torch.autograd.Function]
Call = Callable[..., Any]

_JACOBIAN = "float64 Jacobian"
_BUFFER = "incoming buffer unchanged"
_ZERO = 1e-9
"""A smaller finite difference is treated as that of a constant."""


# One forward if there is no custom Function. The checks run on a few dozen numbers.
def check_custom_backwards(setup: TrainingSetup) -> CustomFunctions:
    """Find the Functions in the graph, record one real call of each, and check each on small inputs cut from it."""
    classes = _functions_in_graph(setup)
    if not classes:
        return CustomFunctions(())
    checked, unchecked = [], []
    for cls, call in _recorded_calls(setup, classes).items():
        try:
            if (result := _checked(cls, *call)) is not None:
                checked.append(result)
        except Exception as error:  # for example a kernel without float64, or a missing process group
            unchecked.append((cls.__name__, one_line(error)))
    return CustomFunctions(tuple(checked), tuple(unchecked))


def _functions_in_graph(setup: TrainingSetup) -> set[FunctionClass]:
    nodes = walk(losses_of(setup), stop_at_zero_gradient=False).nodes
    found = {function_of(node) for node in nodes if is_custom(node)}
    return {cls for cls in found if not cls.__module__.startswith(("torch.", "transformers."))}


def _recorded_calls(
    setup: TrainingSetup, classes: set[FunctionClass]
) -> dict[FunctionClass, tuple[tuple[Any, ...], list[bool], SourceLine | None]]:
    """The arguments of each Function's first call, which of them need a gradient, and the calling line.

    `forward` is replaced rather than `apply`, because many programs keep a reference to `apply`.
    """
    calls: dict[FunctionClass, tuple[tuple[Any, ...], list[bool], SourceLine | None]] = {}

    def recording(cls: FunctionClass, forward: Call) -> Call:
        def record(*arguments: Any) -> Any:
            inputs = arguments if _has_setup_context(cls) else arguments[1:]
            if cls not in calls:
                kept = tuple(a.detach().clone() if isinstance(a, Tensor) else a for a in inputs)
                calls[cls] = kept, _needs_gradient(arguments, inputs), user_line()
            return forward(*arguments)

        return record

    with contextlib.ExitStack() as stack:
        for cls in classes:
            stack.enter_context(_replaced_forward(cls, recording(cls, cls.forward)))
        losses_of(setup)
    return calls


@contextlib.contextmanager
def _replaced_forward(cls: FunctionClass, replacement: Call) -> Iterator[None]:
    own = cls.__dict__.get("forward")
    type.__setattr__(cls, "forward", staticmethod(replacement))
    try:
        yield
    finally:
        if own is None:
            del cls.forward
        else:
            type.__setattr__(cls, "forward", own)


def _needs_gradient(arguments: tuple[Any, ...], inputs: tuple[Any, ...]) -> list[bool]:
    ctx = arguments[0] if len(arguments) > len(inputs) else None
    flags = getattr(ctx, "needs_input_grad", None) or [isinstance(a, Tensor) and a.requires_grad for a in inputs]
    return [
        bool(flag) and isinstance(a, Tensor) and a.is_floating_point() for flag, a in zip(flags, inputs, strict=True)
    ]


def _has_setup_context(cls: FunctionClass) -> bool:
    return cls.setup_context is not torch.autograd.Function.setup_context


def _checked(
    cls: FunctionClass, arguments: tuple[Any, ...], needed: list[bool], called_at: SourceLine | None
) -> CustomFunction | None:
    """The result of the checks. None if no input needs a gradient, or if none gets one, which DK105 reports."""
    call, inputs = _accepted(cls, arguments, needed)
    if not inputs:
        return None
    check = gradcheck(call, *inputs)
    on_purpose = _on_purpose(call, inputs) if check.worst else None
    coarse = _computes_in_single_precision(call, inputs)
    if check.worst and coarse and on_purpose is None:
        check = _with(check, gradcheck(call, *inputs, eps=5e-3, atol=2e-2, rtol=5e-2))
    failed = [test for test in check.tests if not test.ok and not (test.name == _JACOBIAN and on_purpose)]
    if coarse:  # a float32 sum may depend on the memory layout: only exceptions and writes count
        failed = [t for t in failed if t.name in (_JACOBIAN, _BUFFER) or t.says.startswith("raises")]
    return CustomFunction(
        name=cls.__name__,
        backward=_line_of(cls.backward),
        called_at=called_at,
        shapes=tuple(tuple(tensor.shape) for tensor in inputs),
        failed=tuple(sorted(failed, key=lambda test: test.name != _BUFFER)),
        worst=None if on_purpose else check.worst,
        on_purpose=on_purpose,
        single_precision=coarse,
    )


def _with(check: GradientCheck, repeated: GradientCheck) -> GradientCheck:
    """The first result with the Jacobian test of the second."""
    tests = tuple(b if a.name == _JACOBIAN else a for a, b in zip(check.tests, repeated.tests, strict=True))
    return GradientCheck(tests, repeated.worst, repeated.eps, repeated.atol, repeated.rtol)


def _accepted(cls: FunctionClass, arguments: tuple[Any, ...], needed: list[bool]) -> tuple[Call, list[Tensor]]:
    """The Function as a function of its differentiable inputs only, and the smallest inputs that it accepts."""
    refusal: Exception = ValueError("Every input size that it accepts is too large for a Jacobian.")
    for candidate in small_inputs(arguments):
        try:
            used = _positions_with_gradient(cls, candidate, needed)
        except Exception as error:
            refusal = error
            continue
        if used is not None:
            return _function_of(cls, candidate, used), [candidate[place] for place in used]
    raise refusal


def _positions_with_gradient(cls: FunctionClass, arguments: tuple[Any, ...], needed: list[bool]) -> list[int] | None:
    """The inputs for which backward returns a gradient; None if the output is not finite or too large here."""
    places = [place for place, flag in enumerate(needed) if flag]
    leaves = [arguments[place].clone().requires_grad_() for place in places]
    outputs = [o for o in _outputs(_function_of(cls, arguments, places)(*leaves)) if o.requires_grad]
    if any(not output.isfinite().all() for output in outputs):
        return None
    if not outputs or sum(output.numel() for output in outputs) > 64:
        return [] if not outputs else None
    gradients = torch.autograd.grad(outputs, leaves, [torch.ones_like(o) for o in outputs], allow_unused=True)
    return [place for place, gradient in zip(places, gradients, strict=True) if gradient is not None]


def _function_of(cls: FunctionClass, arguments: tuple[Any, ...], places: list[int]) -> Call:
    """`cls.apply` as a function of the inputs at `places`; the others are fixed. Every call draws the same numbers."""

    def call(*inputs: Tensor) -> Any:
        filled = list(arguments)
        for place, value in zip(places, inputs, strict=True):
            filled[place] = value.clone()  # a forward may write to its input
        with same_randomness(0):
            return cls.apply(*filled)  # type: ignore[no-untyped-call]

    return call


def _on_purpose(call: Call, inputs: list[Tensor]) -> str | None:
    """Why a backward that differs from the derivative is intended: known forms of surrogate gradients."""
    outputs = _outputs(call(*inputs))
    if all(any(o.shape == x.shape and torch.equal(o, x) for x in inputs) for o in outputs):
        return "its forward returns its input: it changes gradients on purpose (reversal, scaling, clipping)"
    backward, numeric = _jacobians(call, inputs)
    for analytic, measured in zip(backward, numeric, strict=True):
        if bool((measured.abs() <= _ZERO).all()) and bool(analytic.any()):
            return "its forward is piecewise constant: a straight-through estimator"
    if all(_differs_only_where_flat(a, m) for a, m in zip(backward, numeric, strict=True)):
        return "it differs only where an element's own derivative is zero: a surrogate gradient"
    return None


def _differs_only_where_flat(analytic: Tensor, measured: Tensor) -> bool:
    wrong = (analytic - measured).abs() > 1e-5 + 1e-3 * measured.abs()
    if analytic.shape[0] != analytic.shape[1]:
        return not bool(wrong.any())
    own = torch.eye(len(analytic), dtype=torch.bool)
    return not bool((wrong & ~(own & (measured.abs() <= _ZERO))).any())


def _jacobians(call: Call, inputs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The (outputs, inputs) Jacobian of each input, from backward and from central differences."""

    def flat(values: list[Tensor]) -> Tensor:
        return torch.cat([output.reshape(-1) for output in _outputs(call(*values))])

    leaves = [value.clone().requires_grad_() for value in inputs]
    made = flat(leaves)
    rows = [torch.autograd.grad(made[i], leaves, retain_graph=True, allow_unused=True) for i in range(len(made))]
    backward = [
        torch.stack([torch.zeros_like(leaf) if row[k] is None else row[k] for row in rows]).flatten(1)
        for k, leaf in enumerate(leaves)
    ]
    numeric = []
    with torch.no_grad():
        for which, value in enumerate(inputs):
            columns = []
            for position in range(value.numel()):
                ends = []
                for step in (1e-6, -1e-6):
                    moved = [x.clone() for x in inputs]
                    moved[which].view(-1)[position] += step
                    ends.append(flat(moved))
                columns.append((ends[0] - ends[1]) / 2e-6)
            numeric.append(torch.stack(columns, dim=1))
    return backward, numeric


def _computes_in_single_precision(call: Call, inputs: list[Tensor]) -> bool:
    """Whether some input moves the output, but not if it moves by less than the resolution of float32."""

    def moved(which: int, by: float) -> bool:
        shifted = [x * (1 + by) if i == which else x for i, x in enumerate(inputs)]
        with torch.no_grad():
            pairs = zip(_outputs(call(*inputs)), _outputs(call(*shifted)), strict=True)
            return any(not torch.equal(one, other) for one, other in pairs)

    return any(moved(which, 1e-2) and not moved(which, 1e-10) for which in range(len(inputs)))


def _outputs(made: Any) -> list[Tensor]:
    tensors = [made] if isinstance(made, Tensor) else list(made)
    return [t for t in tensors if isinstance(t, Tensor) and t.is_floating_point()]


def _line_of(function: Any) -> SourceLine | None:
    """The line with the `def`, below its decorators."""
    try:
        lines, first = inspect.getsourcelines(function)
        offset = next((i for i, text in enumerate(lines) if text.lstrip().startswith("def ")), 0)
        return SourceLine(inspect.getsourcefile(function) or "", first + offset, function.__name__)
    except (OSError, TypeError):
        return None
