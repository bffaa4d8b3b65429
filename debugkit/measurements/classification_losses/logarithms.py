"""Whether the autograd graph shows that a logarithm was taken after the last layer with weights."""

from __future__ import annotations

from typing import Any

from debugkit._torch_private import function_of

_LOGARITHMS = ("Log", "Xlogy", "Softplus")
"""Prefixes of the nodes' names: LogSoftmax, Logsumexp, LogSigmoid, Log1P, Logaddexp, …"""
_LAYERS = (
    "Addmm",
    "Mm",
    "Bmm",
    "Baddbmm",
    "Addbmm",
    "Mv",
    "Dot",
    "Convolution",
    "Embedding",
    "Einsum",
    "AccumulateGrad",
)
_MOST = 200


def may_hold_a_logarithm(node: Any) -> bool:
    """Also True if the graph does not answer: no node, a function of the user's or the compiler's, or a long graph."""
    if node is None:
        return True
    seen, waiting = {node}, [node]
    while waiting:
        current = waiting.pop()
        kind = current.name().rpartition("::")[2]
        if kind.startswith(_LOGARITHMS) or function_of(current) is not None or len(seen) > _MOST:
            return True
        if kind.startswith(_LAYERS):
            continue
        before = {function for function, _ in current.next_functions if function is not None} - seen
        seen |= before
        waiting += before
    return False
