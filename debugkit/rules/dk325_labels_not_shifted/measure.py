"""Finds losses whose targets are the ids that are looked up at the same position, and replaces one of these ids.

The ids are replaced where they are looked up, so that the targets, and masks which are made from the ids, stay. Texts
that are read or scored one position at a time are put together from the calls of one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from debugkit.finding import NotExamined, SourceLine
from debugkit.interventions.learnt_targets import SEED, Learnt, LearntTargets, learnt_targets, observed_targets
from debugkit.preserve_state import same_start
from debugkit.randomness import same_randomness
from debugkit.recorders.token_calls import Lookup, TokenCalls
from debugkit.rules.dk325_labels_not_shifted import CHANGES, SMALLEST, TargetsAtInput, TargetsAtInputs
from debugkit.setup import TrainingSetup

_SHORTEST = 4
_STEPS = 8
"""Fewer calls at one line are not put together to a text."""
_OVERLAP = 8
_MOST = 4
"""Pairs of a text and a loss that are tried."""

Layout = Literal["rows", "columns", "steps"]
"""How calls hold a text (N, T): one call (N, T), one call (T, N), or T calls (N)."""


def replace_the_own_token(setup: TrainingSetup) -> TargetsAtInputs:
    """One pass, and two for each loss whose targets are ids; three more if its outputs read these ids."""
    learnt = learnt_targets(setup)
    pairs = list(_pairs(learnt))
    if not pairs:
        raise NotExamined("No targets of a loss are token ids that a trained table looks up at the same position.")
    alike = [pair for pair in pairs if not pair.shows_the_shift]
    pairs = [pair for pair in pairs if not any(pair.has_the_calls_of(other) for other in alike)]
    if not pairs:
        raise NotExamined("The targets are too few, or too many of them equal the next id, or repeat with a period.")
    reactions: list[tuple[_Pair, _Reaction]] = []
    for pair in pairs:
        is_known = any(pair.has_the_calls_of(other) and seen.is_along_the_text for other, seen in reactions)
        if len(reactions) < _MOST and not is_known:
            reactions.append((pair, _react(setup, pair)))
    reading = [(pair, reaction) for pair, reaction in reactions if reaction.own > SMALLEST]
    next_is_learnt = any(reaction.own <= SMALLEST and pair.first < 0 for pair, reaction in reactions)
    next_is_learnt |= bool(reading) and any(_learns_the_next(pair.text, learnt.losses) for pair, _ in reading)
    training = _in_training_mode(setup) if reading else None
    return TargetsAtInputs(
        tuple(_observation(setup, pair, reaction, training, next_is_learnt) for pair, reaction in reading)
    )


@dataclass(frozen=True, eq=False)
class _Text:
    """Ids (N, T) that are looked up."""

    ids: Tensor
    layout: Layout
    numbers: tuple[int, ...]
    """Of the lookups."""
    calls: tuple[Lookup, ...]

    def substitutes(self, other: Tensor, lookups: Sequence[Lookup]) -> dict[int, Tensor]:
        """Other ids for these lookups, and for all other lookups of the same ids, by their numbers."""
        if self.layout == "steps":
            parts = zip(self.numbers, other.unbind(1), strict=True)
            return {number: part.reshape(self.calls[0].ids.shape) for number, part in parts}
        part = (other.T if self.layout == "columns" else other).reshape(self.calls[0].ids.shape)
        return {number: part for number, lookup in enumerate(lookups) if _same(lookup.ids, self.calls[0].ids)}


@dataclass(frozen=True, eq=False)
class _Pair:
    """A text, and a loss whose targets that count are its ids."""

    text: _Text
    layout: Layout
    """Of the loss."""
    losses: tuple[LearntTargets, ...]
    first: int
    """The place of the first id among the targets."""
    counted: Tensor
    """Which ids are targets that count, (N, T)."""

    @property
    def at(self) -> SourceLine | None:
        return self.losses[0].at

    @property
    def changes(self) -> int:
        """How many ids that are targets that count differ from the next id."""
        return int((self.counted[:, :-1] & (self.text.ids[:, :-1] != self.text.ids[:, 1:])).sum())

    @property
    def shows_the_shift(self) -> bool:
        """Whether most targets would be others, if they were shifted by any number of positions."""
        changes = self.changes
        if changes < CHANGES or 2 * changes <= int(self.counted[:, :-1].sum()):
            return False
        return not _is_periodic(self.text.ids, self.counted)

    def has_the_calls_of(self, other: _Pair) -> bool:
        """Whether both are the same calls, perhaps in another layout."""
        return self.text.numbers == other.text.numbers and self.losses == other.losses

    def positions(self, values: Mapping[int, Tensor]) -> Tensor:
        """Numbers of the rows of these losses, by the losses' numbers, as those of the ids (N, T); 0 without one."""
        size, length = self.text.ids.shape
        given = _arranged([values[loss.number] for loss in self.losses], size, self.layout)
        place, inside = _inside(self.first, length, given.shape[1], given.device)
        found = given.new_zeros(size, length)
        found[:, inside] = given[:, place[inside]]
        return found


def _pairs(learnt: Learnt) -> Iterator[_Pair]:
    for text in _texts(learnt.lookups):
        for layout, losses in _scored(learnt.losses, len(text.ids)):
            targets, counts = (
                _arranged([getattr(loss, name) for loss in losses], len(text.ids), layout).to(text.ids.device)
                for name in ("targets", "counts")
            )
            for first in {0, targets.shape[1] - text.ids.shape[1]}:
                counted = _counted(text.ids, targets, counts, first)
                if counted is not None:
                    yield _Pair(text, layout, losses, first, counted)


def _texts(lookups: Sequence[Lookup]) -> Iterator[_Text]:
    trained = [(number, lookup) for number, lookup in enumerate(lookups) if lookup.is_trained and lookup.ids.numel()]
    lines: dict[object, list[int]] = {}
    for number, lookup in trained:
        if lookup.ids.ndim < 2 or 1 in lookup.ids.shape:
            lines.setdefault((lookup.table, lookup.at, lookup.ids.shape), []).append(number)
    steps = [numbers for numbers in lines.values() if len(numbers) >= _STEPS]
    for numbers in steps:
        calls = tuple(lookups[number] for number in numbers)
        yield _Text(torch.stack([call.ids.reshape(-1) for call in calls], 1), "steps", tuple(numbers), calls)
    parts = {number for numbers in steps for number in numbers}
    known: list[Tensor] = []
    for number, lookup in trained:
        ids = lookup.ids
        if number in parts or not ids.ndim or any(_same(ids, other) for other in known):
            continue
        known.append(ids)
        if ids.shape[-1] >= _SHORTEST:
            yield _Text(ids.reshape(-1, ids.shape[-1]), "rows", (number,), (lookup,))
        if ids.ndim == 2 and ids.shape[0] >= _SHORTEST:
            yield _Text(ids.T.contiguous(), "columns", (number,), (lookup,))


def _scored(losses: Sequence[LearntTargets], size: int) -> Iterator[tuple[Layout, tuple[LearntTargets, ...]]]:
    """The losses that may score texts of this many rows."""
    steps: dict[object, list[LearntTargets]] = {}
    for loss in losses:
        elements = loss.targets.numel()
        if elements == size:
            steps.setdefault((loss.at, loss.operation), []).append(loss)
        if elements % size == 0 and elements >= _SHORTEST * size:
            yield "rows", (loss,)
            if size > 1:
                yield "columns", (loss,)
    for calls in steps.values():
        if len(calls) >= _STEPS:
            yield "steps", tuple(calls)


def _arranged(values: Sequence[Tensor], size: int, layout: Layout) -> Tensor:
    """The numbers of the rows of these calls as (N, T)."""
    if layout == "steps":
        return torch.stack([value.reshape(-1) for value in values], 1)
    return values[0].reshape(size, -1) if layout == "rows" else values[0].reshape(-1, size).T


def _inside(first: int, length: int, targets: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The place of each id among the targets, and whether there is a target."""
    place = torch.arange(length, device=device) + first
    return place, (place >= 0) & (place < targets)


def _counted(ids: Tensor, targets: Tensor, counts: Tensor, first: int) -> Tensor | None:
    """Which ids are targets that count; None if a target that counts is no id at this place."""
    place, inside = _inside(first, ids.shape[1], targets.shape[1], ids.device)
    here = counts[:, place[inside]]
    if not bool(here.any()) or int(here.sum()) != int(counts.sum()):
        return None
    if not bool((targets[:, place[inside]] == ids[:, inside])[here].all()):
        return None
    found = torch.zeros_like(ids, dtype=torch.bool)
    found[:, inside] = here
    return found


def _learns_the_next(text: _Text, losses: Sequence[LearntTargets]) -> bool:
    """Whether a loss has the next ids as targets, with as many places as the text has."""
    size, length = text.ids.shape
    for layout, calls in _scored(losses, size):
        targets = _arranged([loss.targets for loss in calls], size, layout).to(text.ids.device)
        counts = _arranged([loss.counts for loss in calls], size, layout).to(text.ids.device)
        if targets.shape[1] == length and _counted(text.ids, targets, counts & _but_last(counts), -1) is not None:
            return True
    return False


def _but_last(counts: Tensor) -> Tensor:
    """All places but the last, whose target is not among the ids."""
    kept = torch.ones_like(counts)
    kept[:, -1] = False
    return kept


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.device == other.device and bool((one == other).all())


@dataclass(frozen=True)
class _Reaction:
    """Changes of the outputs in relation to the largest of them, if one id of each row is replaced."""

    own: float
    before: float
    behind: float
    noise: float

    @property
    def is_along_the_text(self) -> bool:
        """Whether the positions of a row depend on one another: rows of another layout are samples."""
        return max(self.before, self.behind) > SMALLEST


def _react(setup: TrainingSetup, pair: _Pair) -> _Reaction:
    """Two passes, and two more if the outputs depend on the replaced ids."""
    numbers = {loss.number for loss in pair.losses}
    lookups = learnt_targets(setup).lookups
    kept: dict[int, Tensor] = {}
    moved: dict[int, Tensor] = {}

    def keep(number: int, rows: Tensor) -> None:
        if number in numbers:
            kept[number] = rows.clone()

    def compare(number: int, rows: Tensor) -> None:
        if number in numbers:
            moved[number] = _difference(kept[number], rows)

    _run(setup, keep)
    scale = max(
        (float(rows[rows.isfinite()].abs().max()) for rows in kept.values() if rows.isfinite().any()), default=0.0
    )
    if not scale > 0:
        raise NotExamined("What the loss receives is zero or not finite, so it shows no reaction to other ids.")
    rows = pair.counted.sum(1) >= _SHORTEST
    found: list[tuple[float, float, float]] = []
    for further in (0, 1):  # two neighbours: of a block of positions that see each other, both can't be the last
        place = _middle(pair.counted, further)  # (N, 1)
        _run(setup, compare, pair.text.substitutes(_replaced(pair, place), lookups))
        found.append(_changes(pair.positions(moved) / scale, pair.counted, place, rows))
        if found[0][0] <= SMALLEST:
            break
    noise = 0.0
    if len(found) > 1:
        _run(setup, compare)
        noise = max(float(each.max()) for each in moved.values()) / scale
    own, before, behind = zip(*found, strict=True)
    return _Reaction(min(own), max(before), max(behind), noise)


def _run(
    setup: TrainingSetup, scores: Callable[[int, Tensor], None], substitutes: Mapping[int, Tensor] | None = None
) -> None:
    setup.model.eval()
    calls = TokenCalls(substitutes=substitutes, scores=scores)
    with same_start(setup), calls, torch.no_grad(), same_randomness(SEED):
        setup.loss()


def _difference(one: Tensor, other: Tensor) -> Tensor:
    """The largest change in each row."""
    if one.shape != other.shape:
        raise NotExamined("With another id, the loss receives outputs of another shape.")
    gap = torch.where(one == other, 0.0, (one.double() - other.double()).abs())
    return gap.nan_to_num(float("inf"), float("inf")).amax(1)


def _middle(counted: Tensor, further: int) -> Tensor:
    """A place in the middle of those that count in each row, (N, 1), or so many places after it."""
    rank = counted.cumsum(1)
    wanted = (rank[:, -1:] // 2 + further).clamp(min=1)
    return (rank < wanted).sum(1, keepdim=True).clamp(max=counted.shape[1] - 1)


def _replaced(pair: _Pair, place: Tensor) -> Tensor:
    """The ids with another id of the text at one place of each row."""
    ids = pair.text.ids
    choices = torch.unique(ids[pair.counted])
    own = ids.gather(1, place)
    other = choices[(torch.searchsorted(choices, own) + 1) % len(choices)]
    return ids.scatter(1, place, other)


def _changes(moved: Tensor, counted: Tensor, place: Tensor, rows: Tensor) -> tuple[float, float, float]:
    """Own (the smallest of the rows), before and behind (the largest)."""
    if not bool(rows.any()):
        return 0.0, 0.0, 0.0
    here = torch.arange(counted.shape[1], device=counted.device)
    moved = moved.to(counted.device)
    own = moved.gather(1, place)[rows].min()
    before = torch.where(counted & (here < place), moved, 0.0)[rows].max()
    behind = torch.where(counted & (here > place), moved, 0.0)[rows].max()
    return float(own), float(before), float(behind)


def _in_training_mode(setup: TrainingSetup) -> Learnt:
    setup.model.train()
    return observed_targets(setup)


def _observation(
    setup: TrainingSetup, pair: _Pair, reaction: _Reaction, training: Learnt | None, next_is_learnt: bool
) -> TargetsAtInput:
    return TargetsAtInput(
        at=pair.at,
        table=_module_of(setup, pair.text.calls[0].table),
        targets=int(pair.counted.sum()),
        changes=pair.changes,
        corrupted=training is None or _is_corrupted(pair, training),
        own=reaction.own,
        before=reaction.before,
        behind=reaction.behind,
        noise=reaction.noise,
        next_is_learnt=next_is_learnt,
    )


def _module_of(setup: TrainingSetup, table: int | None) -> str | None:
    path = setup.parameter_paths.get(table) if table is not None else None
    return None if path is None else path.rpartition(".")[0]


def _is_periodic(ids: Tensor, counted: Tensor) -> bool:
    """Whether the ids that count repeat after the same number of positions in all rows."""
    for period in range(1, ids.shape[1] // 2 + 1):
        both = counted[:, period:] & counted[:, :-period]
        if int(both.sum()) >= _OVERLAP and bool((ids[:, period:] == ids[:, :-period])[both].all()):
            return True
    return False


def _is_corrupted(pair: _Pair, training: Learnt) -> bool:
    """Whether a step in training mode draws numbers for each position, or reads ids that are not the targets."""
    size, length = pair.text.ids.shape
    own = pair.text.calls[0].ids.shape
    prefixes = {(size, length), (length, size), (size * length,), tuple(own)}
    if any(_starts_with(shape, prefixes) for shape in training.random):
        return True
    return not any(other.at == pair.at and other.first == pair.first for other in _pairs(training))


def _starts_with(shape: tuple[int, ...], prefixes: Iterable[tuple[int, ...]]) -> bool:
    return any(shape[: len(prefix)] == prefix for prefix in prefixes)
