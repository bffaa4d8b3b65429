"""A cosine schedule that is as long as the number of epochs, and is stepped for each batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from debugkit.finding import Finding, Severity, SourceLine
from debugkit.loop.optimizer_events import LoopEvent, OptimizerEvents
from debugkit.loop.step_intervals import name_of
from debugkit.rule import Context
from debugkit.source_names import tree_of, words_of

_HALF_PERIODS = 3  # down, up, and down again
_FEWEST = 8
_PER_STEP = 0.9
_EPOCHS = frozenset({"epoch", "epochs"})
_NUMBER_OF = frozenset({"num", "number", "n", "nb", "no", "of", "max", "maximum", "total", "train", "training"})


def returns_to_a_high_rate(
    seen: OptimizerEvents, number: int, schedule: list[LoopEvent], context: Context
) -> Iterator[Finding]:
    """`CosineAnnealingLR(optimizer, T_max=epochs)` whose `step()` is called in the loop over the batches."""
    if not schedule or (length := schedule[-1].half_period) is None:
        return
    last = schedule[-1]
    own = [event for event in schedule if event.half_period == length and event.built == last.built]
    steps = [e for e in seen.events if e.kind == "step" and number in e.optimizers and e.order > own[0].order]
    per_step = len(own) >= _FEWEST and _PER_STEP * len(steps) <= len(own) - 1 <= len(steps) / _PER_STEP
    if last.taken < _HALF_PERIODS * length or not per_step or not _counts_epochs(last.built, last.at):
        return
    rates = [event.largest_rate for event in own if event.largest_rate is not None]
    if not rates or max(rates) == min(rates):
        return
    yield context.finding(
        f"`CosineAnnealingLR` of {name_of(seen, number)} has `T_max={length:,}`, a number of epochs, but was stepped "
        f"for each batch, {last.taken:,} times. The learning rate falls for {length:,} steps and rises again for as "
        f"many.",
        at=last.at,
        evidence={
            "half_period": length,
            "scheduler_steps": last.taken,
            "needed_half_periods": _HALF_PERIODS,
            "optimizer_steps": seen.steps[number],
            "largest_rate": max(rates),
            "smallest_rate": min(rates),
        },
        fix="Step the scheduler once per epoch, or pass `T_max=epochs * len(loader)`.",
        severity=Severity.WARNING,
    )


def _counts_epochs(built: SourceLine | None, stepped: SourceLine | None) -> bool:
    """Whether the program names `T_max` a number of epochs, or repeats the loop around `step()` as often."""
    length = _length(built)
    if built is None or length is None:
        return False
    minuend = length.left if isinstance(length, ast.BinOp) and isinstance(length.op, ast.Add | ast.Sub) else length
    words = words_of(minuend) if not isinstance(minuend, ast.BinOp) else frozenset()
    if words & _EPOCHS and words <= _EPOCHS | _NUMBER_OF:
        return True
    if stepped is None or stepped.file != built.file:
        return False
    wanted = ast.dump(length)
    return any(ast.dump(stop) == wanted for loop in _loops_around(stepped)[:-1] for stop in _stops(loop))


def _length(built: SourceLine | None) -> ast.expr | None:
    for node in ast.walk(tree_of(built.file)) if built is not None else ():
        if isinstance(node, ast.Call) and built is not None and node.lineno == built.line:
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            if name == "CosineAnnealingLR":
                given = [keyword.value for keyword in node.keywords if keyword.arg == "T_max"]
                return next(iter([*given, *node.args[1:2]]), None)
    return None


def _loops_around(line: SourceLine) -> list[ast.For]:
    """The `for` loops of one function that contain a line, from the outermost inwards."""
    scopes = [tree_of(line.file)] + [
        node
        for node in ast.walk(tree_of(line.file))
        if isinstance(node, ast.FunctionDef) and node.lineno <= line.line <= (node.end_lineno or node.lineno)
    ]
    inside = [
        node
        for node in ast.walk(scopes[-1])
        if isinstance(node, ast.For) and node.body[0].lineno <= line.line <= (node.body[-1].end_lineno or 0)
    ]
    return sorted(inside, key=lambda loop: loop.lineno)


def _stops(loop: ast.For) -> Iterator[ast.expr]:
    """The number of repetitions in `range(n)`, `range(1, n + 1)` and `trange(n)`."""
    for node in ast.walk(loop.iter):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("range", "trange"):
            match node.args:
                case [stop] | [ast.Constant(value=0), stop]:
                    yield stop
                case [ast.Constant(value=1), ast.BinOp(left=stop, op=ast.Add(), right=ast.Constant(value=1))]:
                    yield stop
                case [ast.Constant(value=1), ast.Constant(value=int(after))]:
                    yield ast.Constant(after - 1)
