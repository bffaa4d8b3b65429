"""A batch of any nesting is walked and rebuilt without loss."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from debugkit.structure import batch_size, clone_tensors, map_tensors, tensors_in

Point = namedtuple("Point", "x y")


@dataclass(frozen=True)
class Frames:
    image: torch.Tensor
    prompt: str


leaves = st.sampled_from([torch.arange(3), None, "text", 7, 2.5])
batches = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abc"), inner)
        | st.dictionaries(st.sampled_from("abc"), inner).map(OrderedDict)
        | st.dictionaries(st.sampled_from("abc"), inner).map(UserDict)
        | st.builds(Point, inner, inner)
        | st.builds(Frames, st.just(torch.ones(2)), st.just("lift"))
    ),
    max_leaves=8,
)


@given(batches)
def test_copy_has_the_same_shape_and_values_and_no_shared_tensor(batch: Any) -> None:
    copy = clone_tensors(batch)
    assert type(copy) is type(batch)
    before, after = list(tensors_in(batch)), list(tensors_in(copy))
    assert [path for path, _ in before] == [path for path, _ in after]
    for (_, tensor), (_, other) in zip(before, after, strict=True):
        assert tensor.equal(other)
        assert tensor is not other
    blank = lambda _, tensor: torch.zeros(())  # noqa: E731
    assert repr(map_tensors(batch, blank)) == repr(map_tensors(copy, blank))


def test_paths_join_keys_and_indices() -> None:
    batch = {"tokens": UserDict(ids=torch.ones(1)), "image": [torch.ones(1), Point(torch.ones(1), 3)]}
    assert [path for path, _ in tensors_in(batch)] == ["tokens.ids", "image.0", "image.1.0"]


def test_clone_keeps_requires_grad_and_drops_the_graph() -> None:
    weight = torch.ones(2, requires_grad=True)
    copy = clone_tensors([weight * 2])[0]
    assert copy.requires_grad
    assert copy.is_leaf


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        ({"a": torch.ones(4, 2), "b": torch.ones(4), "scalar": torch.ones(()), "other": torch.ones(9)}, 4),
        (torch.ones(3, 1), 3),
        ({"text": "x"}, None),
        (torch.ones(()), None),
    ],
)
def test_batch_size_is_what_most_tensors_have_in_front(batch: Any, size: int | None) -> None:
    assert batch_size(batch) == size


def test_tokeniser_output_of_transformers_keeps_its_type() -> None:
    transformers = pytest.importorskip("transformers.tokenization_utils_base")
    batch = transformers.BatchEncoding({"input_ids": torch.ones(2, 3)})
    copy = clone_tensors(batch)
    assert type(copy) is type(batch)
    assert copy["input_ids"].equal(batch["input_ids"])
    assert copy["input_ids"] is not batch["input_ids"]
