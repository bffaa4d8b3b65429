"""trace_shapes says where a shape does not fit and who made it; watch_shapes holds modules to declared shapes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import debugkit
from debugkit.instruments.watch_shapes import ShapeError, matches


def hooks_of(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


class Policy(nn.Module):
    def __init__(self, width: int = 32, projector: int = 32) -> None:
        super().__init__()
        self.config = SimpleNamespace(vision=SimpleNamespace(hidden_size=width, layers=1), text={"hidden_size": 48})
        self.vision = nn.Linear(8, width)
        self.projector = nn.Linear(projector, 48)
        self.cut = False

    def forward(self, image: Tensor, words: Tensor) -> Tensor:
        seen = self.projector(self.vision(image).flatten(0, 0))
        return torch.cat([seen, words], dim=1)


BATCH = {"image": torch.zeros(2, 5, 8), "words": torch.zeros(2, 3, 48)}


def test_every_call_is_listed_with_shapes_dtypes_devices_and_sizes() -> None:
    trace = debugkit.trace_shapes(Policy(), BATCH)
    assert trace.failure is None
    assert [(call.module, str(call.inputs[0]), str(call.outputs[0]), call.parameters) for call in trace.calls] == [
        ("vision", "(2, 5, 8)", "(2, 5, 32)", 288),
        ("projector", "(2, 5, 32)", "(2, 5, 48)", 1584),
        ("", "(2, 5, 8)", "(2, 8, 48)", 1872),
    ]
    assert {tensor.dtype for call in trace.calls for tensor in call.outputs} == {"float32"}
    assert {tensor.device for call in trace.calls for tensor in call.outputs} == {"cpu"}


def test_a_width_that_does_not_fit_names_module_producer_and_config_field() -> None:
    failure = debugkit.trace_shapes(Policy(projector=48), BATCH).failure
    assert failure is not None
    assert (failure.module, failure.kind, failure.expected, failure.received) == ("projector", "Linear", 48, 32)
    assert failure.producer == "vision"
    assert failure.fields_that_fit_expected == ("config.text.hidden_size",)
    assert failure.fields_that_fit_received == ("config.vision.hidden_size",)
    assert failure.line is not None
    assert failure.line.file == __file__
    assert "expected  48  = config.text.hidden_size" in str(failure)


def test_a_failure_between_modules_names_the_module_and_line() -> None:
    failure = debugkit.trace_shapes(Policy(), {**BATCH, "words": torch.zeros(3, 3, 48)}).failure
    assert failure is not None
    assert (failure.module, failure.expected) == ("", None)
    assert "Sizes of tensors must match" in failure.message
    assert "torch.cat" in str(failure)


@pytest.mark.parametrize(
    ("module", "x", "expected", "received"),
    [
        (nn.Conv2d(3, 4, 3), torch.zeros(2, 1, 8, 8), 3, 1),
        (nn.BatchNorm1d(6), torch.zeros(4, 5), 6, 5),
        (nn.LayerNorm(6), torch.zeros(4, 5), 6, 5),
        (nn.LSTM(6, 3), torch.zeros(4, 2, 5), 6, 5),
        (nn.Embedding(6, 3), torch.tensor([7]), None, None),
    ],
)
def test_expected_and_received_are_those_of_the_modules_class(module, x, expected, received) -> None:
    failure = debugkit.trace_shapes(nn.Sequential(module), x).failure
    assert failure is not None
    assert (failure.module, failure.expected, failure.received) == ("0", expected, received)


def test_a_vla_of_real_classes_with_a_wrong_projector(tiny_vla) -> None:
    model, batch = tiny_vla()
    model.projector = nn.Linear(64, 48)
    failure = debugkit.trace_shapes(model, batch).failure
    assert failure is not None
    assert (failure.module, failure.expected, failure.received) == ("projector", 64, 32)
    assert failure.producer is not None
    assert failure.producer.startswith("vision")
    assert "vision.config.hidden_size" in failure.fields_that_fit_received


@pytest.mark.parametrize("width", [32, 48])
def test_tracing_leaves_nothing_behind(width: int) -> None:
    model = Policy(projector=width)
    debugkit.trace_shapes(model, BATCH)
    assert hooks_of(model) == 0
    assert all(p.grad is None for p in model.parameters())


def test_a_declared_name_is_one_size_throughout_a_forward() -> None:
    model = Policy()
    with debugkit.watch_shapes(model, {"vision": "B T 32", "projector": "B T 48", "": "B _ 48"}) as shapes:
        model(**BATCH)
        model(torch.zeros(1, 7, 8), torch.zeros(1, 1, 48))  # other sizes, equally consistent
    assert shapes.observation.violations == ()
    assert [change.module for change in shapes.observation.changes] == ["vision", "projector"]
    assert hooks_of(model) == 0


def test_a_broken_declaration_raises_at_the_module_and_the_hooks_are_gone() -> None:
    model = Policy()
    said = r"`projector`, call 1: expected B T 47 \(B=2, T=5\), got \(2, 5, 48\)"
    watched = debugkit.watch_shapes(model, {"vision": "B T 32", "proj*": "B T 47"})
    with pytest.raises(ShapeError, match=said), watched:
        model(**BATCH)
    assert hooks_of(model) == 0


def test_a_pattern_without_a_module_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="No module matches 'visoin'; the first paths are vision, projector"):
        debugkit.watch_shapes(Policy(), {"visoin": "B"})
    with pytest.raises(ValueError, match='on_violation is "raise" or "record"'):
        debugkit.watch_shapes(Policy(), on_violation="shout")


@given(shape=st.lists(st.integers(1, 9), max_size=5).map(tuple), at=st.integers(0, 5))
def test_words_match_exactly_their_own_shape(shape: tuple[int, ...], at: int) -> None:
    words = [str(size) for size in shape]
    assert matches(" ".join(words), shape, {})
    assert not matches(" ".join([*words, "1"]), shape, {})
    assert matches(" ".join([*words[:at], "..."]), shape, {})
    sizes: dict[str, int] = {}
    assert matches(" ".join("A" for _ in shape), shape, sizes) == (len(set(shape)) <= 1)
    assert len(sizes) == (1 if shape and len(set(shape)) == 1 else 0)
