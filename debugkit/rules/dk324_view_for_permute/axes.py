"""What the dimensions of a tensor consist of, and what a `view` to other sizes makes of them.

A dimension is a product of parts of axes. A `permute` moves dimensions, and a `view` merges and splits them in order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["", "feature", "batch"]


@dataclass(eq=False)
class Axis:
    """One axis with a meaning of its own."""

    size: int
    kind: Kind = ""
    maker: str = ""
    """The module whose features these are."""
    move: Move | None = None
    """Where a `view` seems to have put an axis by counting: nothing shows yet that it is read there."""
    block: Block | None = None


class Part(NamedTuple):
    """A part of an axis: `size` entries, `stride` apart. Its size is never 1."""

    axis: Axis
    stride: int
    size: int


Dim = tuple[Part, ...]
Dims = tuple[Dim, ...]


@dataclass(eq=False)
class Block:
    """Axes without a meaning that a `view` made of others, whose sizes do not divide one another."""

    axes: tuple[Axis, ...]
    of: tuple[Part, ...]


class Layout(NamedTuple):
    """What each dimension holds, and what it would hold if the last unusual `view` had moved axes."""

    dims: Dims
    meant: Dims | None = None


@dataclass(eq=False)
class Move:
    """An axis that a `view` would have moved if it were a `permute`."""

    kind: Kind
    maker: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    sources: tuple[int, ...]
    """The dimensions of the input that hold the axis."""
    targets: tuple[int, ...]
    size: int
    instead: str


def fresh(size: int, kind: Kind = "", maker: str = "") -> Dim:
    """A dimension that is one new axis."""
    return () if size == 1 else (Part(Axis(size, kind, maker), 1, size),)


def unknown(shape: Iterable[int]) -> Dims:
    """Dimensions of which nothing is known."""
    return tuple(fresh(size) for size in shape)


def size_of(dim: Dim) -> int:
    """The size of a dimension."""
    return dim[0].size if len(dim) == 1 else math.prod(part.size for part in dim)


def shape_of(dims: Dims) -> tuple[int, ...]:
    """The sizes of all dimensions."""
    return tuple(size_of(dim) for dim in dims)


def only_axis(dim: Dim) -> Axis | None:
    """The axis of which a dimension holds parts; None if it is of several or of none."""
    axes = {id(part.axis) for part in dim}
    return dim[0].axis if len(axes) == 1 else None


def resized(dim: Dim, size: int) -> Dim:
    """Some entries of a dimension, or more of them: a new axis of the same kind."""
    axis = only_axis(dim)
    return fresh(size, axis.kind, axis.maker) if axis is not None else fresh(size)


def reshaped(layout: Layout, before: tuple[int, ...], after: tuple[int, ...]) -> Layout:
    """The layout after a `view`. `meant` has the axes that it may have been meant to move."""
    meant = None
    if layout.meant is not None and is_in_order(_flat(layout.meant), after):
        meant = divided(_flat(layout.meant), after)
    parts = _flat(layout.dims)
    if not is_in_order(parts, after):
        expanded = _expanded(parts)
        if is_in_order(expanded, after):
            parts = expanded
        else:
            meant = _moved(layout.dims, before, after)
    dims: list[Dim] = []
    for these, sizes in _segments(parts, after):
        found = divided(these, sizes)
        dims += found if found is not None else _block(these, sizes)
    return Layout(tuple(dims), meant)


def is_in_order(parts: Sequence[Part], sizes: Sequence[int]) -> bool:
    """Whether a `view` to these sizes only merges whole parts and splits single ones."""
    return _pairs([part.size for part in _fused(parts)], sizes) is not None


def divided(parts: Sequence[Part], sizes: Sequence[int]) -> Dims | None:
    """The parts by dimension; None if a dimension does not end where a part can be split."""
    waiting, dims = list(parts), []
    for size in reversed(sizes):
        left, taken = size, []
        while left > 1:
            if not waiting:
                return None
            part = waiting.pop()
            if left % part.size == 0:
                taken.append(part)
                left //= part.size
            elif part.size % left == 0:
                taken.append(Part(part.axis, part.stride, left))
                waiting.append(Part(part.axis, part.stride * left, part.size // left))
                left = 1
            else:
                return None
        dims.append(_fused(reversed(taken)))
    return None if waiting else tuple(reversed(dims))


def _flat(dims: Dims) -> tuple[Part, ...]:
    return tuple(itertools.chain.from_iterable(dims))


def _fused(parts: Iterable[Part]) -> Dim:
    """Neighbours that are one part of an axis become one."""
    fused: list[Part] = []
    for part in parts:
        last = fused[-1] if fused else None
        if last is not None and last.axis is part.axis and last.stride == part.stride * part.size:
            fused[-1] = Part(part.axis, part.stride, last.size * part.size)
        else:
            fused.append(part)
    return tuple(fused)


def _pairs(first: Sequence[int], second: Sequence[int]) -> list[tuple[int, int, int]] | None:
    """(place in the first, place in the second, size) if each entry is whole entries of the other or a part of one."""
    found: list[tuple[int, int, int]] = []
    one = [(place, size) for place, size in enumerate(first) if size != 1]
    other = [(place, size) for place, size in enumerate(second) if size != 1]
    while one and other:
        (i, size), (j, sized) = one[0], other[0]
        if size >= sized:
            taken = _taken(size, other)
            found += [(i, place, part) for place, part in taken]
            one = one[1:]
            other = other[len(taken) :]
        else:
            taken = _taken(sized, one)
            found += [(place, j, part) for place, part in taken]
            one = one[len(taken) :]
            other = other[1:]
        if not taken:
            return None
    return None if one or other else found


def _taken(size: int, entries: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The first entries whose product is this size; none if there is no such number."""
    product = 1
    for number, (_, part) in enumerate(entries, 1):
        product *= part
        if product == size:
            return list(entries[:number])
        if product > size:
            return []
    return []


def _segments(parts: Sequence[Part], sizes: Sequence[int]) -> Iterator[tuple[list[Part], list[int]]]:
    """The shortest runs of parts and of sizes with equal products. Sizes of 1 belong to the run before."""
    waiting, left = list(parts), list(sizes)
    while left:
        these, those, product, goal = [], [left.pop(0)], 1, 1
        goal = those[0]
        while product != goal:
            if product < goal and waiting:
                these.append(waiting.pop(0))
                product *= these[-1].size
            elif left:
                those.append(left.pop(0))
                goal *= those[-1]
            else:  # an empty tensor
                break
        yield these, those


def _expanded(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts with each whole block replaced by what it was made of."""
    result: list[Part] = []
    place = 0
    while place < len(parts):
        block = parts[place].axis.block
        if block is not None and _is_whole(block, parts[place:]):
            result += _expanded(block.of)
            place += sum(axis.size > 1 for axis in block.axes)
        else:
            result.append(parts[place])
            place += 1
    return tuple(result)


def _is_whole(block: Block, parts: Sequence[Part]) -> bool:
    axes = [axis for axis in block.axes if axis.size > 1]
    pairs = zip(axes, parts, strict=False)
    return len(parts) >= len(axes) and all(p.axis is axis and p.size == axis.size for axis, p in pairs)


def _block(parts: Sequence[Part], sizes: Sequence[int]) -> Dims:
    dims = unknown(sizes)
    axes = tuple(part.axis for dim in dims for part in dim)
    block = Block(axes, tuple(parts))
    for axis in axes:
        axis.block = block
    return dims


class _Piece(NamedTuple):
    part: Part
    dim: int
    """The dimension of the input that holds it."""
    place: int
    """Its place among the pieces of all dimensions."""


_Element = tuple[int, int, int]
"""(place of the piece, dimension of the result, size)"""


def _moved(dims: Dims, before: tuple[int, ...], after: tuple[int, ...]) -> Dims | None:
    """The dimensions after the `view`, as axes that it may have been meant to move; None if there is none."""
    held = [(part, dim) for dim, parts in enumerate(dims) for part in parts]
    pieces = [_Piece(part, dim, place) for place, (part, dim) in enumerate(held)]
    recounted = _pairs(before, after) is None
    meant: list[Dim | None] = [None] * len(after)
    start = first = 0  # of the pieces and of the sizes
    for parts, sizes in _segments([piece.part for piece in pieces], after):
        these, targets = pieces[start : start + len(parts)], range(first, first + len(sizes))
        around = _around(pieces, start, start + len(parts), after, first, first + len(sizes))
        start, first = start + len(parts), first + len(sizes)
        if is_in_order(parts, sizes):
            continue
        for chosen in _choices(these, sizes, recounted):
            found = _target(chosen, these, targets, around, before, after)
            if found is not None and all(meant[target] is None for target in found.targets):
                axis = Axis(found.size, found.kind, found.maker, found)
                split = divided([Part(axis, 1, found.size)], [after[target] for target in found.targets])
                for target, dim in zip(found.targets, split or (), strict=True):
                    meant[target] = dim
    if all(dim is None for dim in meant):
        return None
    return tuple(fresh(after[target]) if dim is None else dim for target, dim in enumerate(meant))


def _around(
    pieces: Sequence[_Piece], start: int, end: int, after: Sequence[int], first: int, last: int
) -> list[_Element] | None:
    """The elements before and behind a run; None if they are not in order themselves."""
    before = _pairs([piece.part.size for piece in pieces[:start]], after[:first])
    behind = _pairs([piece.part.size for piece in pieces[end:]], after[last:])
    if before is None or behind is None:
        return None
    return before + [(i + end, j + last, size) for i, j, size in behind]


def _choices(pieces: Sequence[_Piece], sizes: Sequence[int], recounted: bool) -> Iterator[list[_Piece]]:
    """The axes to look for: those with a known meaning, and others only if the sizes cannot be split in order."""
    known = {id(piece.part.axis): piece.part.axis for piece in pieces if piece.part.axis.kind}
    for axis in known.values():
        yield sorted((piece for piece in pieces if piece.part.axis is axis), key=lambda piece: -piece.part.stride)
    if recounted and divided([piece.part for piece in pieces], sizes) is None:
        for dim in dict.fromkeys(piece.dim for piece in pieces):
            chosen = [piece for piece in pieces if piece.dim == dim]
            if dim > 0 and not any(piece.part.axis.kind for piece in chosen):
                yield chosen


def _target(
    chosen: Sequence[_Piece],
    pieces: Sequence[_Piece],
    places: range,
    around: list[_Element] | None,
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> Move | None:
    """The dimensions of the result that have the sizes of the chosen pieces, if the others have those of the rest."""
    axis = chosen[0].part.axis
    rest = [piece for piece in pieces if piece not in chosen]
    size = math.prod(piece.part.size for piece in chosen)
    possible = [place for place in places if after[place] > 1 and size % after[place] == 0]
    for number in range(1, (len(possible) if axis.kind else 1) + 1):
        for targets in itertools.combinations(possible, number):
            if math.prod(after[place] for place in targets) != size or (axis.kind == "batch" and targets != (0,)):
                continue
            others = [place for place in places if place not in targets]
            moved, left = _elements(chosen, targets, after), _elements(rest, others, after)
            if moved is None or left is None:
                continue
            instead = "" if around is None else _instead([*around, *moved, *left], before, after)
            sources = tuple(sorted({piece.dim for piece in chosen}))
            return Move(axis.kind, axis.maker, before, after, sources, targets, size, instead)
    return None


def _elements(pieces: Sequence[_Piece], targets: Sequence[int], after: Sequence[int]) -> list[_Element] | None:
    pairs = _pairs([piece.part.size for piece in pieces], [after[target] for target in targets])
    return None if pairs is None else [(pieces[i].place, targets[j], size) for i, j, size in pairs]


def _instead(elements: Iterable[_Element], before: tuple[int, ...], after: tuple[int, ...]) -> str:
    """The calls that move the axes: `.transpose(1, 2)`, with a `reshape` before and after it where one is needed."""
    held = sorted(elements, key=lambda element: element[0])  # stable, as is the next
    order = sorted(range(len(held)), key=lambda place: held[place][1])
    split = tuple(size for _, _, size in held)
    joined = tuple(split[place] for place in order)
    swapped = [place for place, source in enumerate(order) if place != source]
    name = "transpose" if len(swapped) == 2 else "permute"
    numbers = swapped if name == "transpose" else order
    first = "" if split == before else f".reshape{split}"
    last = "" if joined == after else f".reshape{after}"
    return f"{first}.{name}({', '.join(map(str, numbers))}){last}"
