"""Acting as the robot does: the declared inference, or the method by which policies usually do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from debugkit.finding import NotExamined
from debugkit.restore import same_randomness
from debugkit.step import one_line
from debugkit.structure import clone_tensors, tensors_in
from debugkit.subject import Subject

_NAMES = ("select_action", "predict_action", "predict", "get_action", "act", "sample_actions", "predict_action_chunk")


def inference_of(subject: Subject) -> Callable[[Any], Any]:
    """`act(batch)`. Raises NotExamined where there is none."""
    declared, model = subject.declare.inference, subject.model
    if declared is not None:
        return lambda batch: declared(model, batch)
    for name in _NAMES:
        method = getattr(model, name, None)
        if callable(method) and not isinstance(method, torch.nn.Module):
            return method  # type: ignore[no-any-return]
    raise NotExamined(f"The model has no {', '.join(_NAMES[:3])}…: declare=Declare(inference=lambda model, batch: …).")


def act(subject: Subject, batch: Any) -> dict[str, torch.Tensor]:
    """The tensors that inference returns for a copy of `batch`, by path: in eval mode, with equal draws every time.

    Raises NotExamined if it raises, or returns no tensor.
    """
    inference = inference_of(subject)
    subject.model.eval()
    for module in subject.model.modules():
        for value in vars(module).values():
            if isinstance(value, torch.Generator):
                value.manual_seed(0)  # a generator of the policy's own
    try:
        with torch.no_grad(), same_randomness(0):
            returned = inference(clone_tensors(batch))
    except Exception as error:
        raise NotExamined(f"Inference raised {one_line(error)}.") from error
    tensors = {path: tensor.detach().clone() for path, tensor in tensors_in(returned)}
    if not tensors:
        raise NotExamined(f"Inference returned no tensor but {type(returned).__name__}.")
    return tensors
