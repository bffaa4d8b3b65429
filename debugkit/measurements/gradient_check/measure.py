"""gradcheck: is a hand-written backward correct, also where torch.autograd.gradcheck does not look?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from debugkit.measurements.gradient_check import GradientCheck, GradientTest, WorstEntry
from debugkit.randomness import same_randomness


def gradcheck(
    function: Callable[..., Any] | type[torch.autograd.Function],
    *inputs: Any,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
) -> GradientCheck:
    """Compare the backward of a function with finite differences in float64, and test what that comparison leaves out.

    `function` is a callable or a torch.autograd.Function. Floating inputs are checked in float64; others are passed on.
    Keep them small: the cost is two forward calls per number of the inputs. Beyond the Jacobian it tests whether the
    gradient is the same if the incoming gradient is not contiguous (as after a transpose) or expanded (as after
    `.sum()`), whether backward writes into that incoming buffer, which other nodes still read, and whether two uses in
    one graph add up. `eps` is how far each input is moved; `atol` and `rtol` are the tolerances.

    Raises ValueError if no input is a floating tensor, or if the output depends on a random number.

    >>> class Cube(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x**3
    ...     @staticmethod
    ...     def backward(ctx, gradient):
    ...         return gradient * 3 * ctx.saved_tensors[0]  # x, not x²
    >>> check = gradcheck(Cube, torch.tensor([2.0, 3.0]))
    >>> bool(check), check.worst.backward, round(check.worst.finite_difference, 6)
    (False, 9.0, 27.0)
    """
    call = _Checked(function, inputs)
    with torch.enable_grad(), same_randomness():
        outputs = call.fresh()[1]
        if any(not torch.equal(a, b) for a, b in zip(outputs, call.fresh()[1], strict=True)):
            raise ValueError("Two calls give different outputs: pass random numbers as inputs, or fix the seed inside.")
        expected = [call.gradients(g) for g in _incoming(outputs)]
        worst, ok = _worst_entry(call, outputs, eps, atol, rtol)
        tests = (
            GradientTest("float64 Jacobian", ok, "equals finite differences" if ok else "differs, see below"),
            _same("strided incoming gradient", call, outputs, expected, _strided),
            _expanded(call, outputs),
            _buffer_unchanged(call, outputs),
            _double_use(call, outputs, expected),
        )
    return GradientCheck(tests, None if ok else worst, eps, atol, rtol)


class _Checked:
    """The function and its inputs, of which each call gets fresh copies."""

    def __init__(self, function: Callable[..., Any] | type[torch.autograd.Function], inputs: tuple[Any, ...]) -> None:
        is_class = isinstance(function, type) and issubclass(function, torch.autograd.Function)
        self.function: Callable[..., Any] = function.apply if is_class else function  # type: ignore[union-attr]
        self.inputs = inputs
        self.floating = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.is_floating_point()]
        if not self.floating:
            raise ValueError("gradcheck needs at least one floating-point tensor among the inputs.")

    def values(self) -> list[Any]:
        """The inputs: floating ones as float64 leaves, the others unchanged."""
        return [
            x.detach().double().clone().requires_grad_() if i in self.floating else x for i, x in enumerate(self.inputs)
        ]

    def fresh(self) -> tuple[list[Tensor], list[Tensor]]:
        """New leaves and the floating outputs computed from them. Calls may draw different random numbers."""
        values = self.values()
        return [values[i] for i in self.floating], self.outputs(values)

    def outputs(self, values: list[Any]) -> list[Tensor]:
        made = self.function(*values)
        tensors = [made] if isinstance(made, Tensor) else list(made)
        return [t for t in tensors if isinstance(t, Tensor) and t.is_floating_point()]

    def gradients(self, incoming: list[Tensor], times: int = 1) -> list[Tensor]:
        """The inputs' gradients for this incoming gradient, zeros if there is none, with `times` uses in one graph."""
        values = self.values()
        leaves = [values[i] for i in self.floating]
        outputs = [output for _ in range(times) for output in self.outputs(values)]
        pairs = [(o, g) for o, g in zip(outputs, incoming * times, strict=True) if o.requires_grad]
        if not pairs:
            return [torch.zeros_like(leaf) for leaf in leaves]
        found = torch.autograd.grad([o for o, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True)
        return [torch.zeros_like(x) if g is None else g.clone() for x, g in zip(leaves, found, strict=True)]


def _worst_entry(
    call: _Checked, outputs: list[Tensor], eps: float, atol: float, rtol: float
) -> tuple[WorstEntry | None, bool]:
    """The Jacobian entry that exceeds the tolerance most, and whether all entries are within the tolerance."""
    worst, most, ok = None, -1.0, True
    for number, output in enumerate(outputs):
        for position in range(output.numel()):
            incoming = [torch.zeros_like(o) for o in outputs]
            incoming[number].view(-1)[position] = 1.0
            backward = call.gradients(incoming)
            for which, numeric in enumerate(_finite_differences(call, number, position, eps)):
                gap = (backward[which] - numeric).abs() - rtol * numeric.abs()
                gap = gap.nan_to_num(nan=float("inf"))
                ok = ok and bool((gap <= atol).all())
                if gap.numel() and float(gap.max()) > most:
                    most, at = float(gap.max()), int(gap.argmax())
                    worst = WorstEntry(
                        input=call.floating[which],
                        input_index=_index(at, numeric.shape),
                        output_index=_index(position, output.shape),
                        backward=float(backward[which].reshape(-1)[at]),
                        finite_difference=float(numeric.reshape(-1)[at]),
                    )
    return worst, ok


def _finite_differences(call: _Checked, number: int, position: int, eps: float) -> list[Tensor]:
    """Central differences of one output number with respect to each floating input."""
    found = []
    with torch.no_grad():
        for which in call.floating:
            numeric = torch.zeros(call.inputs[which].shape, dtype=torch.float64)
            for at in range(numeric.numel()):
                ends = []
                for step in (eps, -eps):
                    values = call.values()
                    values[which].detach().reshape(-1)[at] += step
                    ends.append(float(call.outputs(values)[number].reshape(-1)[position]))
                numeric.view(-1)[at] = (ends[0] - ends[1]) / (2 * eps)
            found.append(numeric)
    return found


def _incoming(outputs: list[Tensor]) -> list[list[Tensor]]:
    """One incoming gradient without any symmetry, drawn from a separate generator."""
    generator = torch.Generator().manual_seed(0)
    return [[torch.rand(o.shape, generator=generator, dtype=o.dtype) + 0.5 for o in outputs]]


def _strided(gradient: Tensor) -> Tensor:
    """The same numbers in every second element of a buffer, with the dimensions in reverse order in memory."""
    wide = torch.zeros((*reversed(gradient.shape), 2), dtype=gradient.dtype)
    view = wide[..., 0].permute(*reversed(range(gradient.ndim))) if gradient.ndim else wide[0]
    view.copy_(gradient)
    return view


def _same(
    name: str, call: _Checked, outputs: list[Tensor], expected: list[list[Tensor]], change: Callable[[Tensor], Tensor]
) -> GradientTest:
    (incoming,) = _incoming(outputs)
    try:
        found = call.gradients([change(g) for g in incoming])
    except RuntimeError as error:
        return GradientTest(name, False, f"raises: {str(error).partition(chr(10))[0]}")
    ok = _close(found, expected[0])
    return GradientTest(name, ok, "same gradient as contiguous" if ok else "different gradient than contiguous")


def _expanded(call: _Checked, outputs: list[Tensor]) -> GradientTest:
    """The backward of `.sum()` returns one number expanded to the whole shape, with stride 0."""
    name = "expanded incoming gradient"
    try:
        found = call.gradients([torch.ones((), dtype=o.dtype).expand(o.shape) for o in outputs])
    except RuntimeError as error:
        return GradientTest(name, False, f"raises: {str(error).partition(chr(10))[0]}")
    ok = _close(found, call.gradients([torch.ones_like(o) for o in outputs]))
    return GradientTest(name, ok, "same gradient as contiguous" if ok else "different gradient than contiguous")


def _buffer_unchanged(call: _Checked, outputs: list[Tensor]) -> GradientTest:
    (incoming,) = _incoming(outputs)
    before = [g.clone() for g in incoming]
    call.gradients(incoming)
    ok = all(torch.equal(a, b) for a, b in zip(incoming, before, strict=True))
    return GradientTest(
        "incoming buffer unchanged",
        ok,
        "backward only reads it" if ok else "backward writes into it; other branches of the graph read it afterwards",
    )


def _double_use(call: _Checked, outputs: list[Tensor], expected: list[list[Tensor]]) -> GradientTest:
    """Two uses share everything that is kept outside ctx: on the class, in a closure, in a reused buffer."""
    (incoming,) = _incoming(outputs)
    name = "used twice in one graph"
    other = _Checked(call.function, tuple(_shifted(x) if i in call.floating else x for i, x in enumerate(call.inputs)))
    with contextlib.suppress(RuntimeError):
        alone = other.gradients([g.clone() for g in incoming])
        together = _interleaved(call, other, incoming)
        ok = _close(together[0], expected[0]) and _close(together[1], alone)
        return GradientTest(
            name, ok, "each use has its own gradient" if ok else "one use overwrites the saved state of the other"
        )
    return GradientTest(name, False, "raises on the second use")


def _interleaved(first: _Checked, second: _Checked, incoming: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Both forwards, then both backwards."""
    (leaves_a, outputs_a), (leaves_b, outputs_b) = first.fresh(), second.fresh()
    needed = [o for o in (*outputs_a, *outputs_b) if o.requires_grad]
    gradients = [g for o, g in zip((*outputs_a, *outputs_b), incoming * 2, strict=True) if o.requires_grad]
    leaves = [*leaves_a, *leaves_b]
    found = torch.autograd.grad(needed, leaves, [g.clone() for g in gradients], allow_unused=True)
    full = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
    return full[: len(leaves_a)], full[len(leaves_a) :]


def _shifted(tensor: Tensor) -> Tensor:
    return tensor.detach() * 1.5 + 0.1


def _close(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.allclose(x, y, rtol=1e-9, atol=1e-12, equal_nan=True) for x, y in zip(a, b, strict=True))


def _index(flat: int, shape: torch.Size) -> tuple[int, ...]:
    found: list[int] = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        found.append(place)
    return tuple(reversed(found))
