"""Split the loss into the terms that it adds, and compare those that depend on the targets with the others.

The terms are found in the graph of the loss. A backward pass lets the gradient through to some of them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode

from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.interventions.batch_roles import is_index, labels, target
from debugkit.interventions.batch_variations import of_another_sample
from debugkit.interventions.passes import enter_eval_mode, outputs_differ, quiet_floor
from debugkit.measurements.autograd_graph.measure import gradient_node
from debugkit.preserve_state import same_start
from debugkit.randomness import same_randomness
from debugkit.recorders.module_calls import every_call
from debugkit.rules.dk122_loss_term_outweighs import TIMES_AS_LARGE, WeightedTerm, WeightedTerms
from debugkit.setup import TrainingSetup
from debugkit.structure import map_tensors, tensors_in

_LINEAR = ("Add", "Sub", "Rsub", "Neg", "Mul", "Div", "Sum", "Mean", "Squeeze", "Unsqueeze", "View", "ToCopy", "Clone")
"""Operations through which a number reaches the loss with a constant weight."""
_MOST_TERMS, _MOST_ENTRIES = 8, 12
_CHANGED = 1e-4
"""A relative change of a term that is more than rounding."""
_SEED = 0


@dataclass(frozen=True, slots=True)
class _Number:
    """A scalar that the program computed."""

    value: float
    at: SourceLine | None


class _Numbers(TorchFunctionMode):
    """Keeps the value of each scalar that has a graph, by the node that made it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Node, _Number] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.numel() == 1 and result.grad_fn is not None:
            self.found.setdefault(result.grad_fn, _Number(float(result.detach()), user_line()))
        return result


@dataclass(frozen=True, slots=True)
class _Term:
    """A scalar that the loss adds; of many, those that one operation of one line made, as a penalty of each parameter.

    The value is that of their sum, with the weights that they have in the loss.
    """

    nodes: tuple[Node, ...]
    value: float
    at: SourceLine | None


@dataclass(frozen=True, slots=True)
class _Ran:
    """A forward pass with gradients."""

    loss: Tensor
    terms: list[_Term]
    outputs: dict[str, Tensor]


def compare_the_terms(setup: TrainingSetup) -> WeightedTerms:
    """Without terms, if none is much larger than the others, or if a large one depends on the targets."""
    ran = _run(setup)
    if len(ran.terms) < 2:
        raise NotExamined("The loss is not a sum of terms.")
    if len(ran.terms) > _MOST_TERMS:
        raise NotExamined(f"The loss has more than {_MOST_TERMS} terms.")
    values = [term.value for term in ran.terms]
    if not all(map(math.isfinite, values)):
        raise NotExamined("A term of the loss is not finite.")
    if TIMES_AS_LARGE * min(map(abs, values)) > max(map(abs, values)):
        return WeightedTerms((), 0.0, 0.0, ())
    _, threshold = quiet_floor(setup)
    targets, depending = _that_depend_on_targets(setup, ran, threshold)
    if not targets:
        return WeightedTerms((), 0.0, 0.0, ())
    kinds = [[term for number, term in enumerate(ran.terms) if (number in depending) is does] for does in (True, False)]
    own, other = (_gradients(setup, ran, kind) for kind in kinds)
    both = [index for index, gradient in own.items() if index in other and bool((gradient != 0).any())]
    return WeightedTerms(
        terms=tuple(WeightedTerm(term.value, number in depending, term.at) for number, term in enumerate(ran.terms)),
        of_targets=_norm(own[index] for index in both),
        of_others=_norm(other[index] for index in both),
        targets=targets,
    )


def _run(setup: TrainingSetup, batch: Any = None) -> _Ran:
    outputs: dict[str, Tensor] = {}

    def keep(module: nn.Module, output: Any) -> None:
        if module is setup.model:
            outputs.update((path, tensor.detach()) for path, tensor in tensors_in(output) if tensor.ndim)

    enter_eval_mode(setup)
    with (
        same_start(setup),
        every_call(keep),
        torch.enable_grad(),
        same_randomness(_SEED),
        _Numbers() as numbers,
    ):
        loss = setup.loss(batch)
    root = gradient_node(loss)
    if root is None:
        raise NotExamined("The loss has no gradient.")
    nodes = _terms(root, numbers.found)
    weights: dict[Node, float] = {}
    with _only(nodes, nodes, weights):
        _differentiate(setup, loss)
    if any(node not in numbers.found for node in nodes):
        raise NotExamined("A term of the loss was computed out of sight.")
    many = len(nodes) > _MOST_TERMS
    groups: dict[object, list[Node]] = {}
    for node in nodes:
        groups.setdefault((node.name(), numbers.found[node].at) if many else node, []).append(node)
    terms = [
        _Term(
            tuple(group),
            sum(weights.get(node, 0.0) * numbers.found[node].value for node in group),
            numbers.found[group[0]].at,
        )
        for group in groups.values()
    ]
    return _Ran(loss, terms, outputs)


def _terms(root: Node, numbers: dict[Node, _Number]) -> list[Node]:
    """The scalars that the loss adds, each once, from the root."""
    found: list[Node] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        inputs = [following for following, _ in node.next_functions if following is not None]
        if inputs and all(one in numbers for one in inputs) and _is_linear(node):
            waiting += inputs
        elif node not in found:
            found.append(node)
    return found


def _is_linear(node: Node) -> bool:
    kind = node.name().rstrip("0123456789").removesuffix("Backward")
    reaches = [following is not None for following, _ in node.next_functions]
    if kind == "Mul":
        return sum(reaches) == 1
    if kind == "Div":
        return reaches[0] and sum(reaches) == 1
    return kind in _LINEAR


@contextlib.contextmanager
def _only(nodes: Sequence[Node], chosen: Sequence[Node], weights: dict[Node, float]) -> Iterator[None]:
    """Let the gradient through to the chosen terms, and note the gradient of the loss for each term: its weight."""

    def hook(node: Node) -> Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]:
        def stop(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            weights[node] = float(gradients[0])
            return gradients if node in chosen else tuple(map(torch.zeros_like, gradients))

        return stop

    handles = [node.register_prehook(hook(node)) for node in nodes]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _differentiate(setup: TrainingSetup, loss: Tensor) -> Sequence[Tensor | None]:
    """The gradient of each parameter that is trained; None for one that the loss does not reach."""
    trained = [parameter for parameter in setup.model.parameters() if parameter.requires_grad]
    if not trained:
        raise NotExamined("No parameter of the model requires a gradient.")
    try:
        return torch.autograd.grad(loss, trained, retain_graph=True, allow_unused=True)
    except RuntimeError as error:  # checkpoint(use_reentrant=True) has no such gradients
        raise NotExamined("The gradients of the loss cannot be taken more than once.") from error


def _gradients(setup: TrainingSetup, ran: _Ran, chosen: Sequence[_Term]) -> dict[int, Tensor]:
    """The gradients of the chosen terms, by the number of the parameter."""
    with _only(_nodes(ran.terms), _nodes(chosen), {}):
        found = _differentiate(setup, ran.loss)
    return {index: gradient.detach() for index, gradient in enumerate(found) if gradient is not None}


def _nodes(terms: Sequence[_Term]) -> list[Node]:
    return [node for term in terms for node in term.nodes]


def _norm(gradients: Iterator[Tensor]) -> float:
    return math.sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients))


def _that_depend_on_targets(setup: TrainingSetup, ran: _Ran, threshold: float) -> tuple[tuple[str, ...], set[int]]:
    """The entries of the batch that change the loss alone, and the numbers of the terms that change with them.

    None as soon as one of the large terms changes: then they do not outweigh the targets. Raises NotExamined.
    """
    largest = max(abs(term.value) for term in ran.terms)
    targets: list[str] = []
    depending: set[int] = set()
    for path in _entries(setup):
        changed = _run(setup, _with_another(setup, path))
        differ = outputs_differ(ran.outputs, changed.outputs, threshold)
        if differ is None:
            raise NotExamined("The model returns only its loss, so it is not known which entries are targets.")
        if differ:
            continue
        if len(changed.terms) != len(ran.terms):
            raise NotExamined("The loss has other terms for other batches.")
        pairs = enumerate(zip(ran.terms, changed.terms, strict=True))
        moved = {number for number, (term, now) in pairs if abs(now.value - term.value) > _CHANGED * abs(term.value)}
        if any(TIMES_AS_LARGE * abs(ran.terms[number].value) > largest for number in moved):
            return (), set()
        if moved:
            targets.append(path)
            depending |= moved
    if not targets:
        raise NotExamined("No entry of the batch changes the loss alone: there are no targets.")
    return tuple(targets), depending


def _with_another(setup: TrainingSetup, path: str) -> Any:
    def change(name: str, tensor: Tensor) -> Tensor:
        return _other(tensor) if name == path else tensor

    return map_tensors(setup.fresh_batch(), change)


def _entries(setup: TrainingSetup) -> list[str]:
    """The entries to change, those that are known as targets first."""
    paths = [
        path for path, tensor in tensors_in(setup.batch) if tensor.ndim and tensor.numel() and not tensor.is_complex()
    ]
    if len(paths) > _MOST_ENTRIES:
        raise NotExamined(f"The batch has more than {_MOST_ENTRIES} entries.")
    known = [found[0] for found in (labels(setup), target(setup)) if found is not None]
    return [*(path for path in paths if path in known), *(path for path in reversed(paths) if path not in known)]


def _other(tensor: Tensor) -> Tensor:
    """Other values of the same kind: those of another sample, and for real numbers some more."""
    if tensor.dtype is torch.bool:
        return ~tensor
    if is_index(tensor):
        moved = of_another_sample(tensor)
        return moved if not torch.equal(moved, tensor) else torch.where(tensor > 0, tensor - 1, tensor + 1)
    if bool(((tensor == 0) | (tensor == 1)).all()):
        return 1 - tensor
    return of_another_sample(tensor)
