"""find_graph_cut: finds the line that stops the gradient before it reaches parameters that should train.

A line is reported only with two proofs, so that lines which stop a gradient on purpose are left out: the walk from the
loss must not reach the parameters, and changing the result of the line must change the loss. A logged `.item()`, a
dropped branch, or a stop-gradient with another path around it fails one of the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from debugkit.finding import NotExamined
from debugkit.held_parameters import held_parameters
from debugkit.interventions.losses import losses_of
from debugkit.measurements.autograd_graph.measure import AutogradGraphProbe, is_custom, walk
from debugkit.measurements.graph_cut import BACKWARD_OF, OUTSIDE_PYTHON, Cut, GraphCut
from debugkit.measurements.graph_cut.gradient_stops import Site, StopRecorder
from debugkit.measurements.graph_cut.loss_dependence import LossDependence
from debugkit.measurements.graph_cut.target_network import copies_of_trained_modules
from debugkit.preserve_state import preserved
from debugkit.randomness import same_randomness
from debugkit.setup import LossFn, TrainingSetup
from debugkit.step import quiet_eager


def find_graph_cut(
    model: nn.Module,
    batch: Any,
    loss_fn: LossFn | None = None,
    *,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
) -> GraphCut:
    """Find the lines at which the gradient of the loss ends before it reaches trainable parameters.

    `loss_fn(model, batch)` returns the loss, or several (the two of a GAN); the default is `model(**batch).loss`. With
    `optimizer`, only the parameters that it holds are expected to train. It costs one forward pass if nothing is cut
    and a few more otherwise. The model, its gradients and buffers and all random number generators are restored.

    Raises NotExamined if there is no scalar loss or no parameter is trainable.

    >>> class Policy(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.vision, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
    ...     def forward(self, x):
    ...         return self.head(self.vision(x).detach()).pow(2).mean()
    >>> cut = find_graph_cut(Policy(), torch.ones(2, 4), lambda model, batch: model(batch))
    >>> cut.parameters, cut.cuts[0].operation, cut.cuts[0].after_module
    (('vision.weight', 'vision.bias'), 'detach', 'vision')
    """
    return graph_cut_of(TrainingSetup.of(model, batch, loss_fn, optimizer))


def graph_cut_of(setup: TrainingSetup) -> GraphCut:
    """`find_graph_cut` for a setup. Raises NotExamined."""
    trainable = _expected_to_train(setup)
    with preserved(setup), quiet_eager(setup.model):
        trace = _trace(setup, trainable)
        if not trace.missed:
            return _result(trainable, trace)
        depends = LossDependence(setup)
        if not depends.on_parameters(trace.missed.values()):
            return _result(trainable, trace, without_effect=tuple(trace.missed))
        cuts = _cuts_at_lines(trace, depends)
        cuts += _cuts_without_a_line(trace, depends, explained={name for cut in cuts for name in cut.parameters})
    return _judged(setup.model, trainable, trace, cuts)


def unused_parameters(setup: TrainingSetup) -> list[str]:
    """The trainable parameters that take no part in one forward pass. Raises NotExamined."""
    with preserved(setup), quiet_eager(setup.model):
        return _trace(setup, _expected_to_train(setup)).unused


@dataclass
class _Suspect:
    """A line that stops gradients which the missed parameters would need."""

    site: Site
    parameters: dict[str, nn.Parameter]
    after_module: str | None


@dataclass
class _Trace:
    """The results of one forward: names and parameters, but no graph."""

    reached: list[str] = field(default_factory=list)
    missed: dict[str, nn.Parameter] = field(default_factory=dict)  # used, not reached
    unused: list[str] = field(default_factory=list)
    suspects: list[_Suspect] = field(default_factory=list)
    functions: dict[str, tuple[str, ...]] = field(default_factory=dict)  # custom Functions between loss and parameter
    unreached_outputs: list[str] = field(default_factory=list)  # module paths in order of completion


def _expected_to_train(setup: TrainingSetup) -> dict[str, nn.Parameter]:
    trainable = {name: p for name, p in setup.model.named_parameters() if p.requires_grad}
    if setup.optimizers:
        held = {id(p) for p in held_parameters(*setup.optimizers)}
        trainable = {name: p for name, p in trainable.items() if id(p) in held}
    if not trainable:
        held_too = " and is held by the optimizer" if setup.optimizers else ""
        raise NotExamined(f"No parameter has requires_grad=True{held_too}, so no gradient is expected anywhere.")
    return trainable


def _trace(setup: TrainingSetup, trainable: dict[str, nn.Parameter]) -> _Trace:
    with same_randomness(), AutogradGraphProbe(setup) as graph:
        with StopRecorder() as stops:
            losses = losses_of(setup)
        seen = graph.examine(losses, stops.consumed)
        reachable = walk(losses).nodes
        reached = _reached_by_backward(setup.model, losses) if seen.opaque else set(seen.reached)
        used = set(seen.used)
        missed = {n: p for n, p in trainable.items() if n not in reached and n in used}
        return _Trace(
            reached=[n for n in trainable if n in reached],
            missed=missed,
            unused=[n for n in trainable if n not in reached and n not in used],
            suspects=_suspects(missed, reachable, stops, graph) if missed else [],
            functions=_functions_between(missed, reachable) if seen.opaque else {},
            unreached_outputs=[path for path, nodes in graph.outputs if reachable.isdisjoint(nodes)],
        )


def _reached_by_backward(model: nn.Module, losses: Iterable[Tensor]) -> set[str]:
    """Run backward, because custom Functions (reentrant checkpointing among them) hide parameters from a walk."""
    for parameter in model.parameters():
        parameter.grad = None
    torch.autograd.backward([loss for loss in losses if loss.requires_grad], retain_graph=True)
    return {name for name, p in model.named_parameters() if p.grad is not None}


def _functions_between(missed: dict[str, nn.Parameter], reachable: set[Any]) -> dict[str, tuple[str, ...]]:
    """The custom Functions on the way to each missed parameter. One of them stops the gradient."""
    behind = [(node.name().removesuffix("Backward"), walk([node]).leaves) for node in reachable if is_custom(node)]
    return {name: tuple(sorted({f for f, leaves in behind if id(p) in leaves})) for name, p in missed.items()}


def _suspects(
    missed: dict[str, nn.Parameter], reachable: set[Any], stops: StopRecorder, graph: AutogradGraphProbe
) -> list[_Suspect]:
    nodes_of: dict[Site, list[Any]] = {}
    for stop in stops.stops:
        if not reachable.issuperset(stop.nodes):
            nodes_of.setdefault(stop.site, []).extend(node for node in stop.nodes if node not in reachable)
    suspects = []
    for site, nodes in nodes_of.items():
        behind = walk(nodes)
        affected = {name: p for name, p in missed.items() if id(p) in behind.leaves}
        outputs = [p for p, made in graph.outputs if reachable.isdisjoint(made) and not behind.nodes.isdisjoint(made)]
        if affected:
            suspects.append(_Suspect(site, affected, outputs[-1] if outputs else _common_module(affected)))
    return suspects


def _cuts_at_lines(trace: _Trace, depends: LossDependence) -> list[Cut]:
    cuts = []
    for suspect in trace.suspects:
        change = depends.on_site(suspect.site)
        if change and depends.on_parameters(suspect.parameters.values()):
            site = suspect.site
            cuts.append(_cut(site.operation, suspect.parameters, suspect.after_module, change, site=site))
    return cuts


def _cuts_without_a_line(trace: _Trace, depends: LossDependence, explained: set[str]) -> list[Cut]:
    """Parameters that move the loss and get no gradient, although no recorded line is between them and the loss."""
    groups: dict[str, dict[str, nn.Parameter]] = {}
    for name, parameter in trace.missed.items():
        if name not in explained:
            groups.setdefault(name.split(".")[0], {})[name] = parameter
    cuts = []
    for parameters in groups.values():
        if change := depends.on_parameters(parameters.values()):
            inside = _common_module(parameters)
            outputs = [p for p in trace.unreached_outputs if p == inside or p.startswith(f"{inside}.") or not inside]
            functions = {name: None for parameter in parameters for name in trace.functions.get(parameter, ())}
            operation = f"{BACKWARD_OF}{', '.join(functions)}" if functions else OUTSIDE_PYTHON
            cuts.append(_cut(operation, parameters, outputs[-1] if outputs else inside, change))
    return cuts


def _cut(
    operation: str, parameters: dict[str, nn.Parameter], after: str | None, change: float, site: Site | None = None
) -> Cut:
    return Cut(
        operation=operation,
        line=site.line if site else None,
        caller=site.caller if site else None,
        after_module=after,
        parameters=tuple(parameters),
        numel=sum(p.numel() for p in parameters.values()),
        loss_change=change,
    )


def _judged(model: nn.Module, trainable: dict[str, nn.Parameter], trace: _Trace, cuts: list[Cut]) -> GraphCut:
    copies = copies_of_trained_modules(model, trace.missed, set(trace.reached))
    kept = tuple(cut for cut in cuts if not set(cut.parameters) <= copies)
    named = {name for cut in cuts for name in cut.parameters}
    return _result(
        trainable,
        trace,
        kept,
        without_effect=tuple(name for name in trace.missed if name not in named),
        held_constant=tuple(name for name in trace.missed if name in copies and name in named),
    )


def _result(
    trainable: dict[str, nn.Parameter],
    trace: _Trace,
    cuts: tuple[Cut, ...] = (),
    without_effect: tuple[str, ...] = (),
    held_constant: tuple[str, ...] = (),
) -> GraphCut:
    return GraphCut(cuts, len(trainable), len(trace.reached), without_effect, held_constant, tuple(trace.unused))


def _common_module(parameters: Iterable[str]) -> str:
    """The longest module path that contains all of them."""
    paths = [name.split(".")[:-1] for name in parameters]
    shared = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)
