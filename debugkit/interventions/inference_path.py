"""Inference as on the robot: the declared function, or the method that policies usually have for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from debugkit.finding import NotExamined
from debugkit.frames import one_line
from debugkit.randomness import same_randomness
from debugkit.rule_text import listed
from debugkit.setup import TrainingSetup
from debugkit.structure import clone_tensors, tensors_in

_NAMES = ("select_action", "predict_action", "predict", "get_action", "act", "sample_actions", "predict_action_chunk")


def inference_of(setup: TrainingSetup) -> Callable[[Any], Any]:
    """The function from a batch to an action. Raises NotExamined if there is none."""
    declared, model = setup.declare.inference, setup.model
    if declared is not None:
        return lambda batch: declared(model, batch)
    for name in _NAMES:
        method = getattr(model, name, None)
        if callable(method) and not isinstance(method, torch.nn.Module):
            return method  # type: ignore[no-any-return]
    raise NotExamined(
        f"The model has none of the methods {listed(_NAMES, 3)}: pass "
        "declare=Declare(inference=lambda model, batch: …)."
    )


def act(setup: TrainingSetup, batch: Any) -> dict[str, torch.Tensor]:
    """The tensors that inference returns for a copy of `batch`, by path, in eval mode and always with the same seed.

    Raises NotExamined if inference raises or returns no tensor.
    """
    inference = inference_of(setup)
    setup.model.eval()
    for module in setup.model.modules():
        for value in vars(module).values():
            if isinstance(value, torch.Generator):
                value.manual_seed(0)  # a generator that the policy holds
    try:
        with torch.no_grad(), same_randomness(0):
            returned = inference(clone_tensors(batch))
    except Exception as error:
        raise NotExamined(f"Inference raised {one_line(error)}.") from error
    tensors = {path: tensor.detach().clone() for path, tensor in tensors_in(returned)}
    if not tensors:
        raise NotExamined(f"Inference returned {type(returned).__name__} without any tensor.")
    return tensors
