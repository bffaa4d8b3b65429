"""Whether a loss is a mean that nothing scales, from its graph."""

from __future__ import annotations

from typing import Any

from debugkit._torch_private import factor_of, is_mean_reduction

_PASSED_ON = ("Alias", "Clone", "ToCopy", "View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze")
_SUMS = ("Add", "Sub")
_MOST_TERMS = 64


def is_unscaled_mean(loss: Any) -> bool:
    """Whether the loss of a graph node is a mean, or a sum of which one term is a mean, without a factor."""
    return any(_is_mean(node) for node in terms_of(loss))


def terms_of(loss: Any) -> list[Any]:
    """The nodes of the terms that were added up to a loss; it itself if it is no sum."""
    found: list[Any] = []
    waiting, left = [loss], _MOST_TERMS
    while waiting and left:
        node, left = waiting.pop(), left - 1
        if node is None:
            continue
        if not _is_mean(node) and _kind(node) in (*_SUMS, *_PASSED_ON):
            waiting += [before for before, _ in node.next_functions]
        else:
            found.append(node)
    return found


def weights_of_means(loss: Any) -> list[tuple[float, ...]]:
    """For each mean in a sum, the constants by which it is multiplied, as by label smoothing. A term with any other
    operation is left out."""
    found: list[tuple[float, ...]] = []
    waiting: list[tuple[Any, tuple[float, ...]]] = [(loss, ())]
    for _ in range(_MOST_TERMS):
        if not waiting:
            break
        node, factors = waiting.pop()
        for term in terms_of(node):
            factor = factor_of(term)
            if _is_mean(term):
                found.append(factors)
            elif factor is not None:
                waiting.append((next(before for before, _ in term.next_functions if before), (*factors, factor)))
    return found


def _is_mean(node: Any) -> bool:
    return _kind(node) == "Mean" or is_mean_reduction(node)


def _kind(node: Any) -> str:
    name: str = node.name()
    return name.removesuffix("Backward" + name.rpartition("Backward")[2])
