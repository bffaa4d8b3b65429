"""What goes over the wire comes out the same, and what `encode` would not have made is refused."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labs.grading import Opaque, facts
from labs.grading.difference import difference
from labs.grading.sandbox import frames, values

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**127), 2**127 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.integers(-9, 9), inner, max_size=4
        )
    ),
    max_leaves=12,
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["list", "tuple", "dict", "number", "tensor", "object", "name"]), inner, max_size=2
        )
    ),
    max_leaves=8,
)


def round_trip(value: Any) -> Any:
    tree, payload = values.encode(value)
    return values.decode(json.loads(json.dumps(tree, allow_nan=False)), payload)


@given(PLAIN)
def test_plain_data_comes_back_the_same(value: Any) -> None:
    assert _same(round_trip(value), value)


def _same(one: Any, other: Any) -> bool:
    if isinstance(other, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(_same, one, other))
    if isinstance(other, dict):
        return isinstance(one, dict) and list(one) == list(other) and all(_same(one[key], other[key]) for key in other)
    if isinstance(other, float) and math.isnan(other):
        return isinstance(one, float) and math.isnan(one)
    return type(one) is type(other) and bool(one == other)


REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)


@pytest.mark.parametrize("dtype", [*REAL, torch.complex64, torch.complex128], ids=str)
def test_tensors_of_every_dtype_come_back_the_same(dtype: torch.dtype) -> None:
    for value in (
        torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype),
        torch.tensor(1).to(dtype),
        torch.zeros(0, 3).to(dtype),
    ):
        assert difference(round_trip(value), value, rtol=0, atol=0, same_dtype=True) is None


def test_what_a_tensor_was_travels_as_facts() -> None:
    base = torch.randn(2, 3, requires_grad=True)
    first, second, third = round_trip([base, base.t(), base * 2])
    assert facts(first).requires_grad
    assert facts(first).is_leaf
    assert not first.requires_grad
    assert (facts(second).stride, facts(second).storage) == ((1, 3), facts(first).storage)
    assert facts(third).storage != facts(first).storage
    assert facts(third).grad_fn == "MulBackward0"
    assert facts(round_trip(torch.nn.Parameter(base))).type_name == "Parameter"


def test_an_object_that_is_not_data_is_only_named() -> None:
    assert round_trip([object]) == [Opaque("builtins.type")]


@pytest.mark.parametrize(
    "value", [10**60, "x" * 300_000, {(1, 2): 3}, torch.eye(2).to_sparse()], ids=lambda v: type(v).__name__
)
def test_what_cannot_travel_is_said(value: Any) -> None:
    with pytest.raises(values.ValueFormatError):
        values.encode(value)


def test_a_value_nested_in_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(values.ValueFormatError):
        values.encode(loop)


@given(ANY_JSON, st.binary(max_size=40))
def test_a_forged_value_is_refused_or_plain_and_never_another_exception(tree: Any, payload: bytes) -> None:
    try:
        values.decode(tree, payload)
    except values.ValueFormatError:
        return


@given(st.binary(max_size=200))
def test_a_forged_frame_is_refused_or_incomplete(data: bytes) -> None:
    try:
        found = frames.take(bytearray(data), 1024)
    except frames.FrameError:
        return
    assert found is None or isinstance(found[0], dict)


def test_frames_arrive_whole_through_a_pipe_and_piecemeal() -> None:
    frame = frames.pack({"a": 1}, b"payload")
    reading, writing = os.pipe()
    frames.send(writing, frame)
    os.close(writing)
    assert frames.receive(reading, 1024) == ({"a": 1}, b"payload")
    assert frames.receive(reading, 1024) is None
    os.close(reading)
    buffer = bytearray()
    for byte in frame[:-1]:
        buffer.append(byte)
        assert frames.take(buffer, 1024) is None
    buffer.append(frame[-1])
    assert frames.take(buffer, 1024) == ({"a": 1}, b"payload")
    assert not buffer


@pytest.mark.parametrize(
    "header", [b'{"a": NaN}', b"[1]", b"\xff", b"[" * 100_000], ids=["nan", "list", "bytes", "deep"]
)
def test_a_header_that_is_not_a_strict_object_is_refused(header: bytes) -> None:
    with pytest.raises(frames.FrameError):
        frames.take(bytearray(len(header).to_bytes(8, "big") + bytes(8) + header), 1024)


def test_an_oversized_announcement_is_refused_before_it_is_read() -> None:
    with pytest.raises(frames.FrameError, match="1025 bytes was announced"):
        frames.take(bytearray((2).to_bytes(8, "big") + (1025).to_bytes(8, "big")), 1024)
