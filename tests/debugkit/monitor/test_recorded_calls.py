"""What is kept of a module call so that it can be repeated: submodules, buffers, and the gradients of its outputs."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from debugkit.step_replay.calls import CallRecorder, ModuleCall


class Classifier(nn.Module):
    """Returns its loss beside the logits, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh())
        self.head = nn.Linear(8, 5)

    def forward(self, state: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(self.body(state))
        return F.cross_entropy(logits, labels), logits


def recorded(recorder: CallRecorder, model: nn.Module) -> tuple[ModuleCall, Any]:
    """A call of the model, and what it returned."""
    inputs = torch.randn(4, 3), torch.randint(5, (4,))
    recorder.start("", model, inputs, {})
    output = model(*inputs)
    recorder.end(output)
    return recorder.calls[-1], output


@pytest.mark.parametrize(
    ("backward", "kept"),
    [
        pytest.param(lambda loss, logits: loss, [0], id="the model's own loss"),
        pytest.param(lambda loss, logits: logits.square().mean(), [1], id="a loss of the loop"),
        pytest.param(lambda loss, logits: loss + 0.1 * logits.square().mean(), [0], id="both"),
    ],
)
def test_what_reaches_the_logits_through_the_loss_is_not_counted_twice(backward: Any, kept: list[int]) -> None:
    call, (loss, logits) = recorded(CallRecorder(), Classifier())
    backward(loss, logits).backward()
    assert list(call.output_gradients) == kept
    output = (loss, logits)[kept[0]]
    assert call.output_gradients[kept[0]].shape == output.shape


def test_a_submodule_that_was_replaced_is_seen_after_the_modules_are_forgotten() -> None:
    recorder, model = CallRecorder(), Classifier()
    recorded(recorder, model)
    model.body[2] = nn.Sequential(nn.Tanh(), nn.Dropout(0.5)).eval()
    recorder.forget_modules()
    call, _ = recorded(recorder, model)
    assert call.parts == tuple(model.modules())
    assert call.training == tuple(module.training for module in model.modules())


def test_only_buffers_that_the_forward_changes_are_kept() -> None:
    recorder, model = CallRecorder(), Classifier()
    model.register_buffer("scale", torch.ones(3))
    for _ in range(2):  # the first call finds out which they are
        call, _ = recorded(recorder, model)
        assert sorted(call.buffers) == ["body.1.num_batches_tracked", "body.1.running_mean", "body.1.running_var"]
    before = call.buffers["body.1.running_mean"]
    assert not torch.equal(before, model.body[1].running_mean)  # from before the call


def test_a_buffer_that_was_removed_is_left_out() -> None:
    recorder, model = CallRecorder(), Classifier()
    recorded(recorder, model)
    model.body[1] = nn.Identity()
    call, _ = recorded(recorder, model)
    assert call.buffers == {}


def test_a_model_that_is_gone_is_not_kept() -> None:
    recorder, model = CallRecorder(), Classifier()
    recorded(recorder, model)
    gone = weakref.ref(model)
    recorder.forget()
    del model
    gc.collect()
    assert gone() is None
