"""How Accelerate and the Trainer of transformers scale a loss whose gradients they accumulate.

Both are found on the stack of the running `backward()`, and only if the program has imported them.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch import Tensor

from debugkit._torch_private import divisor_of, factor_of
from debugkit.finding import SourceLine
from debugkit.frames import definition_line, is_own, own_line
from debugkit.rules.dk507_accumulation_scale import FrameworkScale
from debugkit.rules.dk507_accumulation_scale.means import is_unscaled_mean, terms_of, weights_of_means
from debugkit.source_names import methods_called, tree_of, words_of

_EXACT = 1e-3
_ROUNDING = 1e-6
Shares = frozenset[str]
"""The variables that hold 1 over the number of micro-batches."""
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def framework_scale(loss: Tensor) -> FrameworkScale | None:
    """What Accelerate or the Trainer leaves wrong at this loss; None if nothing, and if that is not certain."""
    accelerator = _caller("accelerate.accelerator", "Accelerator", "backward")
    if accelerator is None:
        return None
    steps = getattr(accelerator.get("self"), "gradient_accumulation_steps", None)
    last: Any = loss.grad_fn
    if type(steps) is not int or divisor_of(last) != steps:
        return None  # a scaler has multiplied it, or an engine divides it
    before = last.next_functions[0][0]
    if steps > 1:
        at = own_line()
        factor = factor_of(before)
        by_steps = factor is not None and abs(factor * steps - 1) <= _ROUNDING
        divided = before.next_functions[0][0] if by_steps else None
        if divided is None or not is_unscaled_mean(divided) or len(terms_of(divided)) == steps:
            return None
        return FrameworkScale("divided twice", steps, at) if at is not None and _divides(at) else None
    return _of_trainer(before)


def _of_trainer(before: Any) -> FrameworkScale | None:
    step = _caller("transformers.trainer", "Trainer", "training_step")
    if step is None:
        return None
    trainer: Any = step.get("self")
    base = sys.modules["transformers.trainer"].Trainer
    steps = getattr(trainer, "current_gradient_accumulation_steps", None)
    override = type(trainer).compute_loss
    at = definition_line(override)
    if type(steps) is not int or steps < 2 or override is base.compute_loss or at is None or not is_own(at.file):
        return None
    weights = weights_of_means(before)
    by_steps = any(abs(abs(factor) * steps - 1) <= _EXACT for factors in weights for factor in factors)
    weight = max((abs(math.prod(factors)) for factors in weights), default=0.0)
    if getattr(trainer, "loss_is_scaled_for_ga", None) is not None or by_steps or weight * steps <= 1 + _EXACT:
        return None
    return FrameworkScale("not divided", steps, at, weight)


def _caller(module: str, owner: str, method: str) -> dict[str, Any] | None:
    """The local variables of a running method; None if it does not run."""
    function = getattr(getattr(sys.modules.get(module), owner, None), method, None)
    code = getattr(function, "__code__", None)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and code is not None:
        if frame.f_code is code:
            return frame.f_locals
        frame = frame.f_back
    return None


def _divides(at: SourceLine) -> bool:
    """Whether the loss of the `backward(…)` in this line was divided by a number that is named after accumulation."""
    tree = tree_of(at.file)
    calls = methods_called(tree, "backward", at.line)
    if len(calls) != 1 or not calls[0].args:
        return False
    given = calls[0].args[0]
    before = list(_executed(_scope(tree, at.line), at.line))
    shares = frozenset(name for node in [*tree.body, *before] for name in _share_assigned(node))
    if isinstance(given, ast.Name):
        return any(_assigns_quotient(node, given.id, shares) for node in before)
    return _is_quotient(given, shares)


def _assigns_quotient(node: ast.stmt, name: str, shares: Shares) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name(id=target)], value=value):
            return target == name and _is_quotient(value, shares)
        case ast.AugAssign(target=ast.Name(id=target), op=ast.Div(), value=value):
            return target == name and _is_accumulation(value)
        case ast.AugAssign(target=ast.Name(id=target), op=ast.Mult(), value=value):
            return target == name and _is_share(value, shares)
    return False


def _is_quotient(node: ast.expr, shares: Shares) -> bool:
    """Whether it is `loss / accum`, `loss * (1 / accum)`, or the same with a method."""
    match node:
        case ast.BinOp(op=ast.Div(), right=divisor):
            return _is_accumulation(divisor)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _is_share(left, shares) or _is_share(right, shares)
        case ast.Call(func=ast.Attribute(attr="div" | "true_divide"), args=[divisor]):
            return _is_accumulation(divisor)
        case ast.Call(func=ast.Attribute(attr="mul" | "multiply"), args=[factor]):
            return _is_share(factor, shares)
    return False


def _is_share(node: ast.expr, shares: Shares) -> bool:
    """Whether it is `1 / accum`, or a variable with this value."""
    match node:
        case ast.BinOp(left=ast.Constant(), op=ast.Div(), right=divisor):
            return _is_accumulation(divisor)
        case ast.Name(id=name):
            return name in shares
    return False


def _share_assigned(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_share(value, frozenset()):
            yield name


def _is_accumulation(node: ast.expr) -> bool:
    return any(word == "acc" or word.startswith("accum") for word in words_of(node))


def _scope(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function that contains a line; the module if none does."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(functions, key=lambda node: node.lineno, default=tree)


def _executed(scope: ast.AST, line: int) -> Iterator[ast.stmt]:
    """The statements of a scope, without the branches that may not run before the line: those of other cases."""
    for name in ("body", "orelse", "finalbody"):
        for node in getattr(scope, name, ()):
            if isinstance(node, _SCOPES):
                continue
            if isinstance(node, ast.If):
                for branch in (node.body, node.orelse):
                    inside = any(part.lineno <= line <= (part.end_lineno or part.lineno) for part in branch)
                    by_steps = any(
                        isinstance(part, ast.expr) and _is_accumulation(part) for part in ast.walk(node.test)
                    )
                    if inside or (by_steps and branch is node.body):
                        yield from _executed(ast.Module(branch, []), line)
            elif isinstance(node, ast.stmt):
                yield node
                yield from _executed(node, line)
