"""What DK324 says a `view` was meant to be: the calls that it names move the axis to where it is read."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from debugkit.rules.dk324_view_for_permute.axes import (
    Layout,
    Move,
    fresh,
    only_axis,
    reshaped,
    shape_of,
    unknown,
)

SIZES = st.lists(st.integers(1, 6), min_size=3, max_size=5)


@given(SIZES, st.data())
def test_the_calls_to_write_instead_move_the_axis(sizes: list[int], data: st.DataObject) -> None:
    """Whatever else the sizes allow, each entry along the result's dimension is one entry of the axis."""
    source = data.draw(st.integers(0, len(sizes) - 1))
    order = data.draw(st.permutations(range(len(sizes))))
    after = tuple(sizes[place] for place in order)
    layout = Layout(tuple(fresh(size, "feature" if place == source else "") for place, size in enumerate(sizes)))
    numbers = torch.arange(math.prod(sizes)).view(sizes)
    entry = torch.arange(sizes[source]).view([-1 if place == source else 1 for place in range(len(sizes))])
    for move in _moves(reshaped(layout, tuple(sizes), after)):
        if move.kind != "feature" or not move.instead:
            continue
        moved = eval(f"x{move.instead}", {"x": numbers})
        entries = eval(f"x{move.instead}", {"x": entry.expand(sizes)})
        assert moved.shape == after
        assert moved.flatten().sort().values.equal(numbers.flatten())
        first = entries.movedim(move.targets, tuple(range(len(move.targets))))  # one axis may become two dimensions
        assert first.reshape(sizes[source], -1).eq(torch.arange(sizes[source])[:, None]).all()


@given(SIZES, st.data())
def test_a_view_and_its_inverse_leave_everything_where_it_was(sizes: list[int], data: st.DataObject) -> None:
    after = tuple(data.draw(st.permutations(sizes)))
    before = Layout(unknown(sizes))
    between = reshaped(before, tuple(sizes), after)
    assert shape_of(between.dims) == after
    back = reshaped(between, after, tuple(sizes))
    assert [only_axis(dim) for dim in back.dims] == [only_axis(dim) for dim in before.dims]
    assert back.meant is None


@pytest.mark.parametrize("after", [(4, 96), (32, 12), (4, 2, 4, 12), (4, 8, 3, 4), (2, 2, 8, 12), (384,)])
def test_dimensions_that_are_merged_or_split_in_order_are_never_a_move(after: Sequence[int]) -> None:
    layout = Layout((fresh(4), fresh(8, "feature"), fresh(12)))
    assert reshaped(layout, (4, 8, 12), tuple(after)).meant is None


def _moves(layout: Layout) -> list[Move]:
    axes = {id(part.axis): part.axis for dim in layout.meant or () for part in dim}
    return [axis.move for axis in axes.values() if axis.move is not None]
