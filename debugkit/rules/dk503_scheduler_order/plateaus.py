"""Whether the `mode` of a ReduceLROnPlateau contradicts the metric that it is stepped with."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.loop.optimizer_events import OptimizerEvents
from debugkit.loop.plateaus import Plateau
from debugkit.loop.step_intervals import name_of
from debugkit.rule import Context
from debugkit.rule_text import amounts_apart
from debugkit.source_names import methods_called, tree_of, words_of

_REDUCTIONS = 2
_FEWEST = 8
_FEWEST_COMPARED = 6
_FALL = 0.5
_LARGEST_RATIO = 1.5
_CORRELATION = 0.95
_NEW_EXTREMES = 2 / 3
_SHORTEST_WINDOW = 4
_MOST_SAMPLES = 20_000
_ROUNDING = 1e-7  # a proportion that was computed in float32
_LOSSES = frozenset({"loss", "losses"})
_ACCURACIES = frozenset({"acc", "accs", "accuracy", "accuracies"})
_OPPOSITES = frozenset(
    {"neg", "negative", "minus", "inv", "inverse", "inverted", "err", "error", "errors", "adv", "adversarial"}
    | {"score", "scores", "reward", "rewards", "gain"}
)


def wrong_modes(seen: OptimizerEvents, context: Context) -> Iterator[Finding]:
    """A score that is stepped as a loss, or a loss as a score, in a run of one optimizer."""
    if sum(steps > 0 for steps in seen.steps) != 1 or seen.foreign_steps:
        return  # of two adversaries, one may be scheduled by the success of the other
    for plateau in seen.plateaus:
        metrics = [step.metric for step in plateau.steps]
        falls = _falls(plateau)
        if len(falls) < _REDUCTIONS or not all(map(math.isfinite, metrics)) or plateau.maximize:
            continue
        wrong = _is_loss if plateau.mode == "max" else _is_accuracy
        if plateau.mode in ("min", "max") and (reason := wrong(plateau, metrics, falls[_REDUCTIONS - 1])):
            yield _found(seen, plateau, metrics, len(falls), reason, context)


def _found(
    seen: OptimizerEvents, plateau: Plateau, metrics: Sequence[float], reductions: int, reason: str, context: Context
) -> Finding:
    falls = plateau.mode == "max"
    rates = [step.rate for step in plateau.steps]
    metric = amounts_apart(metrics[0], metrics[-1])
    trained = [step.training_loss for step in plateau.steps if step.training_loss is not None]
    return context.finding(
        f'`ReduceLROnPlateau` of {name_of(seen, plateau.optimizer)} has `mode="{plateau.mode}"`, but its metric '
        f"{'falls' if falls else 'rises'} from {metric[0]} to {metric[1]} {reason}. It takes this for no improvement, "
        f"and has lowered the learning rate {reductions} times, to {rates[-1]:.2g}.",
        at=plateau.at,
        evidence={
            "mode": plateau.mode,
            "scheduler_steps": len(metrics),
            "first_metric": metrics[0],
            "last_metric": metrics[-1],
            "first_training_loss": trained[0] if trained else None,
            "last_training_loss": trained[-1] if trained else None,
            "reductions": reductions,
            "needed_reductions": _REDUCTIONS,
            "rate_now": rates[-1],
        },
        fix=f'Pass `mode="{"min" if falls else "max"}"`, or step it with a metric that is better if it is '
        f"{'larger' if falls else 'smaller'}.",
        severity=Severity.WARNING,
        certainty=Certainty.STATISTICAL,
    )


def _falls(plateau: Plateau) -> list[int]:
    """The steps that lowered the rate; none if a rate is not known."""
    rates = [step.rate for step in plateau.steps]
    pairs = [(one, other) for one, other in itertools.pairwise(rates) if one is not None and other is not None]
    if len(pairs) + 1 != len(rates):
        return []
    return [number for number, (one, other) in enumerate(pairs, 1) if other < one]


def _is_loss(plateau: Plateau, metrics: Sequence[float], until: int) -> str:
    """Why the metric is a loss; empty if that is not certain."""
    if min(metrics) <= 0 or max(metrics[2:], default=math.inf) >= max(metrics[:2]) or _are_proportions(metrics):
        return ""
    if _follows_the_training_loss(plateau, metrics):
        return "as the training loss does"
    words = _words_of_metric(plateau.at)
    named = bool(words & _LOSSES) and not words & (_OPPOSITES | _ACCURACIES)
    return "and is named a loss" if named and _is_steady(metrics[: until + 1], min) else ""


def _is_accuracy(plateau: Plateau, metrics: Sequence[float], until: int) -> str:
    """Why the metric is an accuracy; empty if that is not certain. The loss of a model that overfits rises as well."""
    if min(metrics[2:], default=-math.inf) <= min(metrics[:2]) or not _is_steady(metrics[: until + 1], max):
        return ""
    words = _words_of_metric(plateau.at)
    named = bool(words & _ACCURACIES) and not words & (_OPPOSITES | _LOSSES)
    return "and is a proportion that is named an accuracy" if named and _are_proportions(metrics) else ""


def _follows_the_training_loss(plateau: Plateau, metrics: Sequence[float]) -> bool:
    """Whether it has nearly the value of the training loss in each epoch, and falls with it to less than half."""
    both = [(step.metric, step.training_loss) for step in plateau.steps if step.training_loss is not None]
    if len(metrics) < _FEWEST or len(both) < _FEWEST_COMPARED or metrics[-1] > _FALL * metrics[0]:
        return False
    if any(not metric / _LARGEST_RATIO <= loss <= metric * _LARGEST_RATIO for metric, loss in both):
        return False
    seen, trained = zip(*both, strict=True)
    if max(seen) < _LARGEST_RATIO * min(seen) or len(set(trained)) == 1:
        return False
    return statistics.correlation(seen, trained) >= _CORRELATION


def _is_steady(metrics: Sequence[float], best: Callable[[Sequence[float]], float]) -> bool:
    """Whether most of them are smaller (or larger) than all before."""
    new = sum(best(metrics[: i + 1]) == metrics[i] != best(metrics[:i]) for i in range(1, len(metrics)))
    return len(metrics) >= _SHORTEST_WINDOW and new >= _NEW_EXTREMES * (len(metrics) - 1)


def _are_proportions(metrics: Sequence[float]) -> bool:
    """Whether all are numbers of samples, divided by one number: chance does that to no mean of losses."""
    values = set(metrics)
    if len(values) < _SHORTEST_WINDOW or min(values) < 0 or max(values) > 100:
        return False
    scale = 1.0 if max(values) <= 1 else 100.0
    return any(
        all(abs(value / scale - round(value / scale * size) / size) <= _ROUNDING for value in values)
        for size in range(1, _MOST_SAMPLES)
    )


def _words_of_metric(at: SourceLine | None) -> frozenset[str]:
    """The words of the name in `scheduler.step(name)`; none if an expression could change its sense."""
    if at is None:
        return frozenset()
    calls = methods_called(tree_of(at.file), "step", at.line)
    if len(calls) != 1:
        return frozenset()
    given = [*calls[0].args, *(keyword.value for keyword in calls[0].keywords if keyword.arg == "metrics")]
    return words_of(given[0]) if given else frozenset()
