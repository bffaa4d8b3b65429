"""How a function's backward compares with finite differences, and the results of tests beyond that comparison."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.plain_data import PlainData


@dataclass(frozen=True)
class WorstEntry(PlainData):
    """The Jacobian entry with the largest difference between backward and finite differences."""

    input: int
    input_index: tuple[int, ...]
    output_index: tuple[int, ...]
    backward: float
    finite_difference: float


@dataclass(frozen=True)
class GradientTest(PlainData):
    """One test of a backward, and its result."""

    name: str
    ok: bool
    says: str


@dataclass(frozen=True)
class GradientCheck(PlainData):
    """The result of `gradcheck`; true if every test passes."""

    tests: tuple[GradientTest, ...]
    worst: WorstEntry | None
    eps: float
    atol: float
    rtol: float

    def __bool__(self) -> bool:
        return all(test.ok for test in self.tests)

    def __str__(self) -> str:
        lines = ["The backward is correct." if self else "The backward is wrong.", ""]
        lines += [f"  {'ok' if test.ok else 'WRONG':<6} {test.name:<28} {test.says}" for test in self.tests]
        if self.worst is not None:
            w = self.worst
            lines += [
                "",
                f"  largest difference: d output{list(w.output_index)} / d input {w.input}{list(w.input_index)}: "
                f"backward {w.backward:.6g}, finite difference {w.finite_difference:.6g}",
            ]
        lines += [
            "",
            f"  eps={self.eps:g}: each input is moved this far either way; the error of the difference is about eps²,",
            "    and rounding adds 1e-16/eps: in float64 1e-6 balances the two, in float32 nothing does.",
            f"  atol={self.atol:g}, rtol={self.rtol:g}: passes if |difference| ≤ atol + rtol · |finite difference|.",
        ]
        return "\n".join(lines)
